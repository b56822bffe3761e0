"""Whole epochs over the wire: a service inside this process, on a Unix socket, with real operators and a real store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.servers.state_servers import SHARDS, SPEC, config, eventually, frame, rows, stage
from tailrace.commit.manifest import Manifest
from tailrace.errors import CorruptionError, FencedError, StateServerError, SumOverflowError
from tailrace.operators.ingest.frame import Frame
from tailrace.server.epoch.assembly import build_engine
from tailrace.server.epoch.background_throttle import BackgroundThrottle
from tailrace.server.epoch.engine import Engine
from tailrace.server.process.flight_service import EngineFuture, StateService
from tailrace.server.process.local_rpc import LocalRpcServer
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.epoch_messages import Request
from tailrace.server.transport.file_stage import FileStageWriter
from tailrace.server.transport.folder import ServerFolder
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress, ServerConfig
from tailrace.server.transport.stage_messages import CommittedAttempt, StageKey
from tailrace.server.transport.stream_stage import StageWriter


@pytest.fixture
def common(tmp_path: Path) -> ServerConfig:
    return config(tmp_path / "store")


@pytest.fixture
def engine(common: ServerConfig, short_path: Path) -> Iterator[Engine]:
    made = build_engine(ProcessConfig("s0", str(short_path), "here", 0, "0", common))
    yield made
    made.close()


@pytest.fixture(params=["frames in files", "frames in files, over the direct line", "frames in streams"])
def client(
    request: pytest.FixtureRequest, common: ServerConfig, short_path: Path, engine: Engine
) -> Iterator[StateClient]:
    late = EngineFuture(1.0)
    late.set(engine)
    unix = request.param != "frames in streams"
    service = StateService(
        f"grpc+unix://{short_path}/s" if unix else "grpc://127.0.0.1:0",
        late,
        common.token,
        server="s0",
        folder=str(short_path),
        opened=lambda: None,
        shutdown=lambda keep: None,
    )
    uri = f"grpc+unix://{short_path}/s" if unix else f"grpc://127.0.0.1:{service.port}"
    address = ServerAddress("s0", uri, "here", 0, 0, "")
    line = None
    if "direct" in request.param:
        line = LocalRpcServer(ServerFolder(str(short_path)).local_rpc("s0"), common.token, service.act)
    opened = StateClient(address, common.access)
    opened.open(range(SHARDS))
    yield opened
    opened.close()
    if line is not None:
        line.close()
    service.shutdown()


def test_an_epoch_over_the_wire(client: StateClient, common: ServerConfig) -> None:
    run = common.run
    committed_attempts = [
        stage(client, run, 0, 0, 9, 1, frame([1, 2]), frame([3])),
        stage(client, run, 0, 0, 8, 0, frame([1])),
    ]
    done = client.run_epoch(0, 0, committed_attempts, 0, 0, commit=True)
    assert rows(done.batches) == {1: (2, 2), 2: (1, 2), 3: (1, 3)}
    assert done.applied.rows == 4
    assert rows(list(client.output(0, 0))) == rows(list(client.output(0, 0, part=0, parts=1))) == rows(done.batches)
    assert done.committed is not None and done.committed.delta is not None
    assert done.committed.delta.last_epoch == 0

    client.prepare(1, 0, [stage(client, run, 1, 0, 20, 0, frame([3]))])
    prepared = client.run_epoch(1, 0, None, 0, 0, commit=False)
    assert (prepared.applied.rows, prepared.output.rows) == (1, 1)
    second = client.commit(1, 0, upload=True)
    assert second.delta is not None and second.delta.first_epoch == 1
    client.forget(0)
    status = prepared.status
    assert (status.epoch, status.rows, status.staged_bytes, status.shards) == (1, 3, 0, SHARDS)
    with pytest.raises(FencedError, match="is over"):
        client.run_epoch(0, 0, None, 0, 0, commit=False)

    # A survivor's shards are read back by another server from what was committed.
    client.open(range(4), Manifest(1, run, 0), 1)
    assert client.open(range(SHARDS), Manifest(1, run, 0, (done.committed.delta, second.delta)), 2).rows == 3
    again = client.run_epoch(2, 2, [stage(client, run, 2, 2, 30, 0, frame([1, 2, 3]))], 0, 0, commit=False)
    assert rows(again.batches) == {1: (3, 3), 2: (2, 4), 3: (3, 9)}


def test_an_epoch_is_forgotten_when_there_is_time(
    client: StateClient, common: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while rows come: the engine would be busy with it when the hints of their keys arrive."""
    order: list[str] = []
    wait, forget = BackgroundThrottle.wait, Engine.forget

    def waited(self: BackgroundThrottle) -> None:
        order.append("waited")
        wait(self)

    def forgot(self: Engine, request: Request) -> None:
        order.append("forgot")
        forget(self, request)

    client.run_epoch(0, 0, [stage(client, common.run, 0, 0, 8, 0, frame([1]))], 0, 0, commit=False)
    monkeypatch.setattr(BackgroundThrottle, "wait", waited)
    monkeypatch.setattr(Engine, "forget", forgot)
    client.forget(0)
    assert order == ["waited", "forgot"]


