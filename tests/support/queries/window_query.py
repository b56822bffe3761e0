"""A query over scripted batches of (k, ts, v) that is run in parts and checked against a model of ``window_cases``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.operators.window_scenario import Row, Wanted, answers_of, emitted
from support.queries.simple import SCHEMA
from tailrace.testing import ScriptedSource

Model = Callable[[list[list[Row]]], Wanted]


def rows_of(table: pa.Table, timed: bool) -> list[Row]:
    times = table["ts"].cast(pa.int64()).to_pylist() if timed else [None] * len(table)
    return [(k, ts, v, None) for k, ts, v in zip(table["k"].to_pylist(), times, table["v"].to_pylist(), strict=True)]


class WindowQuery:
    """``ask``: from the stream to what is written. ``model``: what each epoch must give, by its rows."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        ask: Callable[[Any], Any],
        model: Model,
        names: Iterable[str],
        *,
        delay: str | None = "5 seconds",
        mode: str = "append",
    ) -> None:
        self.spark, self.path, self.ask, self.model = spark, path, ask, model
        self.names, self.delay, self.mode = tuple(names), delay, mode
        self.source = ScriptedSource(path / "in", SCHEMA)
        self.fed: list[pa.Table] = []
        self.output: dict[int, list[pa.RecordBatch]] = {}
        self.progress: Any = None

    def feed(self, tables: Iterable[pa.Table]) -> None:
        tables = tuple(tables)
        self.source.add(tables)
        self.fed += tables

    def stream(self) -> Any:
        stream = tr.stream(self.source.stream(self.spark))
        return self.ask(stream if self.delay is None else stream.withWatermark("ts", self.delay))

    def writer(self, **options: str) -> Any:
        def save(batch: DataFrame, epoch: int) -> None:
            self.output[epoch] = batch.toArrow().to_batches()

        writer = self.stream().writeStream.outputMode(self.mode).foreachBatch(save).options(**options)
        return writer.option("checkpointLocation", str(self.path / "check"))

    def run(self, **options: str) -> None:
        """To the end of what was fed."""
        query = self.writer(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            self.progress = query.lastProgress
        finally:
            query.stop()

    def check(self) -> int:
        """Every epoch gave what the model says; how many rows that were."""
        # A stream without a watermark has no event time to count or to order by.
        wanted = self.model([rows_of(table, self.delay is not None) for table in self.fed])
        assert sorted(self.output) == list(range(len(self.fed)))
        for epoch, groups in enumerate(wanted.groups):
            assert emitted(self.output[epoch], self.names) == answers_of(groups, self.names), f"epoch {epoch}"
        return sum(map(len, wanted.groups))
