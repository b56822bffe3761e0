"""Reading Spark's own logs of a query: which epochs it has planned (offsets) and finished (commits)."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession
from pyspark.sql.utils import AnalysisException

from tailrace.env.objects import open_store

_NUMBER = re.compile(r"(?:^|/)(\d+)$")


def spark_epochs(spark: SparkSession, checkpoint: str, log: str) -> list[int]:
    """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
    if is_local(checkpoint):
        names = [stored.name for stored in open_store(checkpoint).list(f"{log}/")]
    else:
        try:
            files = spark.read.format("binaryFile").load(f"{checkpoint.rstrip('/')}/{log}")
            names = [row.path for row in files.select("path").collect()]
        except AnalysisException:  # no such path: the query has not run yet
            names = []
    return sorted(int(found.group(1)) for name in names if (found := _NUMBER.search(name)))


def is_local(uri: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", uri) is None or uri.lower().startswith("file:")
