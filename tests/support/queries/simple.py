"""The plain query of tests that are about something else: a sum and a count by key, from scripted batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from support.queries.engines import Output, check, run, tailrace_stream
from support.queries.spark_epochs import as_run
from tailrace.testing import Aggregate, Question, ScriptedSource, Windows, expected

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
SUMS = (Aggregate("sum", "v", "total"), Aggregate("count", None, "n"))
ROLLING = Question(("k",), SUMS, output_mode="update")
WINDOWED = Question(("k",), SUMS, Windows(10 * SECOND, 5 * SECOND), "ts", 5 * SECOND)


def batches(count: int, rows: int = 50, keys: int = 7) -> tuple[pa.Table, ...]:
    """Batches that are all different and need no randomness: batch i covers the seconds 4i to 4i+8."""
    made = []
    for epoch in range(count):
        numbers = range(epoch * rows, (epoch + 1) * rows)
        made.append(
            pa.table(
                [
                    pa.array([None if n % 11 == 0 else n % keys for n in numbers], pa.int64()),
                    pa.array([(1000 + 4 * epoch + n % 9) * SECOND for n in numbers], SCHEMA.field("ts").type),
                    pa.array([n * n - 40 for n in numbers], pa.int64()),
                ],
                schema=SCHEMA,
            )
        )
    return tuple(made)


class Scripted:
    """A query over scripted batches in one folder, run in parts."""

    def __init__(
        self, spark: SparkSession, path: Path, question: Question = ROLLING, *, files_per_epoch: int = 1
    ) -> None:
        self.spark = spark
        self.path = path
        self.question = question
        self.checkpoint = path / "check"
        self.state = self.checkpoint / "tailrace"
        self.source = ScriptedSource(path / "in", SCHEMA, files_per_epoch=files_per_epoch)
        self.fed: tuple[pa.Table, ...] = ()
        self.output = Output()

    def feed(self, tables: tuple[pa.Table, ...]) -> None:
        self.source.add(tables)
        self.fed += tables

    def frame(self) -> DataFrame:
        return self.source.stream(self.spark)

    def run(self, frame: DataFrame | None = None, /, **options: str) -> Output:
        """Run to the end of what was fed. Earlier epochs stay in the output."""
        stream = tailrace_stream(self.frame() if frame is None else frame, self.question)
        return run(stream, self.question, self.checkpoint, options, self.output)

    def start(self, **options: str) -> Any:
        """A query that goes on until it is stopped."""
        stream = tailrace_stream(self.frame(), self.question)
        writer = stream.writeStream.outputMode(self.question.output_mode).foreachBatch(self.output.save)
        for name, value in options.items():
            writer = writer.option(name, value)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def check(self) -> None:
        """What came out is the oracle's answer over all that was fed."""
        window = self.question.window_column
        group = (*((window,) if window else ()), *self.question.keys)
        rows = as_run(self.fed, self.checkpoint)
        check(self.output, expected(self.spark, self.question, rows), group, {})


class Seen:
    """A sink that compares what comes again with what came first."""

    def __init__(self, query: Scripted) -> None:
        self.again: list[int] = []
        self._query = query

    def save(self, batch: DataFrame, epoch: int) -> None:
        table = batch.toArrow()
        before = self._query.output.tables.get(epoch)
        if before is not None:
            self.again.append(epoch)
            assert sorted(map(str, before.to_pylist())) == sorted(map(str, table.to_pylist()))
        self._query.output.tables[epoch] = table
