"""Sessions from the interface to the plan: what is kept, in which store, what is said, what is refused."""

from __future__ import annotations

import pytest

import tailrace as tr
from support.bids import bids
from tailrace.api.options import parse_options
from tailrace.api.relations import OutputMode
from tailrace.api.windows import session_window, window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.pattern import Pattern
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import plan_relation
from tailrace.state.layout import Merge

MARKED = bids().withWatermark("ts", "10 seconds")


def plan_of(stream, mode=OutputMode.APPEND, **options):
    return plan_relation(stream.source, mode, parse_options(options))


def test_the_bounds_of_a_record_come_first_and_are_kept_once():
    stream = MARKED.groupBy("auction", session_window("ts", "5 seconds")).agg(tr.count(), tr.max("ts"), tr.min("ts"))
    assert stream.columns == ["auction", "session_window", "count(1)", "max(ts)", "min(ts)"]
    operator = plan_of(stream).operator
    assert [(a.merge, a.column) for a in operator.accumulators] == [
        (Merge.MIN, "ts"),
        (Merge.MAX, "ts"),
        (Merge.ADD, None),
    ]
    assert [output.accumulators for output in operator.outputs] == [(2,), (1,), (0,)]
    assert (operator.window, operator.watermarked) == (SessionWindowSpec(5_000_000), True)
    assert AggregateSpec.from_json(operator.to_json()) == operator


@pytest.mark.parametrize(("aggregate", "pattern"), [(tr.sum("price"), Pattern.RMW), (tr.median("price"), Pattern.AUR)])
def test_the_store_follows_from_the_aggregates(aggregate, pattern):
    plan = plan_of(MARKED.groupBy(session_window("ts", "5 seconds").alias("visit")).agg(aggregate))
    assert plan.stages[0].store.pattern is pattern
    text = explain(plan)
    assert f"store {pattern}: " in text
    assert "window sessions of rows at most 5 seconds apart, over ts, in column visit" in text
    assert "sessions end key by key" in text


def test_another_gap_is_another_query():
    old, new = (
        fingerprint(plan_of(MARKED.groupBy(session_window("ts", gap), "auction").count()))
        for gap in ("5 seconds", "6 seconds")
    )
    assert differences(old, old) == []
    assert differences(old, new) == [
        "window: was sessions of rows at most 5 seconds apart, is now sessions of rows at most 6 seconds apart"
    ]
    tumbling = fingerprint(
        plan_of(MARKED.groupBy(window("ts", "5 seconds").alias("session_window"), "auction").count())
    )
    assert any(said.startswith("window: ") for said in differences(old, tumbling))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: session_window("ts", "0 seconds"), ("session_window: gapDuration", "zero")),
        (lambda: session_window("ts", "-1 second"), ("session_window: gapDuration", "negative")),
        (lambda: session_window(5, "1 second"), ("session_window: timeColumn", "int")),
        (lambda: session_window("ts", "1 second").alias(""), ("alias",)),
        (lambda: bids().groupBy(session_window("price", "1 second")), ("session_window", "price", "timestamp")),
        (lambda: bids().groupBy(session_window("tss", "1 second")), ("'tss'", "Did you mean 'ts'?")),
        (lambda: MARKED.groupBy(session_window("ntz", "1 second")), ("session_window", "'ntz'", "same column")),
        (lambda: bids().groupBy(session_window("ts", "1 second"), window("ts", "1 second")), ("one window",)),
        (
            lambda: MARKED.groupBy(session_window("ts", "1 second"), "auction").count().groupBy("session_window"),
            ("bounds of its own", "tailrace.window('session_window'"),
        ),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(AnalysisError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_append_needs_a_watermark():
    stream = bids().groupBy(session_window("ts", "1 second"), "auction").count()
    with pytest.raises(AnalysisError, match="withWatermark"):
        stream.writeStream.outputMode("append").format("noop").option("checkpointLocation", "/data/q").start()
    assert not plan_of(stream, OutputMode.UPDATE).operator.watermarked


@pytest.mark.parametrize("aggregate", [tr.sum("price").alias("total"), tr.median("price").alias("total")])
def test_a_changelog_has_one_column_more(aggregate):
    stream = MARKED.groupBy(session_window("ts", "1 second"), "auction").agg(aggregate)
    plain, changes = (plan_of(stream, OutputMode.UPDATE, changelog=value) for value in ("off", "on"))
    assert [field.name for field in changes.last.emits] == [
        *(field.name for field in plain.last.emits),
        "_change_type",
    ]
    assert "output _change_type: string" in explain(changes) and "_change_type" not in explain(plain)
    assert AggregateSpec.from_json(changes.last.to_json()) == changes.last
    assert differences(fingerprint(plain), fingerprint(changes)), "rows given before lack what they would be found by"


@pytest.mark.parametrize(
    ("stream", "mode", "words"),
    [
        (MARKED.groupBy(session_window("ts", "1 second")).count(), OutputMode.APPEND, ("changelog", "update")),
        (MARKED.groupBy(window("ts", "1 second")).count(), OutputMode.UPDATE, ("changelog", "session_window")),
        (MARKED.groupBy("auction").count(), OutputMode.UPDATE, ("changelog", "replaced by rows of the same group")),
        (
            MARKED.groupBy(session_window("ts", "1 second")).topN(3, "price", columns=["price"]),
            OutputMode.UPDATE,
            ("changelog", "aggregates over sessions"),
        ),
        (
            MARKED.groupBy(session_window("ts", "1 second")).agg(tr.count().alias("_change_type")),
            OutputMode.UPDATE,
            ("changelog", "'_change_type'", "alias"),
        ),
    ],
)
def test_a_changelog_of_anything_else_is_refused(stream, mode, words):
    with pytest.raises(AnalysisError) as caught:
        plan_of(stream, mode, changelog="on")
    for word in words:
        assert word in str(caught.value)
