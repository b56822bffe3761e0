"""A simulator of the commit: from one seed, with a clock and a scheduler of its own.

See docs/explanation/simulation.md.
"""
