"""Count windows, custom windows, holistic aggregates without a window, and stores that a user chooses: from the
interface to the plan, what is said of them and what is refused.
"""

from __future__ import annotations

import json
import pickle
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest

import tailrace as tr
from support.bids import bids
from support.window_streams import FUNCTIONS, MARKED, WINDOWS, days, grouped, plan_of, soon
from tailrace.api.options import Options, parse_options, split_options
from tailrace.api.relations import OutputMode
from tailrace.api.windows import count_window, custom_window, window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import AccumulatorInput
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.pattern import Pattern
from tailrace.operators.registry import spec_from_json
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import plan_relation
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, Field

# Windows by count


def test_a_window_by_count_is_a_number_and_needs_no_watermark():
    stream = bids().groupBy("auction", count_window(100).alias("hundred")).agg(tr.max("price"), tr.count())
    assert stream.columns == ["auction", "hundred", "max(price)", "count(1)"]
    assert stream.schema[1].type == BIGINT
    operator = plan_of(stream).operator
    assert [(a.merge, a.column) for a in operator.accumulators] == [(Merge.ADD, None), (Merge.MAX, "price")]
    assert [output.accumulators for output in operator.outputs] == [(1,), (0,)]
    assert (operator.window, operator.watermarked, operator.time_column) == (CountWindowSpec(100), False, None)
    assert [row.name for row in operator.rows] == ["price"]
    assert AggregateSpec.from_json(operator.to_json()) == operator
    text = explain(plan_of(stream))
    assert "window every 100 rows of a key, its number in column hundred" in text
    assert "rows of an epoch count by price int" in text
    assert "one record a key" in text and "for ever without a time-to-live" in text


def test_windows_by_count_that_overlap_keep_panes_or_rows():
    stream = bids().groupBy("auction", count_window(100, 10)).agg(tr.max("price"))
    operator = plan_of(stream).operator
    assert (operator.window, operator.pattern) == (CountWindowSpec(100, 10), "RMW")
    assert AggregateSpec.from_json(operator.to_json()) == operator
    text = explain(plan_of(stream))
    assert "window 100 rows of a key, one every 10, its number in column window" in text
    assert "store RMW: the aggregates are incremental and windows by count overlap" in text
    assert plan_of(bids().groupBy(count_window(10, 10)).agg(tr.count())).operator.window == CountWindowSpec(10)
    relation = explain(plan_of(bids().groupBy(count_window(9, 4)).store("AUR").agg(tr.count())))
    assert "store AUR, chosen by you: windows by count overlap" in relation
    complete = bids().groupBy(count_window(9, 4)).agg(tr.median("price"))
    assert "store AUR: windows by count overlap" in explain(plan_of(complete))
    with pytest.raises(AnalysisError, match="end key by key"):
        plan_of(bids().groupBy(count_window(9, 4)).store("AAR").agg(tr.count()))
    with pytest.raises(AnalysisError, match=r"median.* needs every row"):
        plan_of(bids().groupBy(count_window(9, 4)).store("RMW").agg(tr.median("price")))
    was, now = (fingerprint(plan_of(bids().groupBy(count_window(9, s)).agg(tr.median("price")))) for s in (4, 9))
    assert differences(was, now) == ["window: was 9 rows of a key, one every 4, is now every 9 rows of a key"]


def test_keys_of_windows_by_count_may_be_forgotten():
    for mode, watermarked in (("eventTime", True), ("processingTime", False)):
        forgetting = MARKED.withStateTtl("1 hour", mode)
        plan = plan_of(forgetting.groupBy("auction", count_window(10)).agg(tr.max("ts").alias("latest")))
        spec = plan.operator
        assert spec.watermarked is spec.late_by_ttl is watermarked and not spec.window.in_time
        # The key's last update is not the largest time of a window's rows, whatever the clock.
        assert [one.input for one in spec.accumulators] == [
            AccumulatorInput.ONE,
            AccumulatorInput.STAMP,
            AccumulatorInput.VALUE,
        ]
        assert spec.outputs[0].accumulators == (2,)
        assert "the open window of a key that is forgotten is never given" in explain(plan)
        assert "time-to-live 1 hour in" in explain(plan)
        timed = plan_of(forgetting.groupBy("auction", count_window(10, eventTime="at")).agg(tr.count())).operator
        assert timed.watermarked and timed.window.in_time and not timed.late_by_ttl
        rows = plan_of(forgetting.groupBy("auction", count_window(10)).agg(tr.median("price"))).operator
        assert rows.pattern == "AUR" and rows.late_by_ttl is watermarked


