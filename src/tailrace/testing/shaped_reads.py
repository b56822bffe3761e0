"""A slow disk for tests and benches of hints: reads of spilled records, and of lookup tables, take as long as you say.

State servers take it from their environment, which is that of Spark's Python workers: a bench sets ``VARIABLE`` before
it starts a Spark of its own; with a Spark that runs already, a query is started inside ``shaped_reads``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tailrace.env.files.shaped_reads import VARIABLE, shaped

__all__ = ["VARIABLE", "shaped", "shaped_reads"]


@contextmanager
def shaped_reads(spark: SparkSession, read_s: float, depth: int = 32) -> Iterator[None]:
    """State servers of queries that are started inside read a key in ``read_s``, and ``depth`` of them at once."""
    environment = spark.sparkContext.environment
    environment[VARIABLE] = shaped(read_s, depth)
    try:
        yield
    finally:
        del environment[VARIABLE]
