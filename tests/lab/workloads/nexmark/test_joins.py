"""Tailrace's joins give NEXMark's answers: on several seeds, in and out of order, on rows full of ties and edges."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.draw import drawn as drawn_cases
from support.lab.nexmark_rows import house_rows
from support.lab.nexmark_run import JOINS, run, watermark_ms
from support.lab.same_rows import same_rows
from tailrace.lab.workloads.nexmark.answers import closed
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.files import write_files
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params, side_table
from tailrace.lab.workloads.nexmark.queries.join_functions import gains, winners
from tailrace.lab.workloads.nexmark.queries.registry import TAILRACE
from tailrace.lab.workloads.nexmark.queries.version import Mode, Version
from tailrace.lab.workloads.nexmark.queries.views import bids

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
CONFIG = Config(first_event_rate=250, next_event_rate=250, num_in_flight_auctions=20, num_active_people=30)
EVENTS, EVENTS_A_FILE = 3_600, 600
PARAMS = Params(window_ms=3_000, slide_ms=1_500, watermark_delay_ms=100, auction_life_ms=4_000)
FEEDS = [(seed, group) for seed in (1, 2, 3) for group in (1, 20)]
"""Seeds, and groups of events that are scattered."""
CASES = [(query, *feed) for query in JOINS for feed in FEEDS]


@pytest.mark.parametrize(("query", "seed", "group"), CASES if LONG else drawn_cases(CASES, __name__))
def test_joins_give_the_answer(spark: SparkSession, tmp_path: Path, query: str, seed: int, group: int) -> None:
    feed = tmp_path / "feed"
    write_files(replace(CONFIG, seed=seed, out_of_order_group_size=group), feed, EVENTS, EVENTS_A_FILE)
    check(spark, query, feed, tmp_path / "checkpoint", PARAMS, answer(query, feed, PARAMS))


def check(spark: SparkSession, query: str, feed: Path, checkpoint: Path, params: Params, expected: pa.Table) -> None:
    version = TAILRACE[query]
    assert isinstance(version, Version)
    run_result = run(spark, version, feed, checkpoint, params)
    assert run_result.late_rows == 0
    if version.closes_by is not None:
        mark = watermark_ms(query, feed, params) - version.holds_back_ms(params)
        expected = closed(expected, mark, version.closes_by)
    assert expected.num_rows > 1
    same_rows(run_result.rows, expected)


@pytest.mark.long
@pytest.mark.parametrize("query", JOINS)
def test_joins_of_ties_and_edges(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """Bids exactly at the begin and the end of auctions, equal prices, bids that come before their auction."""
    auctions = [
        (0, 4, 1, 10, 5),
        (3, 1, 2, 10, 6),
        (3, 6, 3, 11, 5),
        (12, 2, 1, 10, 9),
        (2, 9, 3, 10, 1),
        (1, 0, 1, 10, 1),
    ]
    offered = [
        (time, 1 + time % 6, 1 + place, (5, 9, 9, 6)[(time + place) % 4]) for time in range(16) for place in (0, 0, 1)
    ]
    offered += [(time, auction, 3, 9) for auction in range(1, 7) for time in (0, 1, 3, 4, 9, 11, 12, 14)]
    end = [(500, 100, 2, 10, 1)], [(620, 7, 1, 5)]  # one of each kind so late that all else has closed
    rows = house_rows([*auctions, *end[0]], [*offered, *end[1]]).to_pylist()
    person = next(row for row in rows if row["event_type"] == 0)
    rows.append({**person, "number": len(rows), "dateTime": person["dateTime"] + timedelta(milliseconds=700)})
    rng = random.Random(5)
    rows.sort(key=lambda row: (row["dateTime"] > person["dateTime"] + timedelta(milliseconds=100), rng.random()))
    table = pa.Table.from_pylist(rows, EVENT_SCHEMA)
    feed = tmp_path / "feed"
    feed.mkdir()
    for number, begin in enumerate(range(0, table.num_rows, 30)):
        path = feed / f"{number:03d}.parquet"
        pq.write_table(table.slice(begin, 30), path)
        os.utime(path, (number, number))  # Spark reads them in this order
    params = Params(window_ms=4, slide_ms=2, watermark_delay_ms=40, auction_life_ms=200)
    check(spark, query, feed, tmp_path / "checkpoint", params, answer(query, table, params))


@pytest.mark.long
def test_bids_meet_the_bounded_table(spark: SparkSession, tmp_path: Path) -> None:
    """Q13's join, with something stateful behind it: alone it is Spark's own query."""
    feed, params = tmp_path / "feed", replace(PARAMS, side_rows=7)
    write_files(CONFIG, feed, EVENTS, EVENTS_A_FILE)

    def build(events: object, params: Params) -> object:
        keyed = bids(events).select("price", (F.col("auction") % params.side_rows).alias("key"))
        met = tr.stream(keyed).join(spark.createDataFrame(side_table(params)), "key")
        return met.groupBy("value").agg(tr.count().alias("n"), tr.sum("price").alias("total"))

    run_result = run(spark, Version(build, Mode.UPDATE, ("value",)), feed, tmp_path / "checkpoint", params)
    wanted = answer("q13", feed, params).group_by("value").aggregate([([], "count_all"), ("price", "sum")])
    same_rows(run_result.rows, wanted.rename_columns({"count_all": "n", "price_sum": "total"}))


# The functions that run in servers


def test_gains_add_up_to_the_best_prices() -> None:
    rng = random.Random(3)
    best: dict[int, int] = {}
    kept: dict[int, int] = {}
    total = auctions = 0
    for _ in range(5):
        rows = [(rng.randrange(6), rng.randrange(100)) for _ in range(8)]
        ids = list({id for id, _ in rows})
        state = pa.table({"id": ids, "best": pa.array([kept.get(id) for id in ids], pa.int64())})
        came = pa.table({"id": [id for id, _ in rows], "category": [10] * 8, "price": [price for _, price in rows]})
        reported, changed = gains(came, state)
        kept |= dict(zip(changed["id"].to_pylist(), changed["best"].to_pylist(), strict=True))
        total += sum(reported["gain"].to_pylist())
        auctions += sum(reported["auctions"].to_pylist())
        for id, price in rows:
            best[id] = max(best.get(id, 0), price)
        assert (total, auctions, kept) == (sum(best.values()), len(best), best)


def test_of_equal_bids_the_first_wins_and_none_below_the_reserve() -> None:
    stamp = pa.timestamp("us", "UTC")
    rows = [(1, 9, 5, 0, 5), (1, 9, 4, 2, 5), (1, 9, 4, 1, 5), (1, 8, 0, 3, 5), (2, 4, 0, 4, 5), (3, 5, 0, 5, 5)]
    id, price, time, number, reserve = zip(*rows, strict=True)
    found = winners(
        pa.table(
            {"id": id, "price": price, "bid_dateTime": pa.array(time, stamp), "number": number, "reserve": reserve}
        )
    )
    assert found.select(["id", "number"]).to_pylist() == [{"id": 1, "number": 1}, {"id": 3, "number": 5}]
