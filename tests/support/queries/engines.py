"""Run a question through Tailrace's public interface, and through Spark's own streaming, the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import Aggregate, ExpectedEpoch, Question, ScriptedSource, describe, differences


@dataclass
class Output:
    """What a query gave, by epoch. A replayed epoch must give the same again."""

    tables: dict[int, pa.Table] = field(default_factory=dict)
    progress: list[Any] = field(default_factory=list)

    def save(self, batch: DataFrame, epoch: int) -> None:
        self.tables[epoch] = batch.toArrow()


def micros(span: int) -> str:
    return f"{span} microseconds"


def aggregate_of(aggregate: Aggregate) -> Any:
    if aggregate.column is None:
        return tr.count().alias(aggregate.name)
    if aggregate.function == "quantile":
        return tr.quantile(aggregate.column, aggregate.argument or 0.0).alias(aggregate.name)
    if aggregate.function == "top_k":
        return tr.top_k(aggregate.column, int(aggregate.argument or 1)).alias(aggregate.name)
    more = {"ignorenulls": True} if aggregate.ignore_nulls else {}
    return getattr(tr, aggregate.function)(aggregate.column, **more).alias(aggregate.name)


def tailrace_stream(frame: DataFrame, question: Question) -> Any:
    """The question in Tailrace's words, up to ``writeStream``."""
    return asked(tr.stream(frame), question)


def asked(stream: Any, question: Question) -> Any:
    """The question, of a stream of Tailrace's."""
    if question.delay is not None and question.time_column is not None:
        stream = stream.withWatermark(question.time_column, micros(question.delay))
    groups: list[Any] = list(question.keys)
    if question.windows is not None and question.time_column is not None:
        w = question.windows
        groups.insert(0, tr.window(question.time_column, micros(w.size), micros(w.slide), micros(w.offset)))
    if question.session_gap is not None and question.time_column is not None:
        groups.insert(0, tr.session_window(question.time_column, micros(question.session_gap)))
    return stream.groupBy(*groups).agg(*(aggregate_of(a) for a in question.aggregates))


def spark_stream(frame: DataFrame, question: Question) -> DataFrame:
    """The question in Spark's words: its own operator. No ``first`` and ``last``: Spark leaves them to chance."""
    assert question.time_column is not None and question.delay is not None
    if question.session_gap is not None:
        window = F.session_window(question.time_column, micros(question.session_gap))
    else:
        assert question.windows is not None
        w = question.windows
        window = F.window(question.time_column, micros(w.size), micros(w.slide), micros(w.offset))
    functions = {"sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg, "stddev": F.stddev, "count": F.count}
    columns = [functions[a.function](a.column or F.lit(1)).alias(a.name) for a in question.aggregates]
    marked = frame.withWatermark(question.time_column, micros(question.delay))
    return marked.groupBy(window, *question.keys).agg(*columns)


def run(
    stream: Any,
    question: Question,
    checkpoint: Path | str,
    options: Mapping[str, str] | None = None,
    output: Output | None = None,
) -> Output:
    """Run to the end of what is available; ``stream`` is from either engine."""
    output = output or Output()
    writer = stream.writeStream.outputMode(question.output_mode).foreachBatch(output.save)
    for name, value in (options or {}).items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        output.progress = list(query.recentProgress)
    finally:
        query.stop()
    return output


def ask_tailrace(
    spark: SparkSession,
    question: Question,
    batches: tuple[pa.Table, ...],
    path: Path,
    options: Mapping[str, str] | None = None,
    files_per_epoch: int = 1,
) -> Output:
    """Script the batches, run the question over them in a fresh checkpoint."""
    source = ScriptedSource(path / "in", batches[0].schema, files_per_epoch=files_per_epoch)
    source.add(batches)
    return run(tailrace_stream(source.stream(spark), question), question, path / "check", options)


def check(output: Output, wanted: list[ExpectedEpoch], group: tuple[str, ...], scales: Mapping[str, float]) -> None:
    """Every epoch's rows are the oracle's, and no epoch is missing or invented."""
    assert sorted(output.tables) == [epoch.epoch for epoch in wanted]
    for epoch in wanted:
        found = differences(output.tables[epoch.epoch], epoch.rows, group, scales)
        assert not found, f"epoch {epoch.epoch}:\n{describe(found)}"
