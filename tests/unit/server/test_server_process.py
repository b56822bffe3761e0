"""Real server processes: life and death, sockets, tokens, launches, and whole epochs over the wire."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from real import SHARDS, SPEC, StandIn, config, eventually, frame, left_over, rows, running, stage, start

from tailrace.errors import CorruptionError, FencedError, StateServerError, SumOverflowError
from tailrace.operators.frame import Frame
from tailrace.server.client import StateClient, connect, disconnect
from tailrace.server.launch import sweep
from tailrace.server.protocol import ServerAddress, ServerConfig, StageKey, Winner


@pytest.fixture
def executor() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.end()


@pytest.fixture
def common(tmp_path: Path) -> ServerConfig:
    return config(tmp_path / "store")


@pytest.fixture
def address(common: ServerConfig, executor: StandIn, short_path: Path) -> Iterator[ServerAddress]:
    found = start(common, executor, short_path)
    yield found
    executor.end()
    assert eventually(lambda: not running(found.pid)), "a server outlived its executor"
    assert left_over(short_path) == []


@pytest.fixture
def client(address: ServerAddress, common: ServerConfig) -> Iterator[StateClient]:
    opened = StateClient(address, common.access)
    opened.open(range(SHARDS))
    yield opened
    opened.close()


def test_an_epoch_over_the_wire(client: StateClient, common: ServerConfig) -> None:
    run = common.run
    winners = [stage(client, run, 0, 0, 9, 1, frame([1, 2]), frame([3])), stage(client, run, 0, 0, 8, 0, frame([1]))]
    done = client.run_epoch(0, 0, winners, 0, 0, commit=True)
    assert rows(done.batches) == {1: (2, 2), 2: (1, 2), 3: (1, 3)}
    assert done.applied.rows == 4
    assert rows(list(client.emission(0, 0))) == rows(list(client.emission(0, 0, (0, 1)))) == rows(done.batches)
    assert done.committed is not None and done.committed.delta is not None
    assert done.committed.delta.last_epoch == 0

    client.prepare(1, 0, [stage(client, run, 1, 0, 20, 0, frame([3]))])
    assert client.apply(1, 0).rows == 1
    assert client.advance(1, 0, 0, 0).rows == 1
    second = client.commit(1, 0)
    assert second.delta is not None and second.delta.first_epoch == 1
    client.forget(0)
    status = client.status()
    assert (status.epoch, status.rows, status.staged_bytes, status.shards) == (1, 3, 0, SHARDS)
    with pytest.raises(FencedError, match="is over"):
        client.apply(0, 0)

    # A survivor's shards are read back by another server from what was committed.
    client.assign(range(4), [], 1, 1)
    client.assign(range(SHARDS), [done.committed.delta, second.delta], 1, 2)
    assert client.status().rows == 3
    again = client.run_epoch(2, 2, [stage(client, run, 2, 2, 30, 0, frame([1, 2, 3]))], 0, 0, commit=False)
    assert rows(again.batches) == {1: (3, 3), 2: (2, 4), 3: (3, 9)}


def test_a_refused_stream_tells_its_task_why(client: StateClient, common: ServerConfig) -> None:
    winner = stage(client, common.run, 0, 0, 8, 0, frame([1]))
    client.prepare(0, 0, [winner])
    with pytest.raises(FencedError, match="has its winners"):
        stage(client, common.run, 0, 0, 9, 0, frame([1]))
    with pytest.raises(FencedError, match="belongs to run"):
        stage(client, "ffffffffffffffff", 0, 0, 9, 0, frame([1]))


def test_a_zombie_in_the_middle_of_its_stream_is_refused(client: StateClient, common: ServerConfig) -> None:
    zombie = client.stage(StageKey(common.run, SPEC.name, 0, 0, 7, 0))
    zombie.write(frame([5]))
    done = client.run_epoch(0, 0, [stage(client, common.run, 0, 0, 8, 0, frame([1]))], 0, 0, commit=False)
    assert rows(done.batches) == {1: (1, 1)}
    with pytest.raises(FencedError, match="went on without it"):
        zombie.write(frame([5]))
        zombie.finish()
    assert eventually(lambda: client.status().staged_bytes == 0)


def test_a_stream_that_breaks_off_leaves_nothing(client: StateClient, common: ServerConfig) -> None:
    writer = client.stage(StageKey(common.run, SPEC.name, 0, 0, 7, 0))
    sent = frame([5])
    writer.write(sent)
    writer.abort()
    assert eventually(lambda: client.status().staged_bytes == 0)
    with pytest.raises(StateServerError, match="1 rows missing"):
        client.prepare(0, 0, [Winner(0, 7, 1, sent.checksum())])


def test_a_stream_without_rows_needs_no_server(client: StateClient, common: ServerConfig) -> None:
    winner = stage(client, common.run, 0, 0, 7, 0)
    assert (winner.rows, winner.checksum) == (0, 0)
    assert client.run_epoch(0, 0, [winner], 0, 0, commit=True).batches == []


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
        client.assign([], [], 0, 1)
        client.assign(range(SHARDS), [done.committed.delta], 0, 2)
    with pytest.raises(StateServerError, match="has lost its state"):
        client.run_epoch(1, 0, [], 0, 0, commit=False)


def test_large_frames_pass_and_spill(client: StateClient, common: ServerConfig) -> None:
    one = frame(list(range(1000)))
    repeat = 2000
    large = Frame(np.tile(one.rows, (repeat, 1)), one.heap, one.bounds * repeat)
    large = Frame(np.ascontiguousarray(np.repeat(one.rows, repeat, axis=0)), one.heap, one.bounds * repeat)
    assert large.nbytes > 64 << 20
    winner = stage(client, common.run, 0, 0, 7, 0, large, one)
    status = client.status()
    assert status.spilled_bytes == large.nbytes
    assert status.staged_bytes == large.nbytes + one.nbytes
    done = client.run_epoch(0, 0, [winner], 0, 0, commit=False)
    assert done.applied.rows == 1000 * (repeat + 1)
    assert rows(done.batches)[7] == (repeat + 1, 7 * (repeat + 1))
    assert client.status().staged_bytes == 0


def test_two_threads_stage_at_once(client: StateClient, common: ServerConfig) -> None:
    winners: list[Winner] = []

    def work(partition: int) -> None:
        frames = [frame(list(range(at, at + 100))) for at in range(0, 1000, 100)]
        winners.append(stage(client, common.run, 0, 0, 50 + partition, partition, *frames))

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = client.run_epoch(0, 0, winners, 0, 0, commit=False)
    assert rows(done.batches) == {key: (4, 4 * key) for key in range(1000)}


def test_socket_and_folder_are_private(address: ServerAddress) -> None:
    path = address.uri.removeprefix("grpc+unix://")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for folder in (Path(path).parent, Path(path).parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("token", ["", "secret-tokem", "secret-token2"])
def test_a_wrong_token_opens_nothing(address: ServerAddress, common: ServerConfig, token: str) -> None:
    stranger = StateClient(address, replace(common.access, token=token))
    calls = [
        stranger.status,
        lambda: stranger.open(range(SHARDS)),
        lambda: stage(stranger, common.run, 0, 0, 7, 0, frame([1])),
        lambda: list(stranger.emission(0, 0)),
    ]
    for call in calls:
        with pytest.raises(StateServerError, match="token"):
            call()
    stranger.shutdown()
    assert running(address.pid)
    stranger.close()


def test_secrets_are_not_in_the_process_list(address: ServerAddress) -> None:
    for file in ("cmdline", "environ"):
        assert b"secret-token" not in Path(f"/proc/{address.pid}/{file}").read_bytes()


def test_tcp(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    common = config(tmp_path / "store", transport="tcp")
    found = start(common, executor, short_path, host="127.0.0.1")
    assert found.uri.startswith("grpc://127.0.0.1:")
    reached = connect(found, common.access)
    assert reached is connect(found, common.access)
    reached.open(range(SHARDS))
    done = reached.run_epoch(0, 0, [stage(reached, common.run, 0, 0, 1, 0, frame([1]))], 0, 0, commit=True)
    assert rows(done.batches) == {1: (1, 1)}
    with pytest.raises(StateServerError, match="token"):
        StateClient(found, replace(common.access, token="x")).status()
    disconnect(common.run)


def test_it_ends_when_told_and_leaves_nothing(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    found = start(common, executor, short_path)
    client = StateClient(found, common.access)
    client.open(range(SHARDS))
    client.shutdown()
    assert eventually(lambda: not running(found.pid))
    assert left_over(short_path) == []
    client.shutdown()  # of one that is gone
    with pytest.raises(StateServerError, match=f"state server {found.server} .*cannot be reached"):
        client.status()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_by_signal(common: ServerConfig, executor: StandIn, short_path: Path, number: signal.Signals) -> None:
    found = start(common, executor, short_path)
    os.kill(found.pid, number)
    assert eventually(lambda: not running(found.pid))
    assert left_over(short_path) == []


def test_it_ends_when_its_executor_is_killed(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    found = start(common, executor, short_path)
    client = StateClient(found, common.access)
    client.open(range(SHARDS))
    stage(client, common.run, 0, 0, 7, 0, frame([1]))
    os.kill(executor.facts.pid, signal.SIGKILL)  # not waited for: a zombie must count as dead
    assert eventually(lambda: not running(found.pid))
    assert left_over(short_path) == []


def test_it_ends_when_nobody_opens_it(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    forgotten = start(config(tmp_path / "store", open_timeout_s=0.5), executor, short_path)
    assert eventually(lambda: not running(forgotten.pid))
    assert left_over(short_path) == []


def test_a_killed_server_is_replaced(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    first = start(common, executor, short_path)
    assert start(common, executor, short_path) == first
    os.kill(first.pid, signal.SIGKILL)
    assert eventually(lambda: not running(first.pid))
    second = start(common, executor, short_path)
    assert (second.server, second.pid) != (first.server, first.pid)
    StateClient(second, common.access).open(range(SHARDS))


def test_launches_at_the_same_time_start_one_server(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from pathlib import Path\n"
        "from tailrace.env import processes\n"
        "from tailrace.server.launch import ensure_server\n"
        "from tailrace.server.protocol import ServerConfig\n"
        "config = ServerConfig(run='a' * 16, token='t', operators=(), store_uri=sys.argv[2])\n"
        "print(ensure_server(config, executor=processes.facts(int(sys.argv[3])), temporary=sys.argv[4]).pid)\n"
    )
    arguments = [":".join(sys.path), str(tmp_path), str(executor.facts.pid), str(short_path)]
    tasks = [
        subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    pids = {task.communicate(timeout=60)[0].strip() for task in tasks}
    assert len(pids) == 1 and pids.pop().isdigit()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    broken = config(
        tmp_path, transport="tcp", tls_cert_path=str(tmp_path / "no.pem"), tls_key_path=str(tmp_path / "no.key")
    )
    with pytest.raises(StateServerError, match=r"ended with code 1. The end of its log:(.|\n)*no\.pem"):
        start(broken, executor, short_path)
    assert left_over(short_path) == []


def test_an_engine_that_cannot_be_built_says_so(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    wrong = config(tmp_path, operators=("{}",))
    found = start(wrong, executor, short_path)
    with pytest.raises(StateServerError, match="could not start: KeyError"):
        StateClient(found, wrong.access).open(range(SHARDS))


def test_folders_of_dead_runs_are_swept(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    base = short_path / f"tailrace-{os.getuid()}"
    base.mkdir(mode=0o700)
    dead = base / f"{'b' * 16}-{executor.facts.pid}-1"  # that pid, but another process: the start time differs
    dead.mkdir()
    (dead / "address.json").write_text("{}")
    stranger = base / "something-else"
    stranger.mkdir()
    start(common, executor, short_path)
    assert not dead.exists()
    assert stranger.exists()
    assert sweep(str(base)) == []
    stranger.rmdir()


def test_a_folder_that_others_may_enter_is_refused(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    base = short_path / f"tailrace-{os.getuid()}"
    base.mkdir()
    base.chmod(0o755)
    with pytest.raises(PermissionError, match="only this user"):
        start(common, executor, short_path)
