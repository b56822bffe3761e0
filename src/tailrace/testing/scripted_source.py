"""A source whose batches are scripted: batch i is exactly epoch i.

Each batch is a fixed number of Parquet files. Spark's file source orders files by their modification time, so file i is
given a time i seconds after the first; with that number of files a trigger, batch i of the script is epoch i of the
query, also after restarts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tailrace.testing.spark_types import spark_schema

_FIRST_SECONDS = 1_700_000_000


class ScriptedSource:
    """Writes scripted batches into ``directory`` and reads them as a stream, one batch an epoch."""

    def __init__(self, directory: str | Path, schema: pa.Schema, *, files_per_epoch: int = 1) -> None:
        self._directory = Path(directory)
        self._schema = schema
        self._files_per_epoch = files_per_epoch
        self._directory.mkdir(parents=True, exist_ok=True)
        self._count = len(list(self._directory.glob("*.parquet")))

    def add(self, batches: Sequence[pa.Table]) -> None:
        """Append batches; each becomes one later epoch."""
        for batch in batches:
            each = -(-batch.num_rows // self._files_per_epoch)
            for part in range(self._files_per_epoch):
                self._write(batch.slice(part * each, each))

    def _write(self, rows: pa.Table) -> None:
        # Written under a hidden name and renamed: a query that is already running must never list half a file.
        hidden = self._directory / f".{self._count:06d}.tmp"
        pq.write_table(rows.cast(self._schema), hidden, coerce_timestamps="us")
        seconds = _FIRST_SECONDS + self._count
        os.utime(hidden, (seconds, seconds))
        hidden.rename(self._directory / f"{self._count:06d}.parquet")
        self._count += 1

    def stream(self, spark: SparkSession) -> DataFrame:
        """A streaming DataFrame over all batches, those added later included."""
        reader = spark.readStream.schema(spark_schema(self._schema)).option("maxFilesPerTrigger", self._files_per_epoch)
        return reader.parquet(str(self._directory))
