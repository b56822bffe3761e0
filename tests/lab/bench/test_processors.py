"""The programs for stateful processors: with rows and with pandas frames they give what plain Python computes."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.lab import catalog, registry
from tailrace.lab.bench.options import ProcessorsOptions
from tailrace.lab.bench.processors import run_processors
from tailrace.lab.registry import OURS, Settings
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.processors import programs
from tailrace.lab.workloads.processors.events import FEED, SCHEMA

catalog.load()

KEYS, ROWS, BATCHES = 40, 100, 5
Rows = list[tuple[int, ...]]
Batch = list[tuple[int, int, int]]
"""Rows of (key, value, milliseconds)."""


def by_key(batch: Batch) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    found = defaultdict(list)
    for key, value, ms in batch:
        found[key].append((value, ms))
    yield from found.items()


def counts(batches: list[Batch]) -> Iterator[Rows]:
    totals: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for key, rows in by_key(batch):
            n, total = totals.get(key, (0, 0))
            totals[key] = n + len(rows), total + sum(value for value, _ in rows)
        yield [(key, *totals[key]) for key, _ in by_key(batch)]


def sessions(batches: list[Batch]) -> Iterator[Rows]:
    """Timers come up by the watermark of the batch before, behind the key's own rows."""
    held: dict[int, tuple[int, int, int]] = {}
    watermark = 0
    for batch in batches:
        given: Rows = []
        for key, rows in by_key(batch):
            for ms in sorted(ms for _, ms in rows):
                n, begin, last = held.get(key, (0, ms, ms))
                if n and ms >= last + programs.SESSION_GAP_MS:
                    given.append((key, n, begin, last))
                    n, begin = 0, ms
                held[key] = n + 1, begin, ms
        for key, session in list(held.items()):
            if session[2] + programs.SESSION_GAP_MS <= watermark:
                given.append((key, *held.pop(key)))
        watermark = max(watermark, *(ms for _, _, ms in batch))
        yield given


def buffers(batches: list[Batch]) -> Iterator[Rows]:
    held: dict[int, list[int]] = defaultdict(list)
    for batch in batches:
        given: Rows = []
        for key, rows in by_key(batch):
            held[key] += [value for value, _ in rows]
            if len(held[key]) >= programs.BUFFER_ROWS:
                given.append((key, len(held[key]), sum(held.pop(key))))
        yield given


def maps(batches: list[Batch]) -> Iterator[Rows]:
    held: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for batch in batches:
        for key, rows in by_key(batch):
            held[key].update(programs.entry_of(value) for value, _ in rows)
        yield [(key, len(held[key]), held[key].total()) for key, _ in by_key(batch)]


MODELS: dict[str, Callable[[list[Batch]], Iterator[Rows]]] = {
    "count": counts,
    "session": sessions,
    "buffer": buffers,
    "maps": maps,
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [f"processor-{name}{form}" for name in MODELS for form in ("", "-pandas")])
def test_a_program_gives_what_plain_python_computes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    workload = registry.workload(name)
    settings = Settings(ROWS * BATCHES, ROWS, 1, workload.values([f"keys={KEYS}"]))
    batches: list[Batch] = []
    for number, tables in enumerate(workload.inputs(settings)):
        path = write_batch(tables[FEED], tmp_path / "events", f"{number:06d}", 1)
        os.utime(path, (number, number))  # Spark reads them in this order
        batches.append(list(zip(*(tables[FEED][column].to_pylist() for column in ("key", "value", "ms")), strict=True)))
    assert {len({key for key, _, _ in batch}) for batch in batches} == {KEYS}
    found: dict[int, Rows] = {}

    def save(rows: DataFrame, epoch: int) -> None:
        found[epoch] = sorted(tuple(row) for row in rows.collect())

    feed = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "events"))
    writer: Any = registry.query(workload, OURS)({FEED: feed}, settings.values)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("watermark", "spark")
    query = writer.foreachBatch(save).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    expected = [sorted(rows) for rows in MODELS[name.split("-")[1]](batches)]
    assert [found[epoch] for epoch in sorted(found)] == expected
    assert sum(map(len, expected)) > KEYS, "the test tells nothing"


@pytest.mark.long
def test_the_bench_compares_every_form(short_path: Path) -> None:
    options = ProcessorsOptions(programs=("session",), keys=50, rows=100, batches=2, warmup=2)
    result = run_processors(options, short_path, lambda what, done, steps: None)
    assert result["rows_checked"]["session"] > 0 and result["answers_equal"] is True
    medians = result["program_median_ms"]["session"]
    for name, peer, mine in (
        ("ratios", "spark-pandas", "tailrace-rows"),
        ("rows_ratios", "spark-rows", "tailrace-rows"),
        ("pandas_ratios", "spark-pandas", "tailrace-pandas"),
    ):
        assert result[name]["session"] == pytest.approx(medians[peer] / medians[mine], abs=1e-3)
