"""Spark's own logs of a query: which epochs it has planned (``offsets``) and finished (``commits``), and the rewind.

A file that is moved aside goes to ``<checkpoint>/tailrace-aside/``, where Spark does not look; what an earlier rewind
left there is replaced. Beside a local file lies Hadoop's checksum of it: it goes first, since a file without one is
read unchecked, but one with another file's is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.utils import AnalysisException

from tailrace.commit.spark_folder import numbers_of, spark_epochs
from tailrace.env.disk import Disk
from tailrace.env.objects import open_store
from tailrace.errors import CheckpointError

ASIDE = "tailrace-aside"


class SparkLogFiles:
    """The logs below a checkpoint location: a path, or a Hadoop URI, which is only read."""

    def __init__(self, spark: SparkSession, checkpoint: str, disk: Disk | None = None) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._disk = disk or Disk()

    def epochs(self, log: str) -> list[int]:
        """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
        if is_local(self._checkpoint):
            return spark_epochs(open_store(self._checkpoint), log)
        try:
            files = self._spark.read.format("binaryFile").load(f"{self._checkpoint.rstrip('/')}/{log}")
            return numbers_of(row.path for row in files.select("path").collect())
        except AnalysisException:  # no such path: the query has not run yet
            return []

    def move_aside(self, log: str, epoch: int) -> None:
        if not is_local(self._checkpoint):
            raise CheckpointError(
                f"Spark's checkpoint {self._checkpoint} is one epoch ahead of the state, and {log}/{epoch} must be "
                "moved out of it before the query can go on. Tailrace does that only in a local path: "
                f"move {log}/{epoch} aside by hand, or start with new locations."
            )
        root = Path(open_store(self._checkpoint).uri)
        folder, aside = root / log, root / ASIDE / log
        try:
            self._disk.make_folder(aside)
            for name in (f".{epoch}.crc", str(epoch)):
                if (folder / name).exists():
                    self._disk.replace(folder / name, aside / name)
            self._disk.sync_folder(aside)
            self._disk.sync_folder(folder)
        except OSError as error:
            raise CheckpointError(
                f"Cannot move {folder / str(epoch)} to {aside}: {error.strerror or error}. Spark's checkpoint is one "
                "epoch ahead of the state; make its folder writable, then start the query again."
            ) from error


def is_local(uri: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", uri) is None or uri.lower().startswith("file:")
