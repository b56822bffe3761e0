"""What a user writes. Frozen and pure: nothing here imports Spark or Arrow, nothing here does I/O.

The public names are those of :mod:`tailrace`; the spark layer hands in what only Spark knows, by :class:`Runtime`.
"""
