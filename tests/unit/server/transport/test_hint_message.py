"""Hints over the wire: to the operator that they are for, fenced, measured, and never an error for who sends them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import flight

from support.manual_clock import StillClock
from tailrace.ids import Attempt
from tailrace.operators.base import HintedKeys
from tailrace.operators.ingest.hint_extractor import HASH_COLUMN, PANE_COLUMN, hash_columns
from tailrace.server.hints.receiver import HintReceiver
from tailrace.server.hints.slack import STAGING_POINT, SlackMeter
from tailrace.server.process.flight_service import EngineFuture, StateService
from tailrace.server.transport import client as client_module
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.server.transport.stage_messages import StageKey
from tailrace.types import BIGINT, Field

KEYS = (Field("k", BIGINT),)


class Told:
    """An engine, and its desk, that only listens."""

    def __init__(self) -> None:
        self.hints = self
        self.heard: list[tuple[list[int], list[int], pa.RecordBatch | None]] = []
        self.panes: list[list[int] | None] = []

    def hint_keys(self, operator: str, epoch: int, told: HintedKeys) -> None:
        assert operator == "op"
        self.heard.append((told.hashes.tolist(), told.times.tolist(), told.keys))
        self.panes.append(None if told.panes is None else told.panes.tolist())

    def lacking(self, operator: str, hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
        """As if every even key were there."""
        assert operator == "op" and set(times.tolist()) == {5}
        needed: np.ndarray = hashes % 2 == 1
        return needed


def _hashes(*hashes: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({HASH_COLUMN: pa.array(hashes, pa.int64())})


def _message(epoch: int = 1, try_: int = 0, run: str = "r", operator: str = "op", **more: object) -> HintMessage:
    return HintMessage(run, operator, epoch, try_, "ingest", **more)  # type: ignore[arg-type]


@pytest.fixture
def wire(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[StateClient, Told, HintReceiver, StateService]]:
    monkeypatch.setattr(client_module, "_HINT_TIMEOUT_S", 60.0)  # hints that come late are lost, and none may be here
    told = Told()
    engine = EngineFuture(5.0)
    engine.set(told)  # type: ignore[arg-type]
    receiver = HintReceiver("r", {"op": KEYS})
    uri = f"grpc+unix://{short_path}/s"
    service = StateService(
        uri,
        engine,
        "t",
        server="s",
        folder=str(short_path),
        opened=lambda: None,
        shutdown=lambda _: None,
        hints=receiver,
    )
    client = StateClient(ServerAddress("s", uri, "here", 1, 1, ""), Access("r", "t"))
    yield client, told, receiver, service
    client.close()
    service.shutdown()


def test_hints_reach_their_operator(wire: tuple[StateClient, Told, HintReceiver, StateService]) -> None:
    client, told, receiver, _ = wire
    assert client.hint(_message(passed=((0.0, 30),), time=5), _hashes(-7, 8, 9)) is not None
    keys = pa.RecordBatch.from_pydict({"k": pa.array([3, None], pa.int64())})
    assert client.hint(_message(time=4), keys) is not None
    assert told.heard[0] == ([-7, 8, 9], [5, 5, 5], None) and told.panes == [None, None]
    hashes, times, sent = told.heard[1]
    assert hashes == hash_columns(KEYS, {"k": keys.column("k")}).tolist() and times == [4, 4] and sent == keys
    slack, hints, nbytes = receiver.begins("op", 1, 0)
    assert [rows for _, rows in slack["ingest"]] == [30] and hints == 5 and nbytes > 5 * 8


def test_hints_of_records_in_panes(wire: tuple[StateClient, Told, HintReceiver, StateService]) -> None:
    client, told, _, _ = wire
    batch = pa.RecordBatch.from_pydict({HASH_COLUMN: pa.array([7, 7]), PANE_COLUMN: pa.array([-60, 120])})
    assert client.hint(_message(time=5), batch) is not None
    assert told.heard == [([7, 7], [5, 5], None)] and told.panes == [[-60, 120]]


def test_a_server_is_asked_by_hashes_which_keys_it_needs(
    wire: tuple[StateClient, Told, HintReceiver, StateService],
) -> None:
    client, told, receiver, _ = wire
    answer = client.hint(_message(asks=True, time=5, passed=((0.0, 9),)), _hashes(*range(9)))
    assert answer is not None
    assert np.unpackbits(np.frombuffer(answer, np.uint8))[:9].tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert not told.heard, "asking fetches nothing"
    keys = pa.RecordBatch.from_pydict({"k": pa.array([1, 3], pa.int64())})
    assert client.hint(_message(again=True, time=5), keys) == b""
    assert [sent for _, _, sent in told.heard] == [keys]
    _, hints, nbytes = receiver.begins("op", 1, 0)
    assert hints == 9 and nbytes > 11 * 8
    late = client.hint(_message(asks=True, time=5), _hashes(1))
    assert late == b"", "its operator has begun: nothing is needed any more"


def test_hints_are_fenced_and_dropped(wire: tuple[StateClient, Told, HintReceiver, StateService]) -> None:
    client, told, receiver, service = wire
    assert client.hint(_message(run="other"), _hashes(1)) is None, (
        "of another run: refused, and no error for the sender"
    )
    assert client.hint(_message(epoch=2, try_=1), _hashes(1)) is not None
    assert client.hint(_message(epoch=2, try_=0), _hashes(2)) is not None, "of a try that is over: dropped"
    receiver.begins("op", 2, 1)
    assert client.hint(_message(epoch=2, try_=1), _hashes(3)) is not None, "its operator has begun: dropped"
    assert client.hint(_message(epoch=3, operator="plain"), _hashes(4)) is not None, "of no operator here: dropped"
    assert [hashes for hashes, _, _ in told.heard] == [[1]]
    service.shutdown()
    assert client.hint(_message(epoch=3), _hashes(6)) is None, "the server is gone: no error for the sender"


def test_garbage_is_refused(wire: tuple[StateClient, Told, HintReceiver, StateService]) -> None:
    client, told, _, _ = wire
    words = _message().to_bytes(_hashes(4, 5))
    for body in (b"", b"\x05\x00\x00\x00{", b"\xff\xff\xff\xff{}", words[:-1], words + b"x"):
        with pytest.raises(flight.FlightError):
            list(client._client.do_action(flight.Action("hint", body), client._options(2.0)))
    assert not told.heard


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(1, 20), st.integers(0, 9)), max_size=120),
    st.integers(0, 30),
)
def test_slack_is_from_passing_to_beginning(told: list[tuple[str, int, int, int]], wait_s: int) -> None:
    """Of each point: the least slack of all, the rows of all, and the slack that all but a hundredth have."""
    clock = StillClock()
    meter = SlackMeter(clock)
    at = Attempt(1, 0)
    exact: dict[str, list[float]] = {}
    moments = []
    for point, ago, rows, later in told:
        clock.at += later
        assert meter.passed("op", at, point, [(ago * 1e3, rows)])
        moments.append((point, clock.at - ago, rows))
    clock.at += wait_s
    slack, _, _ = meter.begins("op", at)
    for point, when, rows in moments:
        exact.setdefault(point, []).extend([(clock.at - when) * 1e3] * rows)
    assert slack.keys() == exact.keys()
    for point, samples in slack.items():
        rows_ms = sorted(exact[point])
        assert sum(rows for _, rows in samples) == len(rows_ms)
        assert len(samples) <= 48
        assert min(ms for ms, _ in samples) == pytest.approx(rows_ms[0])
        told_ms = sorted(ms for ms, rows in samples for _ in range(int(rows)))
        assert told_ms[len(told_ms) // 100] == pytest.approx(rows_ms[len(rows_ms) // 100])
        assert all(a <= b + 1e-6 for a, b in zip(told_ms, rows_ms, strict=True)), "nobody gains slack"


def test_staging_is_a_point_like_any_other() -> None:
    clock = StillClock()
    receiver = HintReceiver("r", {}, SlackMeter(clock))
    receiver.staged(StageKey("r", "op", 4, 1, 7, 0), 100)
    clock.at += 0.25
    slack, hints, _ = receiver.begins("op", 4, 1)
    assert slack == {STAGING_POINT: ((250.0, 100),)} and hints == 0
    assert receiver.begins("op", 4, 1)[0] == {}
