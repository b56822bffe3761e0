"""What a task's point sends, to whom, and when not; and what the driver makes of what epochs have shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.operators.ingest.hint_extractor import HASH_COLUMN, hash_columns
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.server.transport.server_status import OperatorStatus
from tailrace.spark.hints.control import HintControl
from tailrace.spark.hints.framing import Cut
from tailrace.spark.hints.lookahead import STAGING
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.hints.points import RULES_CONF
from tailrace.spark.tasks import hint_sender
from tailrace.spark.tasks.hint_sender import HintInstruction, HintInstructions, HintPoint, HintSender, hints_property
from tailrace.state.cache.frequency_sketch import SketchSize
from tailrace.types import BIGINT, DataType, Field

KEY = Field("k", BIGINT)
SPECS = tuple(HintSpec(name, (KEY,), None, False, 8).to_json() for name in ("first", "second"))
SERVERS = tuple(
    (ServerAddress(name, f"grpc://{name}", "here", 1, 1, ""), low, high)
    for name, low, high in [("a", 0, 3), ("b", 3, 8)]
)
ACCESS = Access("r", "t")
COLUMNS = {"k": pa.array(range(100), pa.int64())}


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[str, HintMessage, pa.RecordBatch | None]] = []
        self.deaf: set[str] = set()
        self.waited: list[str] = []

    def connect(self, address: ServerAddress, access: Access) -> Any:
        assert access == ACCESS
        wire = self

        class Client:
            def hint(self, message: HintMessage, batch: pa.RecordBatch | None = None) -> bytes | None:
                wire.sent.append((address.server, message, batch))
                if address.server in wire.deaf:
                    return None
                return np.packbits(np.arange(batch.num_rows) % 3 == 0).tobytes() if batch and message.asks else b""

            def heard(self) -> None:
                wire.waited.append(address.server)

        return Client()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(hint_sender, "connect", made.connect)
    hint_sender._extractors.clear()
    return made


def _sender(*instructions: HintInstruction) -> HintSender:
    asked = HintInstructions(7, 2, instructions, SERVERS)
    assert HintInstructions.from_json(asked.to_json()) == asked
    return HintSender(HintPoint("source", SPECS, SketchSize(threshold=254)), ACCESS, asked)


def test_a_point_that_sends(wire: Wire) -> None:
    sender = _sender(HintInstruction("first", "source", False), HintInstruction("second", "ingest", False))
    assert sender.active
    sender.rows(COLUMNS, 100)
    sender.finish()
    assert [(server, message.operator, message.point) for server, message, _ in wire.sent] == [
        ("a", "first", "source"),
        ("b", "first", "source"),
    ]
    hashes = hash_columns((KEY,), COLUMNS)
    for (server, message, batch), (_, low, high) in zip(wire.sent, SERVERS, strict=True):
        assert batch is not None and (message.epoch, message.try_, message.passed) == (7, 2, ((0.0, 100),)), server
        own = hashes[(hashes % 8 >= low) & (hashes % 8 < high)]
        assert sorted(np.asarray(batch.column(HASH_COLUMN)).tolist()) == sorted(own.tolist())
        assert message.time == 7, "the epoch, where there is no event time"


def test_a_task_can_wait_until_its_hints_are_received(wire: Wire) -> None:
    sender = _sender(HintInstruction("first", "source", False))
    sender.rows(COLUMNS, 100)
    assert not wire.waited
    sender.heard()
    assert wire.waited == ["a", "b"]
    _sender(HintInstruction("first", "ingest", True)).heard()
    assert wire.waited == ["a", "b"] * 2, "when rows passed is known before they come, too"
    _sender(HintInstruction("first", "ingest", False)).heard()
    assert wire.waited == ["a", "b"] * 2


def test_a_point_that_is_measured_tells_once(wire: Wire) -> None:
    sender = _sender(HintInstruction("first", "ingest", True), HintInstruction("second", "ingest", False))
    assert sender.active
    sender.rows(COLUMNS, 100)
    sender.rows(COLUMNS, 40)
    assert not wire.sent
    sender.finish()
    assert [(server, message.operator, batch) for server, message, batch in wire.sent] == [
        ("a", "first", None),
        ("b", "first", None),
    ]
    assert [rows for _, rows in wire.sent[0][1].passed] == [100, 40]
    assert all(age >= 0 for age, _ in wire.sent[0][1].passed)


def test_a_point_that_is_not_asked_does_nothing(wire: Wire) -> None:
    assert not _sender(HintInstruction("first", "ingest", False), HintInstruction("third", "source", True)).active
    assert not _sender().active and not wire.sent


def test_long_keys_are_sent_where_they_are_needed(wire: Wire) -> None:
    """A server first gets hashes, and answers that it needs each third key."""
    text = Field("s", DataType("string"))
    spec = HintSpec("first", (text,), None, True, 8)
    asked = HintInstructions(7, 2, (HintInstruction("first", "source", False),), SERVERS)
    sender = HintSender(HintPoint("source", (spec.to_json(),), SketchSize(threshold=254)), ACCESS, asked)
    columns = {"s": pa.array([f"key {number}" for number in range(100)])}
    sender.rows(columns, 100)
    assert [(server, message.asks, message.again) for server, message, _ in wire.sent] == [
        (server, asks, not asks) for server in "ab" for asks in (True, False)
    ]
    for (_, _, hashes), (_, message, keys) in zip(wire.sent[::2], wire.sent[1::2], strict=True):
        assert hashes is not None and keys is not None and not message.passed
        needed = hashes.column(HASH_COLUMN).to_pylist()[::3]
        assert hash_columns((text,), {"s": keys.column("s")}).tolist() == needed
        again, batch = HintMessage.from_buffer(pa.py_buffer(message.to_bytes(keys)))
        assert again == message and batch == keys, "what is compressed comes back"


def test_a_server_that_does_not_hear_is_left_alone(wire: Wire) -> None:
    wire.deaf = {"a"}
    sender = _sender(HintInstruction("first", "source", True), HintInstruction("second", "ingest", True))
    for _ in range(3):
        sender.rows(COLUMNS, 100)
    sender.finish()
    assert [server for server, _, _ in wire.sent] == ["a", "b", "b", "b", "b"]


# The driver ----------------------------------------------------------------------------------------------------------


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
    points = (HintPoint("source", (SPECS[0],), SketchSize()),)
    candidates = {"aggregate": ("source", "ingest", STAGING)}
    control = HintControl(plan, HintPlan((), points, None, candidates, False))
    session: Any = Session()
    key = hints_property("r")

    def epoch(*statuses: OperatorStatus, slack: dict[str, float], hints: int = 0) -> dict[str, Any]:
        control.ran("aggregate", [_done({name: ((ms, 100.0),) for name, ms in slack.items()}, hints)] * len(statuses))
        (told,) = control.after([[status] for status in statuses], session)
        control.instruct(session, ACCESS, 1, 0, SERVERS)
        return told.to_json()

    told = epoch(_status(0, 0, 0, 0, 0, 0), slack={STAGING: 5.0})
    assert told["next"] == STAGING and session.conf.values[RULES_CONF] == "theirs"
    assert not session.properties, "tasks are not even asked to look"

    told = epoch(_status(30, 0, 0, 0, 0, 10.0), _status(0, 0, 0, 0, 0, 40.0), slack={STAGING: 5.0})
    assert told["next"] == "source" and told["fetchMsP99"] == 40.0
    assert (
        session.conf.values[RULES_CONF].startswith("theirs,org.apache.spark")
        and "OptimizeRand" in session.conf.values[RULES_CONF]
    )
    instructions = HintInstructions.from_json(session.properties[key] or "")
    assert (
        instructions.instructions == (HintInstruction("aggregate", "source", True),) and instructions.servers == SERVERS
    )

    for number in (1, 2):  # all are measured twice
        told = epoch(
            _status(30, 25.0 * number, 50.0 * number, 0, 0, 10.0),
            _status(0, 25.0 * number, 50.0 * number, 0, 0, 40.0),
            slack={"source": 90.0, "ingest": 60.0, STAGING: 5.0},
            hints=100,
        )
        assert told["lookahead"] == ("source" if number == 1 else "ingest")
    assert told["next"] == "ingest", told["reason"]
    assert told["numHints"] == 200 and told["hintBytes"] == 1600
    assert told["slackMsP99"] == {"source": 90.0, "ingest": 60.0, STAGING: 5.0}
    assert session.conf.values[RULES_CONF] == "theirs", "the ingest task needs no filter in the plan"
    instructions = HintInstructions.from_json(session.properties[key] or "")
    assert instructions.instructions == (HintInstruction("aggregate", "ingest", False),)

    totals = [30.0, 100.0, 200.0, 0.0, 0.0, 10.0]
    for _ in range(4):  # what is fetched is left over: by what is gone and by what is still there alike
        totals = [totals[0], totals[1] + 50, totals[2] + 50, totals[3] + 5, totals[4] + 5, 40.0]
        told = epoch(_status(*totals), slack={"ingest": 60.0, STAGING: 5.0})
    assert told["next"] == STAGING and told["discarded"] == ["source", "ingest"]
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
