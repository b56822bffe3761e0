"""What the driver makes of what epochs have shown: task instructions, points in Spark's plan, and frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.server.transport.server_status import OperatorStatus
from tailrace.spark.hints.control import HintControl
from tailrace.spark.hints.framing import Cut
from tailrace.spark.hints.lookahead import STAGING
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.hints.points import RULES_CONF
from tailrace.spark.tasks.hint_sender import HintInstruction, HintInstructions, HintPoint, hints_property
from tailrace.state.cache.frequency_sketch import SketchSize
from tailrace.types import BIGINT, DataType, Field

KEY = Field("k", BIGINT)
SPEC = HintSpec("aggregate", (KEY,), None, False, 8).to_json()
SERVERS = tuple(
    (ServerAddress(name, f"grpc://{name}", "here", 1, 1, ""), low, high)
    for name, low, high in [("a", 0, 3), ("b", 3, 8)]
)
ACCESS = Access("r", "t")


class Conf:
    def __init__(self) -> None:
        self.values = {RULES_CONF: "theirs"}

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value


class Session:
    """Of Spark: its settings, and the properties of its jobs."""

    def __init__(self) -> None:
        self.conf = Conf()
        self.properties: dict[str, str | None] = {}

    def setLocalProperty(self, name: str, value: str | None) -> None:
        self.properties[name] = value


def _plan() -> PhysicalPlan:
    schema = (KEY, Field("v", DataType("bigint")))
    relation = Stream("a DataFrame", schema, RecordingRuntime()).groupBy("k").agg(tr.sum("v")).relation
    assert relation is not None
    return plan_relation(relation, OutputMode.UPDATE, Options())


def _status(misses: float, hits: float, fetched: float, wasted: float, pending: float, fetch: float) -> OperatorStatus:
    metrics = {
        "spilledMisses": misses,
        "spilledHits": hits,
        "hintsFetched": fetched,
        "hintsWasted": wasted,
        "hintsPending": pending,
        "spilledFetchMsP99": fetch,
    }
    return OperatorStatus("aggregate", 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, metrics, True)


def _done(slack: dict[str, tuple[tuple[float, float], ...]], hints: int) -> EpochResult:
    return EpochResult(None, None, None, None, None, slack, hints, 8 * hints)  # type: ignore[arg-type]


def test_the_controller_moves_plan_and_instructions() -> None:
    plan = _plan()
    points = (HintPoint("source", (SPEC,), SketchSize()),)
    candidates = {"aggregate": ("source", "ingest", STAGING)}
    control = HintControl(plan, HintPlan((), points, None, candidates, False))
    session: Any = Session()
    key = hints_property("r")

    def epoch(*statuses: OperatorStatus, slack: dict[str, float], hints: int = 0) -> dict[str, Any]:
        control.ran("aggregate", [_done({name: ((ms, 100.0),) for name, ms in slack.items()}, hints)] * len(statuses))
        (progress,) = control.after([[status] for status in statuses], session)
        control.instruct(session, ACCESS, 1, 0, SERVERS)
        return progress.to_json()

    progress = epoch(_status(0, 0, 0, 0, 0, 0), slack={STAGING: 5.0})
    assert progress["next"] == STAGING and session.conf.values[RULES_CONF] == "theirs"
    assert not session.properties, "tasks are not even asked to look"

    progress = epoch(_status(30, 0, 0, 0, 0, 10.0), _status(0, 0, 0, 0, 0, 40.0), slack={STAGING: 5.0})
    assert progress["next"] == "source" and progress["fetchMsP99"] == 40.0
    assert (
        session.conf.values[RULES_CONF].startswith("theirs,org.apache.spark")
        and "OptimizeRand" in session.conf.values[RULES_CONF]
    )
    instructions = HintInstructions.from_json(session.properties[key] or "")
    assert (
        instructions.instructions == (HintInstruction("aggregate", "source", True),) and instructions.servers == SERVERS
    )

    for number in (1, 2):  # all are measured twice
        progress = epoch(
            _status(30, 25.0 * number, 50.0 * number, 0, 0, 10.0),
            _status(0, 25.0 * number, 50.0 * number, 0, 0, 40.0),
            slack={"source": 90.0, "ingest": 60.0, STAGING: 5.0},
            hints=100,
        )
        assert progress["lookahead"] == ("source" if number == 1 else "ingest")
    assert progress["next"] == "ingest", progress["reason"]
    assert progress["numHints"] == 200 and progress["hintBytes"] == 1600
    assert progress["slackMsP99"] == {"source": 90.0, "ingest": 60.0, STAGING: 5.0}
    assert session.conf.values[RULES_CONF] == "theirs", "the ingest task needs no filter in the plan"
    instructions = HintInstructions.from_json(session.properties[key] or "")
    assert instructions.instructions == (HintInstruction("aggregate", "ingest", False),)

    totals = [30.0, 100.0, 200.0, 0.0, 0.0, 10.0]
    for _ in range(4):  # what is fetched is left over: by what is gone and by what is still there alike
        totals = [totals[0], totals[1] + 50, totals[2] + 50, totals[3] + 5, totals[4] + 5, 40.0]
        progress = epoch(_status(*totals), slack={"ingest": 60.0, STAGING: 5.0})
    assert progress["next"] == STAGING and progress["discarded"] == ["source", "ingest"]
    assert session.properties[key] is None, "tasks have nothing to do any more"


def test_tasks_send_three_frames_where_rows_have_waited() -> None:
    control = HintControl(_plan(), HintPlan((), (), None, {"aggregate": ("ingest", STAGING)}, False))
    session: Any = Session()
    conf = "spark.sql.execution.arrow.maxRecordsPerBatch"
    session.conf.values[conf] = "10000"
    missed, hit = 0, 0

    def epoch(misses: int, hits: int, task_rows: int) -> tuple[Cut, str]:
        nonlocal missed, hit
        missed, hit = missed + misses, hit + hits
        (progress,) = control.after([[_status(missed, hit, 0, 0, 0, 1.0)]], session, task_rows)
        frames.append(progress.to_json()["frames"])
        return control.cut, session.conf.values[conf]

    frames: list[int] = []
    whole = (Cut(), "10000")
    assert [epoch(0, 5, 9_000) for _ in range(3)] == [whole] * 3
    assert epoch(4, 1, 200) == whole, "too few rows to be worth it"
    assert epoch(0, 5, 9_000) == (Cut(1_500, 3), "1500"), "a half, a third and a sixth of a task's rows"
    assert epoch(0, 5, 8_000) == epoch(0, 5, 10_000) == epoch(0, 5, 0) == (Cut(1_500, 3), "1500"), "it seldom changes"
    assert epoch(0, 5, 100_000) == (Cut(16_667, 3), "10000"), "never more than the user has set"
    assert epoch(0, 5, 300) == (Cut(128, 3), "128")
    for _ in range(16):
        last = epoch(0, 0, 300)
    assert last == whole, "no spilled record was read for long"
    assert frames[:5] == [1, 1, 1, 1, 1] and set(frames[5:]) == {3}


def test_a_replaced_server_counts_from_zero() -> None:
    plan = _plan()
    control = HintControl(plan, HintPlan((), (), None, {"aggregate": ("ingest", STAGING)}, False))
    session: Any = Session()
    control.after([[_status(100, 100, 50, 20, 5, 9.0)]], session)
    first = control.lookaheads["aggregate"]
    control.after([[replace(_status(0, 0, 0, 0, 0, 0.0), wants_hints=True)]], session)
    second = control.lookaheads["aggregate"]
    assert first.on and second.on and second.idle == 1 and second.wasted == 0
