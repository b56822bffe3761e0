"""Queries that are written for Spark run on Tailrace as they are, and give the rows of those written by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from tailrace.lab import catalog, registry
from tailrace.lab.bench import port
from tailrace.lab.bench.options import PLAIN, PortOptions
from tailrace.lab.bench.sinks import SINKS
from tailrace.lab.registry import OURS, Settings, UnknownNameError, Workload
from tailrace.lab.run import check_answer
from tailrace.lab.workloads.events import write_batch

catalog.load()

ROWS, BATCHES = 300, 6
SMALL: Mapping[str, tuple[str, ...]] = {
    "keyed-sums": ("keys=100",),
    "bids-window": ("auctions=20",),
    "ysb": ("ads=100", "rate=50"),
    **dict.fromkeys(("lr2", "lr4", "cm1", "cm2"), ("rate=50",)),
    # Auctions that close while there are events.
    **dict.fromkeys(
        ("nexmark-q4-beam", "nexmark-q9", "nexmark-q9-beam"), ("rate=50", "auctions_in_flight=10", "auction_lead=2")
    ),
}
SLOW_EVENTS = ("rate=50",)
"""Of NEXMark: six seconds a batch, so that windows of ten end."""
NAMES = [one.name for one in port.portable()]


def feeds_of(workload: Workload, spark: SparkSession, folder: Path) -> dict[str, object]:
    return {
        name: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in workload.feeds.items()
    }


def make_files(workload: Workload, settings: Settings, folder: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {name: [] for name in workload.feeds}
    for number, batch in enumerate(workload.inputs(settings)):
        for name, table in batch.items():
            files[name].append(write_batch(table, folder / name, f"{number:06d}", 1))
    return files


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", NAMES)
def test_both_queries_give_the_oracles_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    workload = registry.workload(name)
    settings = Settings(ROWS * BATCHES, ROWS, 1, workload.values(SMALL.get(name, SLOW_EVENTS)))
    files = make_files(workload, settings, tmp_path / "events")
    with workload.serving(settings) as environment:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        for engine in (OURS, PLAIN):
            out = tmp_path / engine
            if engine == PLAIN:
                tr.enable(spark)
            try:
                query = registry.query(workload, engine)
                writer = query(feeds_of(workload, spark, tmp_path / "events"), settings.values)
                rest = registry.own(workload.rests, engine)
                writer = SINKS["parquet"](
                    writer, out, None if rest is None else lambda rows, rest=rest: rest(rows, settings.values)
                )
                writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{engine}"))
                running = writer.trigger(availableNow=True).start()
            finally:
                tr.disable(spark)
            try:
                running.awaitTermination()
            finally:
                running.stop()
            assert getattr(running, "reason", None) is None
            assert check_answer(workload, engine, settings, files, out) > 0, "the test tells nothing"
            shutil.rmtree(out)


def test_a_workload_without_both_queries_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="nexmark-q0 has no query of its own for Tailrace and for Spark"):
        port.chosen(PortOptions(queries=("nexmark-q0",)))


@pytest.mark.long
def test_the_bench_gives_a_ratio_for_each_query(short_path: Path) -> None:
    options = PortOptions(queries=("keyed-sums", "nexmark-q13"), rows=2_000, warmup=1, turns=1, turn=2)
    result = port.run_port(options, short_path, lambda what, done, steps: None)
    assert result["failed"] == {} and result["answers_equal"] is True
    assert set(result["ratios"]) == {"keyed-sums", "nexmark-q13"}
    assert result["on_spark"] == {}
    assert all(rows > 0 for rows in result["rows_checked"].values())