def test_the_number_of_a_window_is_a_column_like_any_other():
    first = bids().groupBy("auction", count_window(10)).agg(tr.sum("price").alias("total"))
    again = first.groupBy("window").agg(tr.max("total"), tr.count("window"))
    stages = plan_of(again, OutputMode.UPDATE).stages
    assert [stage.operator.emits[0] for stage in stages][1] == Field("window", BIGINT)
    writer = first.writeStream.format("csv").partitionBy("window").option("checkpointLocation", "/data/q")
    assert writer.start("/data/out").sink.partition_by == ("window",)


def test_an_event_time_makes_rows_late_and_lets_windows_follow():
    first = MARKED.groupBy("auction", count_window(10, eventTime="at")).agg(tr.count().alias("n"))
    assert first.columns == ["auction", "window", "n", "at"]
    assert (first.watermark.column.name, first.watermark.delay) == ("at", 0)
    then = first.groupBy(window("at", "1 hour")).agg(tr.sum("n"))
    one, two = (stage.operator for stage in plan_of(then).stages)
    assert one.watermarked and two.time_column.name == "at"
    unaware = MARKED.groupBy("auction", count_window(10)).agg(tr.count().alias("n"))
    assert unaware.watermark is None and not plan_of(unaware).operator.watermarked
    assert "windows by count: no row is late and a window goes when it is full" in explain(plan_of(unaware))
    both = first.groupBy("auction", count_window(10, eventTime="later")).agg(tr.max("n"))
    assert both.watermark.column.name == "later"


# Windows of a user's own


def test_a_users_windows_travel_to_tasks_and_their_estimates_do_not():
    stream = MARKED.groupBy(custom_window("TS", days, soon).alias("day"), "auction").agg(tr.median("price"))
    assert stream.columns == ["day", "auction", "median(price)"]
    operator = plan_of(stream).operator
    times = np.array([0, 86_400_000_001]).astype("datetime64[us]")
    assign, trigger = (pickle.loads(b64decode(code)) for code in (operator.window.assign, operator.window.trigger))
    assert assign(times)[0].tolist() == days(times)[0].tolist()
    assert trigger(None, None, times) is times
    for_tasks = spec_from_json(operator.for_tasks().to_json())
    assert for_tasks.window.assign == operator.window.assign and for_tasks.window.trigger is None
    assert operator.without_code().window.assign == ""
    assert spec_from_json(operator.to_json()) == operator
    text = explain(plan_of(stream))
    assert "window of your function, over ts, in column day" in text
    assert "a window is expected to be read as your estimate says" in text
    assert "store AUR: " in text and "in any order" in text


def test_a_function_of_windows_may_be_mended_and_an_estimate_given():
    old, new = (
        fingerprint(plan_of(MARKED.groupBy(one, "auction").count()))
        for one in (custom_window("ts", days), custom_window("ts", lambda times: days(times), soon))
    )
    assert differences(old, new) == []


def test_windows_follow_a_users_own_by_their_last_moment():
    first = MARKED.groupBy(custom_window("ts", days), "auction").agg(tr.count().alias("n"))
    then = first.groupBy(window("window", "7 days"), "auction").agg(tr.sum("n"))
    assert plan_of(then).stages[1].operator.time_column.name == "window"
    again = first.groupBy(custom_window("window", days)).agg(tr.sum("n"))
    assert not plan_of(again).stages[1].operator.takes_window_start


# What changes a query


