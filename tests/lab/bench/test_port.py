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
from tailrace.spark.plan_reader.reader import read_plan
from tailrace.spark.plan_reader.writer import PlainWriter

catalog.load()

ROWS, BATCHES = 300, 6
SMALL: Mapping[str, tuple[str, ...]] = {
    "keyed-sums": ("keys=100",),
    "bids-window": ("auctions=20",),
    "ysb": ("ads=100", "rate=50"),
    **dict.fromkeys(("lr2", "lr4", "cm1", "cm2"), ("rate=50",)),
}
SLOW_EVENTS = ("rate=50",)
"""Of NEXMark: six seconds a batch, so that windows of ten end."""
_EVENT_TIME_GROUPS = "groups by the event time itself"
_STRUCTS = "of a struct<.* is not supported"
UNREAD = {
    "nexmark-q4-beam": _EVENT_TIME_GROUPS,
    **dict.fromkeys(
        ("nexmark-q5", "nexmark-q5-append", "nexmark-q7", "nexmark-q7-beam", "nexmark-q7-session"), _STRUCTS
    ),
    "nexmark-q8": "a window of rows that no operator has grouped",
    **dict.fromkeys(("nexmark-q9", "nexmark-q9-beam"), _EVENT_TIME_GROUPS),
    **dict.fromkeys(("nexmark-q18", "nexmark-q18-json"), _STRUCTS),
    **dict.fromkeys(("nexmark-q19", "nexmark-q19-json"), "no aggregate function that is equal to Spark's MaxMinByK"),
}
"""Those that run on Spark, and why."""
READ = [one.name for one in port.portable() if one.name not in UNREAD]


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
@pytest.mark.parametrize("name", READ)
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


def test_what_is_not_read_says_why(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tr.enable(spark)
    try:
        for name, why in UNREAD.items():
            workload = registry.workload(name)
            for feed in workload.feeds:
                (tmp_path / feed).mkdir(exist_ok=True)
            writer = registry.query(workload, PLAIN)(feeds_of(workload, spark, tmp_path), workload.values())
            assert isinstance(writer, PlainWriter)
            with pytest.raises(tr.AnalysisError, match=why):
                read_plan(writer._frame)
    finally:
        tr.disable(spark)


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
