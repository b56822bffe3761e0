"""Spark's own logs of a query, wherever its checkpoint lies: in a local path, or behind a Hadoop URI, by Spark."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.utils import AnalysisException

from tailrace.commit.spark_folder import SparkFolder, numbers_of
from tailrace.env.disk import Disk
from tailrace.env.objects import open_store
from tailrace.errors import CheckpointError


class SparkLogFiles:
    """The logs below a checkpoint location: a path, or a Hadoop URI, which is only read."""

    def __init__(self, spark: SparkSession, checkpoint: str, disk: Disk | None = None) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._folder = SparkFolder(Path(open_store(checkpoint).uri), disk) if is_local(checkpoint) else None

    def epochs(self, log: str) -> list[int]:
        """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
        if self._folder is not None:
            return self._folder.epochs(log)
        try:
            files = self._spark.read.format("binaryFile").load(f"{self._checkpoint.rstrip('/')}/{log}")
            return numbers_of(row.path for row in files.select("path").collect())
        except AnalysisException:  # no such path: the query has not run yet
            return []

    def move_aside(self, log: str, epoch: int) -> None:
        if self._folder is None:
            raise CheckpointError(
                f"Spark's checkpoint {self._checkpoint} is one epoch ahead of the state, and {log}/{epoch} must be "
                "moved out of it before the query can go on. Tailrace does that only in a local path: "
                f"move {log}/{epoch} aside by hand, or start with new locations."
            )
        self._folder.move_aside(log, epoch)


def is_local(uri: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", uri) is None or uri.lower().startswith("file:")
