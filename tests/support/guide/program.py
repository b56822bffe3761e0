"""A program of Spark's documentation: what it reads, what it asks, and its rows on either engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.queries.plain import Rows, rows_of
from tailrace.testing import ScriptedSource

Frames = Mapping[str, DataFrame]
Build = Callable[[Frames], DataFrame]
WriterOf = Callable[[DataFrame], Any]


@dataclass(frozen=True)
class Program:
    """``origin``: where it stands. ``instead``: what is not as there. ``keys``: in update mode, whose last row counts.

    ``runs``: whether each batch has a run of its own, so that processing time goes on between them.
    """

    name: str
    origin: str
    mode: str
    feeds: Mapping[str, Sequence[pa.Table]]
    build: Build
    instead: str = ""
    keys: tuple[str, ...] = ()
    confs: Mapping[str, str] = field(default_factory=dict)
    runs: bool = False


@dataclass(frozen=True)
class Outcome:
    """``rows``: names and types first. ``why_spark``: why a query that was given to Tailrace ran on Spark."""

    rows: Rows
    why_spark: str | None


def on_spark(frame: DataFrame) -> Any:
    return frame.writeStream


def on_tailrace(frame: DataFrame) -> Any:
    return tr.writeStream(frame)


def run(program: Program, spark: SparkSession, path: Path, writer_of: WriterOf) -> Outcome:
    """``writer_of``: the line that differs."""
    before = {name: spark.conf.get(name) for name in program.confs}
    for name, value in program.confs.items():
        spark.conf.set(name, value)
    try:
        return _run(program, spark, path, writer_of)
    finally:
        for name, kept in before.items():
            spark.conf.set(name, str(kept))


def _run(program: Program, spark: SparkSession, path: Path, writer_of: WriterOf) -> Outcome:
    sources = {name: ScriptedSource(path / name, batches[0].schema) for name, batches in program.feeds.items()}
    frame = program.build({name: source.stream(spark) for name, source in sources.items()})
    epochs: dict[int, Rows] = {}
    reasons: list[str | None] = []

    def save(batch: DataFrame, epoch: int) -> None:
        epochs[epoch] = rows_of(batch)

    def start() -> None:
        writer = writer_of(frame).outputMode(program.mode).foreachBatch(save)
        query = writer.option("checkpointLocation", str(path / "checkpoint")).trigger(availableNow=True).start()
        reasons.append(getattr(query, "reason", None))
        try:
            query.awaitTermination()
        finally:
            query.stop()

    for batches in zip(*program.feeds.values(), strict=True):
        for source, batch in zip(sources.values(), batches, strict=True):
            source.add([batch])
        if program.runs:
            start()
    if not program.runs:
        start()
    return Outcome(_told(program, [epochs[number] for number in sorted(epochs)]), reasons[0])


def _told(program: Program, epochs: Sequence[Rows]) -> Rows:
    """What a reader of the sink knows in the end, in any order."""
    head = epochs[0][0]
    if program.mode == "complete":
        rows = epochs[-1][1:]
    elif program.keys:
        names = [text.split()[1] for text in head]
        places = [names.index(key) for key in program.keys]
        rows = list({str([row[at] for at in places]): row for epoch in epochs for row in epoch[1:]}.values())
    else:
        rows = [row for epoch in epochs for row in epoch[1:]]
    return [head, *sorted(rows, key=str)]
