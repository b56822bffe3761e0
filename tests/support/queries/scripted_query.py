"""Any query over one scripted stream, run in parts through the public interface; its rows by epoch."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.testing import ScriptedSource
from tailrace.testing.compare import rows_of
from tailrace.testing.lateness import closing_watermarks

SECOND = 1_000_000
NO_WATERMARK = -(2**63)
SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("w", pa.decimal128(20, 2))]
)
Rows = list[dict[str, Any]]


def batches(seed: int, count: int, rows: int = 40, keys: int = 12) -> list[pa.Table]:
    """Out of order, some late, some without a time; in a batch no two times of a key are equal."""
    rng = random.Random(seed)
    made = []
    for epoch in range(count):
        now = 1_000 + 3 * epoch
        times = [None if rng.random() < 0.03 else (now - rng.randrange(14)) * SECOND + n for n in range(rows)]
        times.sort(key=lambda time: (time is None, time))  # Spark keeps the first that comes
        columns: list[list[Any]] = [
            [rng.choice([None, *(f"key {n}" for n in range(keys))]) for _ in range(rows)],
            times,
            [epoch * rows + n for n in range(rows)],
            [Decimal(rng.randrange(-50, 50)).quantize(Decimal("0.01")) for _ in range(rows)],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        made.append(pa.table(arrays, schema=SCHEMA))
    return made


def drawn(count: int, **how: int) -> list[pa.Table]:
    """Batches of a seed that a failing test shows."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return batches(seed, count, **how)


def plain(table: pa.Table) -> Rows:
    return rows_of(table)


def watermarks(tables: Sequence[pa.Table], delay: int, rule: str = "tailrace") -> list[tuple[int, int]]:
    """Of each epoch the watermark by which rows are late, and the one that it ends with."""
    closing = closing_watermarks([[row["ts"] for row in plain(table)] for table in tables], delay, rule)
    known = [NO_WATERMARK if mark is None else mark for mark in closing]
    return list(zip([0 if rule == "spark" else NO_WATERMARK, *known[:-1]], known))


class ScriptedQuery:
    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        ask: Callable[[DataFrame], Any],
        *,
        mode: str = "append",
        files_per_epoch: int = 1,
        **options: str,
    ) -> None:
        self.spark, self.path, self.ask = spark, path, ask
        self.mode, self.options = mode, options
        self.source = ScriptedSource(path / "in", SCHEMA, files_per_epoch=files_per_epoch)
        self.fed: list[pa.Table] = []
        self.output: dict[int, Rows] = {}
        self.progress: list[Any] = []

    def feed(self, tables: Sequence[pa.Table]) -> None:
        self.source.add(tables)
        self.fed += tables

    def start(self, *, available_now: bool = False) -> Any:
        def save(batch: DataFrame, epoch: int) -> None:
            rows = plain(batch.toArrow())
            if epoch in self.output:  # replayed
                assert sorted(map(str, rows)) == sorted(map(str, self.output[epoch]))
            self.output[epoch] = rows

        writer = self.ask(self.source.stream(self.spark)).writeStream.outputMode(self.mode).foreachBatch(save)
        for name, value in self.options.items():
            writer = writer.option(name, value)
        writer = writer.option("checkpointLocation", str(self.path / "check"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, tables: Sequence[pa.Table] = ()) -> None:
        self.feed(tables)
        query = self.start(available_now=True)
        try:
            query.awaitTermination()
            self.progress += list(query.recentProgress)
        finally:
            query.stop()

    def sorted_rows(self, epoch: int) -> list[tuple[Any, ...]]:
        """An epoch's rows as tuples, in a fixed order."""
        return sorted((tuple(row.values()) for row in self.output.get(epoch, [])), key=repr)
