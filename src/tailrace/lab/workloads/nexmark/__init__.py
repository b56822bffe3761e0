"""NEXMark: an auction house's events, the questions asked of them, and the right answers.

``config``, ``times``, ``draws``, ``strings`` and ``generator`` make the events; ``files`` writes them as a stream's
source; ``oracle`` answers every query over the whole input with DuckDB, and ``compare`` compares rows; ``queries``
holds the queries as engines run them. Only ``queries`` knows Spark.
"""
