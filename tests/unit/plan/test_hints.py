"""Which operators take prefetch hints, from which columns of the source; and streams with transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from tailrace.api.options import HintSource, HintTuning, Options, parse_options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import count_window, session_window, window
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.windows.panes import Panes
from tailrace.plan.hints import hint_specs
from tailrace.plan.physical import plan_relation
from tailrace.types import Field

NAMES = ("ts", "auction", "price", "channel", "a.b")


def bids(runtime: RecordingRuntime | None = None) -> Stream:
    schema = tuple(field for field in SCHEMA if field.name in NAMES)
    return Stream(schema, schema, runtime or RecordingRuntime())


timed = bids().withWatermark("ts", "5 seconds")


@pytest.mark.parametrize(
    ("stream", "keys"),
    [
        (bids().groupBy("auction").agg(tr.count()), [("auction",)]),
        (timed.groupBy("auction", "channel").agg(tr.sum("price")), [("auction", "channel")]),
        (bids().groupBy().agg(tr.count()), [None]),  # one key
        (timed.groupBy(window("ts", "1 minute"), "auction").agg(tr.count()), [("auction",)]),
        (timed.groupBy(session_window("ts", "1 minute"), "auction").agg(tr.count()), [("auction",)]),
        (timed.groupBy(window("ts", "1 minute")).agg(tr.count()), [None]),  # one key
        (timed.groupBy(window("ts", "1 minute"), "auction").agg(tr.median("price")), [None]),  # all rows are kept
        (timed.groupBy(count_window(10), "auction").agg(tr.count()), [("auction",)]),
        (timed.groupBy(window("ts", "1 minute"), "auction").topN(3, "price"), [("auction",)]),
        (timed.dropDuplicates(["channel"]), [("channel",)]),
        (timed.dropDuplicates(["channel", "ts"]), [None]),  # by event time, in panes
        # In a chain: where the key comes through as it was.
        (bids().dropDuplicates(["channel"]).groupBy("auction").agg(tr.count()), [("channel",), ("auction",)]),
        (
            timed.groupBy(window("ts", "1 minute"), "auction")
            .agg(tr.count().alias("n"))
            .groupBy("auction")
            .agg(tr.sum("n")),
            [("auction",), ("auction",)],
        ),
        (
            timed.groupBy(window("ts", "1 minute"), "auction").agg(tr.count().alias("n")).groupBy("n").agg(tr.count()),
            [("auction",), None],
        ),
        # Windows behind another operator: where rows still have the source's event time.
        (
            timed.dropDuplicates(["channel"]).groupBy(window("ts", "1 minute"), "auction").agg(tr.count()),
            [("channel",), ("auction",)],
        ),
        (
            timed.groupBy(window("ts", "1 minute"), "auction")
            .agg(tr.count().alias("n"))
            .groupBy("window", "auction")
            .agg(tr.sum("n")),
            [("auction",), None],
        ),
        (bids().groupBy("a.b").agg(tr.count()), [("a.b",)]),
    ],
)
def test_operators_that_take_hints(stream: Stream, keys: list[tuple[str, ...] | None]) -> None:
    assert stream.relation is not None
    mode = OutputMode.UPDATE if stream.relation.refusal(OutputMode.UPDATE) is None else OutputMode.APPEND
    specs = hint_specs(plan_relation(stream.relation, mode, Options()))
    assert [None if spec is None else tuple(key.name for key in spec.keys) for spec in specs] == keys


def test_panes_are_those_of_the_state() -> None:
    def panes(stream: Stream) -> Panes | None:
        assert stream.relation is not None
        (spec,) = hint_specs(plan_relation(stream.relation, OutputMode.APPEND, Options()))
        assert spec is not None and spec.time is not None and spec.time.name == "ts"
        return spec.panes

    minute = Micros(60_000_000)
    assert panes(timed.groupBy(window("ts", "1 minute"), "auction").agg(tr.count())) == Panes(minute)
    sliding = window("ts", "1 minute", "25 seconds", "3 seconds")
    assert panes(timed.groupBy(sliding, "auction").agg(tr.count())) == Panes(Micros(25_000_000), 3_000_000, 10_000_000)
    assert panes(timed.groupBy(session_window("ts", "1 minute"), "auction").agg(tr.count())) == Panes(minute)
    assert panes(timed.groupBy(count_window(10), "auction").agg(tr.count())) is None


def test_options_of_hints() -> None:
    given = {"lookahead": "staging", "hintMargin": "5 milliseconds", "hintWaste": "0.25", "sketchMemory": "64KB"}
    found = parse_options(given).hints
    assert found == HintTuning(HintSource.STAGING, 64 << 10, Micros(5000), 0.25)
    assert parse_options({}).hints == HintTuning()
    for name, wrong in [("sketchMemory", "1000"), ("hintWaste", "2"), ("lookahead", "source")]:
        with pytest.raises(AnalysisError, match=name):
            parse_options({name: wrong})


class Transforming(RecordingRuntime):
    """DataFrames are lists of columns."""

    def transformed(
        self, source: object, function: Callable[..., Any], time: str | None, label: str
    ) -> tuple[object, tuple[Field, ...], str | None]:
        made = function(source)
        return made, tuple(made), time


def test_transforms_change_the_columns() -> None:
    first = bids(Transforming()).transform(lambda columns: columns[:3])
    assert first.columns == ["ts", "auction", "price"]
    second = first.withWatermark("ts", "1 second").transform(
        lambda columns, n, *, last: columns[:n] + columns[last:], 1, last=-1
    )
    assert second.columns == ["ts", "price"] and second.watermark is not None
    with pytest.raises(AnalysisError, match="watermark is on 'ts'"):
        second.transform(lambda columns: columns[1:])