def test_other_windows_and_other_stores_are_other_queries():
    def stored(relation):
        return json.loads(json.dumps(fingerprint(plan_of(relation.count()))))

    by_ten, by_five = (stored(MARKED.groupBy("auction", count_window(size))) for size in (10, 5))
    assert differences(by_ten, by_five) == ["window: was every 10 rows of a key, is now every 5 rows of a key"]
    custom, rows = stored(grouped("custom")), stored(grouped("custom", "AUR"))
    assert differences(custom, rows) == ["store: was RMW, is now AUR"]
    assert differences(custom, stored(grouped("custom", "RMW"))) == []
    assert any(said.startswith("window: ") for said in differences(custom, by_ten))
    for kind in ("tumbling", "session", "count", "custom"):
        operator = plan_of(grouped(kind).count()).operator
        assert AggregateSpec.from_json(operator.to_json()) == operator


# Stores

INCREMENTAL, WHOLE = tr.sum("price"), tr.median("price")
DEFAULT_TUNING = {
    ("tumbling", INCREMENTAL): "RMW",
    ("sliding", INCREMENTAL): "RMW",
    ("session", INCREMENTAL): "RMW",
    ("count", INCREMENTAL): "RMW",
    ("custom", INCREMENTAL): "RMW",
    ("global", INCREMENTAL): "RMW",
    ("tumbling", WHOLE): "AAR",
    ("sliding", WHOLE): "AAR",
    ("session", WHOLE): "AUR",
    ("count", WHOLE): "AUR",
    ("custom", WHOLE): "AUR",
    ("global", WHOLE): "AUR",
}
ALLOWED = {
    "tumbling": {"RMW", "AAR", "AUR"},
    "sliding": {"RMW", "AAR", "AUR"},
    "session": {"RMW", "AUR"},
    "count": {"RMW", "AUR"},
    "custom": {"RMW", "AAR", "AUR"},
    "global": {"RMW", "AUR"},
}


@pytest.mark.parametrize("aggregate", [INCREMENTAL, WHOLE], ids=["incremental", "whole group"])
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("store", [None, "RMW", "aar", " AUR "])
def test_the_store_is_the_usual_one_or_the_users_choice_where_it_is_right(kind, aggregate, store):
    stream = grouped(kind, store).agg(aggregate)
    usual = DEFAULT_TUNING[kind, aggregate]
    wanted = usual if store is None else store.strip().upper()
    right = wanted in ALLOWED[kind] and not (wanted == "RMW" and aggregate is WHOLE)
    mode = OutputMode.UPDATE if kind == "global" else OutputMode.APPEND
    if not right:
        with pytest.raises(AnalysisError, match=rf"store {wanted} cannot keep this: .*\. Without .* it is {usual}"):
            plan_of(stream, mode)
        return
    plan = plan_of(stream, mode)
    assert plan.stages[0].store.pattern is Pattern(wanted) is plan.operator.pattern
    chosen = "" if store is None else ", chosen by you"
    assert f"store {wanted}{chosen}: {plan.stages[0].store.reason}" in explain(plan)
    assert plan.operator.sends_rows == (wanted != "RMW" or kind == "count")
    assert ("combine off: the operator needs every row" in explain(plan)) == plan.operator.sends_rows


def test_sets_in_overlapping_windows_by_count_are_not_kept_in_records():
    def stream(store):
        windows = MARKED.groupBy("auction", count_window(10, 5))
        return (windows if store is None else windows.store(store)).agg(tr.count_distinct("price"))

    assert plan_of(stream(None)).operator.pattern is Pattern.AUR
    with pytest.raises(AnalysisError, match=r"store RMW cannot keep this: sets, .* Without .* it is AUR"):
        plan_of(stream("RMW"))


def test_a_refused_store_names_what_it_cannot_keep():
    with pytest.raises(AnalysisError, match=r"and middle needs every row of its group\. Without .* it is AAR"):
        plan_of(grouped("tumbling", "RMW").agg(tr.count(), tr.median("price").alias("middle")))


def test_holistic_aggregates_without_a_window_grow_for_ever_and_say_so():
    stream = MARKED.groupBy("auction").agg(tr.median("price"), tr.collect_list("price"), tr.top_k("price", 3))
    assert "the state grows with every row" in explain(plan_of(stream, OutputMode.UPDATE))
    with pytest.raises(AnalysisError, match="append"):
        stream.writeStream.format("noop").option("checkpointLocation", "/data/q").start()
    with pytest.raises(AnalysisError, match=r"collect_list is by event time .* no event time"):
        bids().groupBy("auction").agg(tr.collect_list("price"))


