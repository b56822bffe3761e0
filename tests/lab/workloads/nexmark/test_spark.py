"""Plain Spark gives the oracle's answers: as a stream of a few batches, and at once on rows full of ties and edges."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.lab.nexmark_rows import house_rows
from support.lab.nexmark_run import run
from support.lab.same_rows import same_rows
from tailrace.lab.workloads.nexmark.answers import ANSWERS, closed
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.files import Format, write_files
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries.registry import SPARK
from tailrace.lab.workloads.nexmark.queries.version import Impossible, Mode, Version

CONFIG = Config(
    seed=3,
    first_event_rate=250,
    next_event_rate=250,
    num_in_flight_auctions=20,
    num_active_people=30,
    hot_bidders_ratio=2,
    out_of_order_group_size=20,
)
"""Fourteen seconds of event time; auctions are open for less than three of them."""
EVENTS, EVENTS_A_FILE = 3_600, 1_200
PARAMS = Params(window_ms=3_000, slide_ms=1_500, gap_ms=900, watermark_delay_ms=100, auction_life_ms=4_000)

VERSIONS = {name: version for name, version in SPARK.items() if isinstance(version, Version)}
QUICK = ("q5", "q7", "q9-beam", "q11-median", "q19")


def test_every_query_has_a_version_or_a_reason() -> None:
    assert SPARK.keys() == ANSWERS.keys()
    for entry in SPARK.values():
        if isinstance(entry, Impossible):
            assert entry.why
        else:
            assert bool(entry.keys) == (entry.mode is Mode.UPDATE)


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark") / "feed"
    write_files(CONFIG, folder, EVENTS, EVENTS_A_FILE)
    return folder


@pytest.mark.parametrize(
    "query", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in VERSIONS]
)
def test_streams_give_the_answer(spark: SparkSession, feed: Path, tmp_path: Path, query: str) -> None:
    version = VERSIONS[query]
    run_result = run(spark, version, feed, tmp_path / "checkpoint", PARAMS)
    expected = answer(query, feed, PARAMS)
    assert run_result.late_rows == 0
    if version.closes_by is not None:
        complete = expected.num_rows
        expected = closed(expected, run_result.watermark_ms - version.holds_back_ms(PARAMS), version.closes_by)
        assert 0 < expected.num_rows < complete, "some windows are closed, some are not"
    same_rows(run_result.rows, expected)


def test_json_is_read_as_parquet_is(spark: SparkSession, tmp_path: Path) -> None:
    write_files(CONFIG, tmp_path / "feed", 500, 500, format=Format.JSON)
    run_result = run(spark, VERSIONS["q20"], tmp_path / "feed", tmp_path / "checkpoint", PARAMS, Format.JSON)
    same_rows(run_result.rows, answer("q20", tmp_path / "feed", PARAMS))


@pytest.mark.parametrize(
    "query",
    [pytest.param(name, marks=() if name in ("q7-session", "q9", "q18") else pytest.mark.long) for name in VERSIONS],
)
def test_ties_and_edges(spark: SparkSession, query: str) -> None:
    auctions = [(0, 4, 1, 10, 5), (3, 1, 2, 10, 6), (3, 6, 3, 11, 5), (12, 2, 4, 10, 9)]
    bids = [
        (time, 1 + time % 4, 1 + place, (5, 9, 9, 6)[(time + place) % 4]) for time in range(16) for place in (0, 0, 1)
    ]
    bids += [(time, 1, 3, 7) for time in (0, 3, 5, 8, 8, 11)]  # gaps of exactly three, and less
    table = house_rows(auctions, [bid for bid in bids if bid[2] != 2 or bid[0] % 5])
    params = Params(window_ms=4, slide_ms=2, gap_ms=3, top=3, side_rows=3)
    found = VERSIONS[query].build(spark.createDataFrame(table), params).toArrow()
    same_rows(VERSIONS[query].finish(found, params), answer(query, table, params))
