"""What plain readers find of a file sink's output: Spark, DuckDB and pyarrow, as their users would call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from tailrace.testing import ExpectedEpoch

Row = tuple[Any, ...]
EPOCH = "tailrace_epoch"


def _spark(spark: SparkSession, path: Path) -> pa.Table:
    return spark.read.parquet(str(path)).toArrow()


def _duckdb(spark: SparkSession, path: Path) -> pa.Table:
    files = f"read_parquet('{path}/{EPOCH}=*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as database:
        return database.sql(f"FROM {files}").to_arrow_table()


def _pyarrow(spark: SparkSession, path: Path) -> pa.Table:
    return ds.dataset(path, partitioning="hive").to_table()


READERS: dict[str, Callable[[SparkSession, Path], pa.Table]] = {"spark": _spark, "duckdb": _duckdb, "pyarrow": _pyarrow}


def rows_found(table: pa.Table, columns: Sequence[str]) -> list[Row]:
    """With the epoch first, in order."""
    return sorted(zip(*(table[name].to_pylist() for name in (EPOCH, *columns)), strict=True), key=repr)


def rows_wanted(epochs: Sequence[ExpectedEpoch], columns: Sequence[str]) -> list[Row]:
    """Likewise, of what the oracle says."""
    return sorted(
        ((epoch.epoch, *row) for epoch in epochs for row in zip(*(epoch.rows[name].to_pylist() for name in columns))),
        key=repr,
    )


def check_readers(spark: SparkSession, path: Path, epochs: Sequence[ExpectedEpoch], columns: Sequence[str]) -> None:
    """Each of them finds each row once, and no other."""
    wanted = rows_wanted(epochs, columns)
    for name, read in READERS.items():
        found = rows_found(read(spark, path), columns)
        missing, more = [row for row in wanted if row not in found], [row for row in found if row not in wanted]
        assert found == wanted, f"{name}: {len(found)} rows of {len(wanted)}, missing {missing[:5]}, more {more[:5]}"
