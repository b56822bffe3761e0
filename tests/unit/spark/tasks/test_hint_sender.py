"""What a task's point sends, to whom, and when not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.operators.ingest.hint_extractor import HASH_COLUMN, hash_columns
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.spark.tasks import hint_sender
from tailrace.spark.tasks.hint_sender import HintInstruction, HintInstructions, HintPoint, HintSender
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
        self.silent: set[str] = set()
        self.waited: list[str] = []

    def connect(self, address: ServerAddress, access: Access) -> Any:
        assert access == ACCESS
        wire = self

        class Client:
            def hint(self, message: HintMessage, batch: pa.RecordBatch | None = None) -> bytes | None:
                wire.sent.append((address.server, message, batch))
                if address.server in wire.silent:
                    return None
                return np.packbits(np.arange(batch.num_rows) % 3 == 0).tobytes() if batch and message.asks else b""

            def wait_for_hints(self) -> None:
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
    sender.wait_received()
    assert wire.waited == ["a", "b"]
    _sender(HintInstruction("first", "ingest", True)).wait_received()
    assert wire.waited == ["a", "b"] * 2, "when rows passed is known before they come, too"
    _sender(HintInstruction("first", "ingest", False)).wait_received()
    assert wire.waited == ["a", "b"] * 2


def test_a_point_that_is_measured_reports_once(wire: Wire) -> None:
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


def test_a_server_that_does_not_answer_gets_no_more_hints(wire: Wire) -> None:
    wire.silent = {"a"}
    sender = _sender(HintInstruction("first", "source", True), HintInstruction("second", "ingest", True))
    for _ in range(3):
        sender.rows(COLUMNS, 100)
    sender.finish()
    assert [server for server, _, _ in wire.sent] == ["a", "b", "b", "b", "b"]


# The driver ----------------------------------------------------------------------------------------------------------