# Options


def test_how_stores_use_the_disk_is_an_option_that_may_change():
    ours, rest = split_options({"READBATCHRATIO": "0.1", "maxSpaceAmplification": "2"})
    assert rest == {}
    options = parse_options(ours)
    assert (options.read_batch_ratio, options.max_space_amplification) == (0.1, 2.0)
    plan = plan_relation(grouped("session").agg(WHOLE).source, OutputMode.APPEND, options)
    assert "disk for the rest: 0.1 of its lists is read ahead, compacted beyond 2 times the bytes needed" in explain(
        plan
    )
    usual = replace(plan, options=Options())
    assert differences(fingerprint(plan), fingerprint(usual)) == []


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session", "custom", "global"])
def test_complete_drops_nothing(kind):
    """Rows are late for sessions alone, as in Spark."""
    groups = [] if WINDOWS[kind] is None else [WINDOWS[kind]]
    stream = bids().withWatermark("ts", "1 second").groupBy(*groups, "auction").agg(tr.count())
    plan = plan_of(stream, OutputMode.COMPLETE)
    spec = plan.operator
    assert plan.output_mode is OutputMode.COMPLETE and spec.complete and not spec.closes and not spec.emit_changed
    assert spec.watermarked is (kind == "session")
    text = explain(plan)
    assert "output mode complete: the rows of all groups, each epoch" in text
    assert "an epoch costs what the state does" in text
    assert ("rows are late by it, and nothing is dropped" if kind == "session" else "state is never dropped") in text
    changed = differences(fingerprint(plan), fingerprint(plan_of(stream, OutputMode.UPDATE)))
    assert "output mode: was complete, is now update" in changed
    assert "cannot be recorded" in spec.why_not_recordable()


def test_complete_is_of_the_last_operator():
    counts = bids().withWatermark("ts", "1 second").groupBy(WINDOWS["tumbling"], "auction").count()
    first, second = plan_of(counts.groupBy("auction").agg(tr.max("count")), OutputMode.COMPLETE).stages
    assert first.operator.closes and not first.operator.complete and second.operator.complete


@pytest.mark.parametrize("kind", ["session", "count", "custom", "tumbling"])
def test_functions_of_every_window(kind):
    grouped_by_key = FUNCTIONS.groupBy(WINDOWS[kind], "auction")
    per_key = kind in ("custom", "tumbling")
    made = grouped_by_key.applyInWindow(days, "n bigint", columns=["price"], perKey=per_key)
    operator = plan_of(made).operator
    name = WINDOWS[kind].name
    assert made.columns == [name, "n"] == [field.name for field in operator.emits]
    assert operator.own_windows == (kind in ("session", "count"))
    assert operator.pattern is (Pattern.AAR if kind == "tumbling" else Pattern.AUR)


@pytest.mark.parametrize(
    ("slide", "panes"),
    [
        ("3601 seconds", "panes of 59 minutes 37 seconds and 24 seconds by turns, 47 a window"),
        ("16 hours", "panes of 8 hours, 3 a window"),
        ("1 hour", "panes of 1 hour, 24 a window"),
    ],
)
def test_explain_says_which_panes_a_day_has(slide, panes):
    text = explain(plan_of(MARKED.groupBy(window("ts", "1 day", slide)).count()))
    assert panes in text


def test_explain_says_what_a_call_sees():
    by_window, by_key = FUNCTIONS.groupBy(WINDOWS["tumbling"]), FUNCTIONS.groupBy(WINDOWS["tumbling"], "auction")
    of_key = FUNCTIONS.groupBy(WINDOWS["session"], "auction")
    for made, said in (
        (by_window.applyInWindow(days, "n bigint", ["price"]), "gets a whole window, on one server"),
        (by_key.applyInWindow(days, "n bigint", ["price"], perKey=True), "gets keys of one window that one server has"),
        (of_key.applyInWindow(days, "n bigint", ["price"]), "gets many windows, each of them whole"),
    ):
        assert f"a call of the function {said}" in explain(plan_of(made))