def test_a_refused_stream_tells_its_task_why(client: StateClient, common: ServerConfig) -> None:
    committed_attempt = stage(client, common.run, 0, 0, 8, 0, frame([1]))
    client.prepare(0, 0, [committed_attempt])
    with pytest.raises(FencedError, match="has its committed attempts"):
        stage(client, common.run, 0, 0, 9, 0, frame([1]))
    with pytest.raises(FencedError, match="belongs to run"):
        stage(client, "ffffffffffffffff", 0, 0, 9, 0, frame([1]))


def test_a_zombie_in_the_middle_of_its_stream_is_refused(
    client: StateClient, common: ServerConfig, engine: Engine
) -> None:
    zombie = client.stage(StageKey(common.run, SPEC.name, 0, 0, 7, 0))
    zombie.write(frame([5]))
    if isinstance(zombie, StageWriter):  # a file reaches the server when it is finished
        assert eventually(lambda: engine.staging.staged_bytes > 0)
    done = client.run_epoch(0, 0, [stage(client, common.run, 0, 0, 8, 0, frame([1]))], 0, 0, commit=False)
    assert rows(done.batches) == {1: (1, 1)}
    with pytest.raises(FencedError, match=r"went on without it|has its committed attempts"):
        zombie.write(frame([5]))
        zombie.finish()
    assert eventually(lambda: engine.staging.staged_bytes == 0)


def test_a_stream_that_breaks_off_leaves_nothing(client: StateClient, common: ServerConfig, engine: Engine) -> None:
    writer = client.stage(StageKey(common.run, SPEC.name, 0, 0, 7, 0))
    sent = frame([5])
    writer.write(sent)
    writer.abort()
    assert eventually(lambda: engine.staging.staged_bytes == 0)
    with pytest.raises(StateServerError, match="1 rows missing"):
        client.prepare(0, 0, [CommittedAttempt(0, 7, 1, sent.checksum())])


def test_a_stream_without_rows_needs_no_server(client: StateClient, common: ServerConfig) -> None:
    committed_attempt = stage(client, common.run, 0, 0, 7, 0)
    assert (committed_attempt.rows, committed_attempt.checksum) == (0, 0)
    assert client.run_epoch(0, 0, [committed_attempt], 0, 0, commit=True).batches == []


def test_errors_keep_their_type(client: StateClient, common: ServerConfig, tmp_path: Path) -> None:
    huge = frame([1, 1], [2**63 - 1, 1])
    with pytest.raises(SumOverflowError):
        client.run_epoch(0, 0, [stage(client, common.run, 0, 0, 7, 0, huge)], 0, 0, commit=False)
    done = client.run_epoch(0, 1, [stage(client, common.run, 0, 1, 8, 0, frame([1]))], 0, 0, commit=True)
    assert done.committed is not None and done.committed.delta is not None
    path = tmp_path / "store" / done.committed.delta.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=path.name):
        client.open([], Manifest(0, common.run, 0), 1)
        client.open(range(SHARDS), Manifest(0, common.run, 0, (done.committed.delta,)), 2)
    with pytest.raises(StateServerError, match="has lost its state"):
        client.run_epoch(1, 0, [], 0, 0, commit=False)


