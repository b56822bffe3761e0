"""Plans of ``dropDuplicates`` and ``topN``: what is kept and sent, what ``explain`` says, what may not change."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import count_window, custom_window, session_window, window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.registry import spec_from_json
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.types import DataType, Field

TYPES = {"auction": "bigint", "ts": "timestamp", "price": "int", "score": "double", "note": "string"}
MODES = ("eventTime", "processingTime")


def stream(delay: str | None = "8 seconds") -> Stream:
    fields = tuple(Field(name, DataType(type_)) for name, type_ in TYPES.items())
    made = Stream("a DataFrame", fields, RecordingRuntime())
    return made if delay is None else made.withWatermark("ts", delay)


def planned(relation: Stream, mode: str = "append", **options: Any) -> PhysicalPlan:
    plan = plan_relation(relation.source, OutputMode(mode), Options(**options))
    for stage in plan.stages:
        assert spec_from_json(stage.operator.to_json()) == stage.operator
    return plan


@pytest.mark.parametrize(
    ("relation", "memory", "said"),
    [
        (stream(None).dropDuplicates(["note"]), Memory.FOREVER, "for ever: there is no watermark"),
        (stream().dropDuplicates(["note"]), Memory.FOREVER, "for ever: ts is not among the keys; add it"),
        (stream().dropDuplicates(["note", "ts"]), Memory.KEY_TIME, "until the watermark reaches its ts"),
        (
            stream().dropDuplicatesWithinWatermark(["note"]),
            Memory.WITHIN,
            "until the watermark reaches the event time of its row and 8 seconds; then it may come again",
        ),
    ],
)
def test_how_long_a_key_is_remembered(relation: Stream, memory: Memory, said: str) -> None:
    plan = planned(relation)
    assert isinstance(plan.operator, DeduplicateSpec) and plan.operator.memory is memory
    text = explain(plan)
    assert f"a key is remembered {said}" in text
    assert "store RMW: a key is looked up for each row" in text
    assert plan.stages[0].operator.output_delay == 0
    assert [column.name for column in plan.inputs[0].columns] == list(TYPES)


def test_rows_bring_what_the_next_operator_reads() -> None:
    distinct = stream().dropDuplicates(["note"])
    plan = planned(distinct.groupBy(window("ts", "10 seconds")).agg(tr.sum("price")))
    assert plan.operator.reads == ("ts", "price", "note")
    assert [column.name for column in plan.inputs[0].columns] == ["ts", "price", "note"]
    plan = planned(distinct.dropDuplicates(["auction", "ts"]).groupBy("auction").agg(tr.count()), "update")
    first, second = (stage.operator for stage in plan.stages[:2])
    assert second.reads == ("auction", "ts") and first.reads == ("auction", "ts", "note")
    assert not first.handed_over and second.handed_over  # type: ignore[attr-defined]


def test_a_row_that_another_operator_hands_over_is_late_a_moment_later() -> None:
    plan = planned(stream().dropDuplicates(["note"]).dropDuplicates(["auction"]))
    first, second = (stage.operator for stage in plan.stages)
    assert (first.mark(100), second.mark(100)) == (100, 99)  # type: ignore[attr-defined]
    assert second.mark(-(2**63)) == -(2**63)  # type: ignore[attr-defined]


def test_what_is_kept_of_a_row() -> None:
    relation = stream().groupBy(window("ts", "10 seconds", "5 seconds"), "auction").topN(3, "price", columns=["note"])
    plan = planned(relation)
    spec = plan.operator
    assert isinstance(spec, TopNSpec)
    assert [row.name for row in spec.rows] == ["note", "price", "ts"] and spec.shown == ("note",)
    assert spec.watermarked and not spec.emit_changed
    text = explain(plan)
    assert "+- Top n" in text and "output mode append: rows that are final" in text
    assert "group by auction bigint" in text
    assert "window 10 seconds every 5 seconds, over ts, in column window" in text
    assert "the best 3 rows of each, by price descending, then the earlier event time, then the smaller other" in text
    assert "keeps at most 3 rows a group and pane (note string, price int, ts timestamp)" in text
    assert "store RMW: only the best rows of a group are kept" in text
    ever = planned(stream(None).groupBy().topN(1, ["score", "price"], True), "update")
    assert "by score ascending, then price ascending, then the smaller other columns" in explain(ever)
    assert "output mode update" in explain(ever)
    by_time = planned(stream().groupBy("auction").topN(1, "ts"), "update")
    assert "by ts descending, then the smaller other columns" in explain(by_time)


@pytest.mark.parametrize(
    ("each", "said", "kind"),
    [
        (session_window("ts", "10 seconds"), "sessions of rows at most 10 seconds apart", "session"),
        (count_window(5, 2), "5 rows of a key, one every 2", "count"),
        (custom_window("ts", len), "of your function", "custom"),
    ],
    ids=["session", "count", "custom"],
)
def test_best_rows_of_windows_that_end_key_by_key(each: Any, said: str, kind: str) -> None:
    relation = stream().groupBy("auction", each).topN(3, "price", columns=["note"])
    plan = planned(relation)
    spec = plan.operator
    assert isinstance(spec, TopNSpec) and spec.keeps_rows and spec.kept().pattern == "AUR"
    assert [row.name for row in spec.rows] == ["note", "price", "ts"] and spec.shown == ("note",)
    assert [field.name for field in spec.emits] == ["auction", each.name, "note", "rank"]
    assert spec.kept().window_kind == kind and spec.watermarked is (kind != "count")
    text = explain(plan)
    assert "+- Top n" in text and f"window {said}" in text and "store AUR: the best rows are chosen when a" in text
    assert "the best 3 rows of each, by price descending, then the earlier event time, then the smaller other" in text
    by_time = stream().groupBy("auction", window("ts", "10 seconds")).topN(3, "price", columns=["note"])
    found = differences(stored(relation), stored(by_time))
    assert any(line.startswith(f"window: was {said}, is now 10 seconds, tumbling") for line in found)
    four = stream().groupBy("auction", each).topN(4, "price", columns=["note"])
    assert differences(stored(relation), stored(four)) == ["rows of each group: was 3, is now 4"]
    rows = stream().groupBy("auction", each).agg(tr.median("price"))
    assert differences(stored(relation), stored(rows)) == ["operator: was Top n, is now Aggregate"]


def test_best_rows_of_windows_by_count_with_an_event_time() -> None:
    def relation(time: str | None, **ttl: str) -> Any:
        rows = stream() if not ttl else stream().withStateTtl("1 hour", **ttl)
        return rows.groupBy("auction", count_window(5, 2, time)).topN(3, "price", columns=["note"])

    spec = planned(relation("at")).operator
    assert isinstance(spec, TopNSpec) and spec.latest == "at"
    assert spec.watermarked and not spec.window.in_time and TopNSpec.from_json(spec.to_json()) == spec
    assert [field.name for field in spec.emits] == ["auction", "window", "note", "rank", "at"]
    assert spec.emits[-1].type.name == TYPES["ts"]
    assert "are kept; at: the largest event time of all" in explain(planned(relation("at")))
    found = differences(stored(relation(None)), stored(relation("at")))
    assert [line.split(":")[0] for line in found] == ["watermark", "output columns"]
    for mode in ("eventTime", "processingTime"):
        kept = planned(relation("at", timeMode=mode)).operator
        assert isinstance(kept, TopNSpec) and kept.watermarked and kept.window.in_time and not kept.late_by_ttl
    then = planned(relation("at").groupBy(window("at", "1 hour")).agg(tr.max("rank"))).last
    assert isinstance(then, AggregateSpec) and then.time_column is not None and then.time_column.name == "at"


def test_windows_that_rows_bring_have_one_time() -> None:
    counts = stream().groupBy(window("ts", "10 seconds"), "auction").agg(tr.count().alias("n"))
    spec = planned(counts.groupBy("window").topN(2, "n")).last
    assert isinstance(spec, TopNSpec)
    assert spec.takes_window_start and [row.name for row in spec.rows] == ["auction", "n"]
    spec = planned(counts.groupBy("auction").topN(2, "n"), "update").last
    assert [row.name for row in spec.rows] == ["n", "window"] and spec.shown == ("n",)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("mode", "expires", "mark"),
    [
        ("eventTime", True, "in event time: a key is forgotten that was last updated 1 hour before the watermark"),
        ("processingTime", False, "in processing time: a key is forgotten that was last updated 1 hour before the"),
    ],
)
def test_best_rows_of_groups_that_are_forgotten(mode: str, expires: bool, mark: str) -> None:
    relation = stream().withStateTtl("1 hour", mode).groupBy("auction").topN(3, "price", columns=["note"])
    plan = planned(relation, "update")
    spec = plan.operator
    assert isinstance(spec, TopNSpec) and spec.ttl is not None
    assert spec.late_by_ttl is spec.watermarked is expires
    assert f"time-to-live 1 hour {mark}" in explain(plan)
    if not expires:
        assert "no window: no row is late and state goes by its time-to-live" in explain(plan)
    other = stream().withStateTtl("2 hours", mode).groupBy("auction").topN(3, "price", columns=["note"])
    never = stream().groupBy("auction").topN(3, "price", columns=["note"])
    assert differences(stored(relation, "update"), stored(other, "update")) == []
    assert any("time-to-live" in said for said in differences(stored(relation, "update"), stored(never, "update")))


def test_duplicates_that_are_remembered_for_a_time() -> None:
    event, by_clock = (stream().withStateTtl("1 hour", mode).dropDuplicates(["note"]) for mode in MODES)
    spec = planned(by_clock).operator
    assert isinstance(spec, DeduplicateSpec) and spec.memory is Memory.SINCE and spec.ttl is not None
    assert planned(event).operator.memory is Memory.WITHIN  # type: ignore[attr-defined]
    text = "remembered until an epoch begins 1 hour after the one in which its row was given; then it may come again"
    assert text in explain(planned(by_clock))
    unmarked = stream(None).withStateTtl("1 hour", "processingTime").dropDuplicates(["note"])
    assert "no row is late and state goes by its time-to-live" in explain(planned(unmarked))
    longer = stream().withStateTtl("3 hours", "processingTime").dropDuplicates(["note"])
    assert differences(stored(by_clock), stored(longer)) == []
    assert differences(stored(by_clock), stored(event)) == ["memory of keys: was since, is now within"]


def test_rows_may_be_too_wide() -> None:
    fields = tuple(Field(f"c{i}", DataType("int")) for i in range(70))
    wide = Stream("a DataFrame", fields, RecordingRuntime())
    with pytest.raises(AnalysisError, match="70 columns, and at most 62"):
        planned(wide.dropDuplicates(["c0"]))
    with pytest.raises(AnalysisError, match="columns=\\["):
        planned(wide.groupBy("c0").topN(3, "c1"), "update")
    planned(wide.groupBy("c0").topN(3, "c1", columns=["c2"]), "update")


def stored(relation: Stream, mode: str = "append", **options: Any) -> Any:
    return json.loads(json.dumps(fingerprint(planned(relation, mode, **options))))


def test_a_delay_may_change() -> None:
    for keys, how in ((["note"], "dropDuplicatesWithinWatermark"), (["note", "ts"], "dropDuplicates")):
        relation = [getattr(stream(delay), how)(keys) for delay in ("8 seconds", "1 hour")]
        assert differences(*map(stored, relation)) == []


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (["note"], ["note", "auction"], "keys: was note string, is now note string, auction bigint"),
        (["note"], ["note", "ts"], "memory of keys: was forever, is now key_time"),
    ],
)
def test_another_key_is_refused(was: list[str], now: list[str], said: str) -> None:
    found = differences(stored(stream().dropDuplicates(was)), stored(stream().dropDuplicates(now)))
    assert said in found


def test_another_memory_is_refused() -> None:
    before, after = stream().dropDuplicates(["note"]), stream().dropDuplicatesWithinWatermark(["note"])
    assert differences(stored(before), stored(after)) == ["memory of keys: was forever, is now within"]
    assert differences(stored(before), stored(stream().groupBy("note").count(), "update")) == [
        "operator: was Drop duplicates, is now Aggregate"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((4, "price"), "rows of each group: was 3, is now 4"),
        ((3, "price", True), "order: was price descending, then the earlier"),
        ((3, "score"), "order: was price descending"),
        ((3, "price", False, ["note"]), "columns kept: was ts timestamp, price int, score double, note string, is now"),
        ((3, "price", False, None, "place"), "output columns: was"),
    ],
)
def test_another_ranking_is_refused(arguments: tuple[Any, ...], said: str) -> None:
    before = stored(stream().groupBy("auction").topN(3, "price"), "update")
    found = differences(before, stored(stream().groupBy("auction").topN(*arguments), "update"))
    assert any(each.startswith(said) for each in found), found
