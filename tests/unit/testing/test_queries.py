"""Whole queries on rows of a test, without Spark: what they give batch by batch, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import tailrace as tr
from tailrace.errors import AnalysisError
from tailrace.testing import QueryTester

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BIDS = "auction bigint, price bigint, ts timestamp"
AUCTIONS = "auction bigint, name string, opened timestamp"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def bids(*rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Of (auction, price, seconds after noon)."""
    return [{"auction": a, "price": p, "ts": None if s is None else at(s)} for a, p, s in rows]


def by_window(stream: Any) -> Any:
    windows = stream.withWatermark("ts", "5 seconds").groupBy(tr.window("ts", "10 seconds"), "auction")
    return windows.agg(tr.count().alias("n"), tr.max("price").alias("top"))


def test_windows_late_rows_and_the_watermark() -> None:
    with QueryTester(by_window, BIDS) as tester:
        assert tester.watermark is None
        assert tester.batch(bids((1, 10, 1), (1, 30, 4), (2, 5, 12))) == []
        assert tester.watermark == at(7) and tester.rows_kept == {"aggregate": 2}
        closed = tester.batch(pa.Table.from_pylist(bids((1, 20, 9), (1, 7, 16), (None, 3, 3))))
        assert sorted((row["auction"] or 0, row["n"], row["top"]) for row in closed) == [(0, 1, 3), (1, 3, 30)]
        assert closed[0]["window"] == {"start": at(0), "end": at(10)}
        assert tester.batch(pd.DataFrame(bids((1, 2, 9.5), (3, 1, None)))) == []
        assert [(row["auction"], row["tailrace_reason"]) for row in tester.late_rows] == [
            (1, "late"),
            (3, "no event time"),
        ]
        assert tester.batch() == [] and tester.late_rows == []


def test_output_modes() -> None:
    def totals(stream: Any) -> Any:
        return stream.groupBy("auction").agg(tr.sum("price").alias("total"))

    first, second = bids((1, 10, 0), (2, 5, 0)), bids((1, 1, 0))
    with QueryTester(totals, BIDS, outputMode="update") as update:
        update.batch(first)
        assert update.batch(second) == [{"auction": 1, "total": 11}]
    with QueryTester(totals, BIDS, outputMode="complete") as complete:
        complete.batch(first)
        made = sorted(complete.batch(second), key=lambda row: row["auction"])
        assert made == [{"auction": 1, "total": 11}, {"auction": 2, "total": 5}]
    with pytest.raises(AnalysisError, match="append"):
        QueryTester(totals, BIDS)


def test_operators_in_a_chain() -> None:
    """The auction with the most bids of each minute: one operator's rows are the next one's input."""

    def busiest(stream: Any) -> Any:
        once = stream.withWatermark("ts", "0 seconds").dropDuplicates(["auction", "price", "ts"])
        counts = once.groupBy(tr.window("ts", "10 seconds"), "auction").agg(tr.count().alias("n"))
        return counts.groupBy(tr.window("window", "1 minute")).agg(tr.max("n").alias("most"), tr.sum("n").alias("all"))

    with QueryTester(busiest, BIDS) as tester:
        assert tester.batch(bids((1, 1, 1), (1, 1, 1), (1, 2, 3), (2, 1, 5), (1, 1, 15))) == []
        assert tester.batch(bids((9, 1, 59))) == []
        (row,) = tester.batch(bids((9, 1, 75)))
        assert (row["most"], row["all"], row["window"]["start"]) == (2, 5, at(0))


def test_two_streams() -> None:
    def joined(stream: Any, auctions: Any) -> Any:
        opened = auctions.withWatermark("opened", "0 seconds")
        return stream.withWatermark("ts", "0 seconds").join(
            opened, "auction", "left_outer", within=("-10 seconds", "0 seconds")
        )

    with QueryTester(joined, BIDS, AUCTIONS) as tester:
        opened = [{"auction": 1, "name": "ring", "opened": at(0)}]
        assert [(row["auction"], row["name"]) for row in tester.batch(bids((1, 5, 3), (2, 6, 4)), opened)] == [
            (1, "ring")
        ]
        assert tester.batch(bids((1, 8, 40))) == []  # the other stream holds the watermark back
        made = tester.batch((), [{"auction": 3, "name": None, "opened": at(50)}])
        assert [(row["auction"], row["name"]) for row in made] == [(2, None)]
        with pytest.raises(AnalysisError, match="rows of 3 streams, and the query reads 2"):
            tester.batch((), (), ())


def test_time_to_live_goes_by_the_time_of_the_test() -> None:
    def counts(stream: Any) -> Any:
        return stream.withStateTtl("1 minute", "processingTime").groupBy("auction").agg(tr.count().alias("n"))

    with QueryTester(counts, BIDS, outputMode="update") as tester:
        one = bids((1, 1, 0))
        given = [tester.batch(one, now=at(second))[0]["n"] for second in (0, 30, 80, 200)]
        assert given == [1, 2, 3, 1]


class Announced(StatefulProcessor):
    """Gives a key again five seconds after its first row."""

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self._handle.registerTimer(int(min(row.ts for row in rows).timestamp() * 1000) + 5000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(auction=key[0], up=expiredTimerInfo.getExpiryTimeInMs())


def test_a_processor_within_a_query() -> None:
    def announced(stream: Any) -> Any:
        timed = stream.withWatermark("ts", "0 seconds").dropDuplicates(["auction", "ts"])
        return timed.groupBy("auction").transformWithState(
            Announced(), "auction bigint, up bigint", "Append", "EventTime"
        )

    with QueryTester(announced, BIDS) as tester:
        tester.batch(bids((1, 1, 1), (2, 1, 4)))
        assert tester.batch(bids((3, 1, 7))) == [{"auction": 1, "up": int(at(6).timestamp() * 1000)}]


def test_a_batch_that_fails_leaves_all_as_it_was() -> None:
    def totals(stream: Any) -> Any:
        return stream.groupBy("auction").agg(tr.sum("price").alias("total"))

    most = 2**63 - 1
    with QueryTester(totals, BIDS, outputMode="update") as tester:
        tester.batch(bids((1, most, 0), (2, 1, 0)))
        with pytest.raises(tr.SumOverflowError):
            tester.batch(bids((2, 5, 0), (1, 1, 0)))
        assert tester.batch(bids((2, 1, 0))) == [{"auction": 2, "total": 2}]
    with QueryTester(totals, BIDS, outputMode="update", ansi=False) as wrapping:
        wrapping.batch(bids((1, most, 0)))
        assert wrapping.batch(bids((1, 1, 0))) == [{"auction": 1, "total": -(2**63)}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (lambda stream: by_window(stream.where("price > 1")), r"where.*Spark does this"),
        (lambda stream: by_window(stream).where("n > 1"), r"where.*Spark does this"),
        (lambda stream: stream, "nothing stateful"),
        (lambda stream: by_window(stream).writeStream, "from streams to a stream"),
    ],
)
def test_refused(query: Any, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        QueryTester(query, BIDS)
