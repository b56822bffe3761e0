"""A source whose batches are scripted: file i is exactly epoch i.

Each batch is one Parquet file. Spark's file source orders files by their modification time, so file i is given a time i
seconds after the first; with one file a trigger, batch i of the script is epoch i of the query, also after restarts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

_FIRST_SECONDS = 1_700_000_000


class ScriptedSource:
    """Writes scripted batches into ``directory`` and reads them as a stream, one batch an epoch."""

    def __init__(self, directory: str | Path, schema: pa.Schema) -> None:
        self._directory = Path(directory)
        self._schema = schema
        self._directory.mkdir(parents=True, exist_ok=True)
        self._count = len(list(self._directory.glob("*.parquet")))

    def add(self, batches: Sequence[pa.Table]) -> None:
        """Append batches; each becomes one later epoch."""
        for batch in batches:
            # Written aside and renamed: a query that is already running must never list half a file.
            hidden = self._directory / f".{self._count:06d}.tmp"
            pq.write_table(batch.cast(self._schema), hidden, coerce_timestamps="us")
            seconds = _FIRST_SECONDS + self._count
            os.utime(hidden, (seconds, seconds))
            hidden.rename(self._directory / f"{self._count:06d}.parquet")
            self._count += 1

    def stream(self, spark: SparkSession, *, files_per_trigger: int = 1) -> DataFrame:
        """A streaming DataFrame over all batches, those added later included."""
        empty = spark.createDataFrame(self._schema.empty_table())
        reader = spark.readStream.schema(empty.schema).option("maxFilesPerTrigger", files_per_trigger)
        return reader.parquet(str(self._directory))
