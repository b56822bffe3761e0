"""Tailrace gives the oracle's answers: over generated events out of order, and over rows full of ties and edges."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.lab.nexmark_rows import bid_rows
from support.lab.nexmark_run import JOINS, run, watermark_ms
from support.lab.same_rows import same_rows
from tailrace.lab.workloads.nexmark.answers import ANSWERS, closed
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.files import write_files
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries.registry import TAILRACE
from tailrace.lab.workloads.nexmark.queries.version import Impossible, Mode, Version

CONFIG = Config(
    seed=5,
    first_event_rate=250,
    next_event_rate=250,
    num_in_flight_auctions=20,
    num_active_people=30,
    hot_bidders_ratio=2,
    out_of_order_group_size=20,
)
"""Fourteen seconds of event time."""
EVENTS, EVENTS_A_FILE = 3_600, 600
PARAMS = Params(window_ms=3_000, slide_ms=1_500, gap_ms=900, watermark_delay_ms=100)
TIES = Params(window_ms=4, slide_ms=2, gap_ms=3, watermark_delay_ms=5)

VERSIONS = {name: version for name, version in TAILRACE.items() if isinstance(version, Version)}
QUICK = ("q5", "q7")
ON_ARRIVAL = ("q20-kept",)
"""Where a bid must come after its auction."""
OF_BIDS = [name for name in VERSIONS if name not in (*JOINS, *ON_ARRIVAL)]


def test_every_query_has_a_version_or_a_reason() -> None:
    assert TAILRACE.keys() == ANSWERS.keys()
    for entry in TAILRACE.values():
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
    if query in ON_ARRIVAL:
        feed = tmp_path / "feed"
        write_files(replace(CONFIG, auction_id_lead=0), feed, EVENTS, EVENTS_A_FILE)
    check(spark, query, feed, tmp_path / "checkpoint", PARAMS, answer(query, feed, PARAMS))


def check(spark: SparkSession, query: str, feed: Path, checkpoint: Path, params: Params, expected: pa.Table) -> None:
    version = VERSIONS[query]
    run_result = run(spark, version, feed, checkpoint, params)
    assert run_result.late_rows == 0
    if version.closes_by is not None:
        complete = expected.num_rows
        expected = closed(
            expected, watermark_ms(query, feed, params) - version.holds_back_ms(params), version.closes_by
        )
        assert 0 < expected.num_rows < complete, "some windows are closed, some are not"
    same_rows(run_result.rows, expected)


@pytest.mark.parametrize(
    "query", [pytest.param(name, marks=() if name in ("q7-session", "q18") else pytest.mark.long) for name in OF_BIDS]
)
def test_ties_and_edges(spark: SparkSession, tmp_path: Path, query: str) -> None:
    # Several bids of a bidder at one time on one auction: the later one is the higher, the lower, or as high.
    bids = [
        (time, 1 + time % 4, bidder, price)
        for time in range(24)
        for bidder, price in ((1, 9 - time % 3), (1, 5 + time % 4), (2, 7))
    ]
    bids += [(time, 1, 3, 7) for time in (0, 3, 5, 8, 8, 11, 15)]  # gaps of exactly three, and less
    first = 1_000_000  # far from 0, so that no window begins before the epoch
    # Every fifth bid comes five late.
    order = sorted(range(len(bids)), key=lambda place: (bids[place][0] + (5 if place % 5 == 0 else 0), place))
    table = bid_rows(*[(first + bids[place][0], *bids[place][1:]) for place in order])
    feed = tmp_path / "feed"
    feed.mkdir()
    cuts = range(0, table.num_rows, 10)
    for number, begin in enumerate(cuts):
        path = feed / f"{number:03d}.parquet"
        pq.write_table(table.slice(begin, 10), path)
        os.utime(path, (number, number))  # Spark reads them in this order
    check(spark, query, feed, tmp_path / "checkpoint", TIES, answer(query, table, TIES))