def test_large_frames_pass_and_spill(client: StateClient, common: ServerConfig, engine: Engine) -> None:
    one = frame(list(range(1000)))
    repeat = 2000
    large = Frame(np.tile(one.rows, (repeat, 1)), one.heap, one.bounds * repeat)
    large = Frame(np.ascontiguousarray(np.repeat(one.rows, repeat, axis=0)), one.heap, one.bounds * repeat)
    assert large.nbytes > 64 << 20
    committed_attempt = stage(client, common.run, 0, 0, 7, 0, large, one)
    assert engine.staging.spilled_bytes == large.nbytes
    assert engine.staging.staged_bytes == large.nbytes + one.nbytes
    done = client.run_epoch(0, 0, [committed_attempt], 0, 0, commit=False)
    assert done.applied.rows == 1000 * (repeat + 1)
    assert rows(done.batches)[7] == (repeat + 1, 7 * (repeat + 1))
    assert engine.staging.staged_bytes == 0


def test_two_threads_stage_at_once(client: StateClient, common: ServerConfig) -> None:
    committed_attempts: list[CommittedAttempt] = []

    def work(partition: int) -> None:
        frames = [frame(list(range(at, at + 100))) for at in range(0, 1000, 100)]
        committed_attempts.append(stage(client, common.run, 0, 0, 50 + partition, partition, *frames))

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = client.run_epoch(0, 0, committed_attempts, 0, 0, commit=False)
    assert rows(done.batches) == {key: (4, 4 * key) for key in range(1000)}


def test_frames_that_come_in_parts_count_when_their_task_has_sent_all(
    client: StateClient, common: ServerConfig
) -> None:
    def parted(attempt: int, partition: int, *frames: Frame) -> FileStageWriter | StageWriter:
        """Sent, but not finished."""
        writer = client.stage(StageKey(common.run, SPEC.name, 0, 0, attempt, partition))
        for each in frames:
            writer.write(each)
            writer.part()
        return writer

    lost = parted(7, 0, frame([1]))
    lost.abort()
    first, second = parted(8, 0, frame([1, 2]), frame([3])), parted(9, 1, frame([1]))
    second.write(frame([4]))
    receipts = [first.finish(), second.finish()]
    committed_attempts = [CommittedAttempt(n, 8 + n, each.rows, each.checksum) for n, each in enumerate(receipts)]
    assert [each.rows for each in receipts] == [3, 2]
    done = client.run_epoch(0, 0, committed_attempts, 0, 0, commit=False)
    assert done.batches is not None
    counts = {row["k"]: row["n"] for batch in done.batches for row in batch.to_pylist()}
    assert counts == {1: 2, 2: 1, 3: 1, 4: 1}
    for attempt in (10, 11):  # the epoch has its committed attempts, and then it is over: late tasks get an error
        with pytest.raises(FencedError):
            parted(attempt, 0, frame([5])).finish()
        client.forget(0)


def test_operators_get_hints_of_each_frame_once(
    client: StateClient, common: ServerConfig, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted: list[tuple[str, int]] = []
    for name in ("offer", "show"):
        monkeypatch.setattr(engine.hints, name, lambda _, frame, epoch, name=name: hinted.append((name, frame.n)))
    writer = client.stage(StageKey(common.run, SPEC.name, 0, 0, 8, 0))
    for keys in ([1, 2], [3, 4, 5]):
        writer.write(frame(keys))
        writer.part()
    writer.write(frame([6]))
    writer.finish()
    parts = "show" if isinstance(writer, FileStageWriter) else "offer"  # a stream has no parts
    assert hinted == [(parts, 2), (parts, 3), ("offer", 1)]
