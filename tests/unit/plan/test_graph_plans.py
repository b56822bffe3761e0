"""Plans that are no chains: work of Spark between operators, and joins of what operators give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tailrace as tr
from support.bids import RecordingRuntime, bids
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode, Relation, SparkHop, Watermark
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.types import BIGINT, TIMESTAMP, Field

AT = Field("at", TIMESTAMP)


class Hopping(RecordingRuntime):
    """A hop makes a time and the operator's other columns of an operator's rows."""

    def hop(self, relation: Relation, function: Callable[..., object], label: str) -> SparkHop:
        rest = tuple(field for field in relation.fields if relation.window is None or field.name != "window")
        return SparkHop((relation,), function, (AT, *rest), label, Watermark(AT, Micros(0)))


def counts(key: str = "auction") -> Stream:
    return bids(Hopping()).withWatermark("ts", "10 seconds").groupBy(tr.window("ts", "10 seconds"), key).agg(tr.count())


def plain(stream: Stream, name: str) -> Stream:
    made = stream.transform(lambda frame: frame)
    hop = made.source
    assert isinstance(hop, SparkHop)
    fields = tuple(Field(name, BIGINT) if field.name == "count(1)" else field for field in hop.fields)
    return stream.derived(SparkHop(hop.inputs, hop.function, fields, hop.label, hop.event_time))


def planned(stream: Stream, mode: OutputMode = OutputMode.APPEND) -> PhysicalPlan:
    assert stream.relation is not None
    return plan_relation(stream.relation, mode, Options())


def joined() -> Stream:
    """Counts by auction, and their sums by window: both of one operator."""
    first = counts()
    best = first.groupBy("window").agg(tr.max("count(1)").alias("best"))
    sides = (
        plain(first, "n"),
        best.derived(
            SparkHop(
                (best.source,),
                lambda frame: frame,
                (Field("time", TIMESTAMP), Field("auction", BIGINT)),
                "best",
                Watermark(Field("time", TIMESTAMP), Micros(0)),
            )  # type: ignore[arg-type]
        ),
    )
    return sides[0].join(sides[1], "auction", within=("0 seconds", "0 seconds"))


def test_a_hop_behind_the_last_operator_keeps_the_chain() -> None:
    plan = planned(plain(counts(), "n"), OutputMode.UPDATE)
    assert (len(plan.stages), plan.outputs, plan.linear) == (1, (0,), True)
    assert plan.hop is not None and plan.hop.label == "transform"


def test_a_hop_between_two_operators() -> None:
    plan = planned(plain(counts(), "n").groupBy(tr.window("at", "1 hour")).agg(tr.sum("n")))
    first, second = plan.stages
    assert (first.inputs, first.before, second.inputs, second.before) == ((0,), (), (None,), (0,))
    assert second.by_spark and not plan.linear and plan.outputs == (1,)
    assert len(first.operator.emits) == 3, "a hop may read every column"


def test_a_join_of_what_operators_give() -> None:
    plan = planned(joined())
    names = [stage.operator.name for stage in plan.stages]
    assert names == ["aggregate", "aggregate-2", "join-3"], "the operator that both sides come from is there once"
    assert [stage.before for stage in plan.stages] == [(), (0,), (0, 1)]
    assert [stage.by_spark for stage in plan.stages] == [False, False, True]
    text = explain(plan)
    assert text.count("Source") == 2 and text.index("through Spark within the epoch") > text.index("join")


def test_what_cannot_be_joined() -> None:
    with pytest.raises(AnalysisError, match=r"'window' is a struct of a window's bounds.*F\.window_time\('window'\)"):
        counts().join(counts("channel"), "auction")
    rolling = bids(Hopping()).withWatermark("ts", "10 seconds").groupBy("auction").agg(tr.count().alias("n"))
    with pytest.raises(AnalysisError, match="rows that are final"):
        rolling.join(plain(counts(), "m"), "auction")


def test_rows_for_a_sink_and_for_an_operator_are_final() -> None:
    first = counts()
    second = first.groupBy("window").agg(tr.max("count(1)").alias("best"))
    assert first.relation is not None and second.relation is not None
    both = SparkHop((first.relation, second.relation), lambda one, other: one, first.relation.fields, "union")
    assert plan_relation(both, OutputMode.APPEND, Options()).outputs == (0, 1)
    with pytest.raises(AnalysisError, match="to the sink and to another operator"):
        plan_relation(both, OutputMode.UPDATE, Options())


def test_where_rows_come_from_may_not_change() -> None:
    def stored(stream: Stream) -> dict[str, Any]:
        return fingerprint(planned(stream))

    through = plain(counts(), "n").groupBy(tr.window("at", "1 hour")).agg(tr.sum("n").alias("n"))
    assert differences(stored(through), stored(through)) == []
    before, after = stored(through), stored(through)
    after["rows_of"] = [["stream 1"], ["stream 2"]]
    assert differences(before, after) == ["rows of aggregate-2: was aggregate, is now stream 2"]
    after = {**before, "outputs": ["aggregate"]}
    assert differences(before, after) == ["output: was aggregate-2, is now aggregate"]
    after = {**before, "idle_epochs": True}
    assert differences(before, after) == ["option idleTimeout: was not given, is now given"]
