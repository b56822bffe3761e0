"""Real server processes: life and death, sockets, tokens, launches, and whole epochs over the wire."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from support.servers.state_servers import (
    SHARDS,
    StandIn,
    config,
    eventually,
    frame,
    left_over,
    rows,
    running,
    stage,
    start,
)
from tailrace.env import processes
from tailrace.env.certificates import new_key_pair
from tailrace.env.files import scratch
from tailrace.errors import CertificateError, CheckpointError, StateServerError, UnansweredError
from tailrace.server.process import launch
from tailrace.server.process.launch import _host, end_unresponsive
from tailrace.server.transport.client import StateClient, connect, disconnect
from tailrace.server.transport.folder import sweep
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress, ServerConfig
from tailrace.server.transport.tls import Tls, Trust

_NEW_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
)


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


def test_socket_and_folder_are_private(address: ServerAddress) -> None:
    path = address.uri.removeprefix("grpc+unix://")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for folder in (Path(path).parent, Path(path).parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_wrong_token_opens_nothing(address: ServerAddress, common: ServerConfig) -> None:
    calls: list[Callable[[StateClient], object]] = [
        lambda stranger: stranger.forget(0),
        lambda stranger: stranger.open(range(SHARDS)),
        lambda stranger: stage(stranger, common.run, 0, 0, 7, 0, frame([1])),
        lambda stranger: list(stranger.output(0, 0)),
    ]
    for token in ("", "secret-tokem", "secret-token2"):
        stranger = StateClient(address, replace(common.access, token=token))
        for call in calls:
            with pytest.raises(StateServerError, match="token"):
                call(stranger)
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
        StateClient(found, replace(common.access, token="x")).forget(0)
    disconnect(common.run)


def test_tls_with_a_certificate_of_the_machine(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    assert shutil.which("openssl"), "this test makes a certificate: install openssl"
    cert, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [*_NEW_CERTIFICATE.split(), "-keyout", str(private), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    tls = Tls(Trust(cert.read_text()), chain_path=str(cert), key_path=str(private))
    common = config(tmp_path / "store", transport="tcp", tls=tls)
    found = start(common, executor, short_path, host="localhost")
    assert found.uri.startswith("grpc+tls://localhost:")
    StateClient(found, common.access).open(range(SHARDS))
    with pytest.raises(CertificateError, match="is not the one that this run trusts"):
        StateClient(found, replace(common.access, trust=Trust(), timeout_s=5.0)).forget(0)


def shipped(name: str) -> Tls:
    pair = new_key_pair(name)
    return Tls(Trust(pair.chain, pair.name), chain=pair.chain, key=pair.key)


def test_tls_with_a_certificate_of_the_run(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    tls = shipped("this-run.tailrace.invalid")
    common = config(tmp_path / "store", transport="tcp", tls=tls)
    found = start(common, executor, short_path, host="127.0.0.1")
    assert found.uri.startswith("grpc+tls://127.0.0.1:")
    StateClient(found, common.access).open(range(SHARDS))
    of_another_run = shipped("this-run.tailrace.invalid").trust
    for wrong in (of_another_run, replace(tls.trust, name="other-run.tailrace.invalid"), Trust()):
        with pytest.raises(CertificateError, match="is not the one that this run trusts"):
            StateClient(found, replace(common.access, trust=wrong, timeout_s=5.0)).forget(0)
    for token in ("", "x", common.token[:-1]):
        with pytest.raises(StateServerError, match="token"):
            StateClient(found, replace(common.access, token=token)).forget(0)
    in_plain = replace(found, uri=found.uri.replace("grpc+tls", "grpc"))
    with pytest.raises(StateServerError, match=r"cannot be reached|did not answer"):
        StateClient(in_plain, replace(common.access, timeout_s=1.0)).forget(0)
    assert tls.key is not None
    secret = tls.key.splitlines()[1]
    for file in ("cmdline", "environ"):
        assert secret.encode() not in Path(f"/proc/{found.pid}/{file}").read_bytes()
    assert secret not in repr(common) + Path(found.log_path).read_text()


def test_it_ends_on_request_and_leaves_nothing(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    found = start(common, executor, short_path)
    client = StateClient(found, common.access)
    client.open(range(SHARDS))
    client.shutdown()
    assert eventually(lambda: not running(found.pid))
    assert left_over(short_path) == []
    client.shutdown()  # of one that is gone
    with pytest.raises(StateServerError, match=f"state server {found.server} .*cannot be reached"):
        client.forget(0)


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


def test_calls_to_a_dead_server_do_not_hold_up_its_successor(
    common: ServerConfig, executor: StandIn, short_path: Path
) -> None:
    """After a failed call gRPC lets an address rest, for all clients of the process: a successor must have another."""
    first = start(common, executor, short_path)
    os.kill(first.pid, signal.SIGKILL)
    assert eventually(lambda: not running(first.pid))
    requested: list[bool] = []

    def ask() -> None:
        while not requested:
            with pytest.raises(StateServerError):
                connect(first, replace(common.access, timeout_s=5.0)).forget(0)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    second = start(common, executor, short_path)
    connect(second, common.access).open(range(SHARDS))
    requested.append(True)
    asking.join(10)
    disconnect(common.run)


def test_a_hung_server_is_replaced_when_it_is_named(common: ServerConfig, executor: StandIn, short_path: Path) -> None:
    hung = start(common, executor, short_path)
    os.kill(hung.pid, signal.SIGSTOP)
    with pytest.raises(StateServerError, match="did not answer in time"):
        StateClient(hung, replace(common.access, timeout_s=0.5)).forget(0)
    assert start(common, executor, short_path, suspects=["another"]) == hung
    assert running(hung.pid)
    second = start(common, executor, short_path, suspects=[hung.server])
    assert second.server != hung.server
    assert eventually(lambda: not running(hung.pid))
    StateClient(second, common.access).open(range(SHARDS))
    assert start(common, executor, short_path, suspects=[hung.server]) == second


@pytest.mark.parametrize("wrong", ["pid", "started"])
def test_nothing_but_the_suspect_is_killed(tmp_path: Path, executor: StandIn, short_path: Path, wrong: str) -> None:
    """Its record names another process by now: that one lives on, and so does the suspect."""
    common = config(tmp_path / "store", start_timeout_s=20.0)
    found = start(common, executor, short_path)
    bystander = StandIn()
    other = replace(found, pid=bystander.facts.pid) if wrong == "pid" else replace(found, started="1")
    (Path(found.log_path).parent / "address.json").write_text(json.dumps(asdict(other)))
    with pytest.raises(StateServerError, match=r"cannot be replaced: .* is not the process that has published"):
        start(replace(common, start_timeout_s=0.2), executor, short_path, suspects=[found.server])
    assert running(bystander.facts.pid)
    assert running(found.pid)
    bystander.end()
    StateClient(found, common.access).shutdown()
    assert eventually(lambda: not running(found.pid))


@pytest.mark.parametrize(
    ("stored", "message"), [(None, "is missing there"), ("of run b", "is not what the driver has written")]
)
def test_a_location_that_is_not_the_drivers_is_refused(
    tmp_path: Path, executor: StandIn, short_path: Path, stored: str | None, message: str
) -> None:
    store = tmp_path / "store"
    (store / "log").mkdir(parents=True)
    if stored is not None:
        (store / "log" / "7").write_text(stored)
    wrong = config(store, proof=("log/7", "run a"))
    with pytest.raises(CheckpointError, match=f"executor on far does not see .* {store} .*/log/7 {message}.* share"):
        start(wrong, executor, short_path, host="far")
    assert left_over(short_path) == []


def test_a_location_that_is_the_drivers_is_taken(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    store = tmp_path / "store"
    (store / "log").mkdir(parents=True)
    (store / "log" / "7").write_text("fence of run a")
    good = config(store, proof=("log/7", "run a"))
    found = start(good, executor, short_path)
    (store / "log" / "7").unlink()
    with pytest.raises(CheckpointError):  # also where the server lives already
        start(good, executor, short_path)
    assert running(found.pid)


def test_a_proof_comes_through_to_the_process() -> None:
    given = ProcessConfig("s", "/d", "h", 1, "2", config(Path("/store"), proof=("log/7", "run a")))
    assert ProcessConfig.from_json(given.to_json()) == given


def test_too_little_address_space_is_refused(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    large = config(tmp_path / "store", memory_bytes=64 << 30)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (65 << 30, hard))
    try:
        with pytest.raises(StateServerError, match=r"66560 MB .* 65536 MB needs 67072 MB.*at least 67072m"):
            start(large, executor, short_path)
        assert left_over(short_path) == []
        resource.setrlimit(resource.RLIMIT_AS, (67072 << 20, hard))
        assert running(start(large, executor, short_path).pid)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_an_executor_is_named_as_spark_names_it() -> None:
    words = ["-c", "import time; time.sleep(600)", "--executor-id", "3", "--hostname", "10.1.2.3", "--cores", "1"]
    process = subprocess.Popen([sys.executable, *words])
    try:
        assert eventually(lambda: "--cores" in processes.command(process.pid))
        found = processes.facts(process.pid)
        assert found is not None and _host(found) == "10.1.2.3"
    finally:
        process.kill()
        process.wait()


_LAUNCH = """
import sys, time
from pathlib import Path
from tailrace.env import processes
from tailrace.server.process.launch import ensure_server
from tailrace.server.transport.server_config import ServerConfig
store, executor, temporary, number = sys.argv[1:]
Path(temporary, "ready" + number).touch()
while not Path(temporary, "go").exists():
    time.sleep(0.001)
limits = {"memory_bytes": 1 << 26, "function_timeout_s": 60.0}
config = ServerConfig(run="a" * 16, token="t", operators=(), store_uri=store, **limits)
address = ensure_server(config, executor=processes.facts(int(executor)), temporary=temporary)
print(address.pid, address.log_path)
"""


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder)
    except psutil.Error:
        return False


def test_launches_at_the_same_time_start_one_server(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    arguments = [str(tmp_path), str(executor.facts.pid), str(short_path)]
    tasks = [
        subprocess.Popen([sys.executable, "-c", _LAUNCH, *arguments, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    assert eventually(lambda: len(list(short_path.glob("ready*"))) == 4, 60)
    (short_path / "go").touch()
    answers = {task.communicate(timeout=60)[0].strip() for task in tasks}
    assert len(answers) == 1
    pid, log_path = answers.pop().split()
    found = [each for each in psutil.process_iter() if _works_in(each, Path(log_path).parent)]
    assert [each.pid for each in found] == [int(pid)]


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    tls = Tls(Trust(), chain_path=str(tmp_path / "no.pem"), key_path=str(tmp_path / "no.key"))
    broken = config(tmp_path, transport="tcp", tls=tls)
    with pytest.raises(StateServerError, match=r"ended with code 1. The end of its log:(.|\n)*no\.pem"):
        start(broken, executor, short_path)
    assert left_over(short_path) == []


def test_a_server_that_is_killed_while_it_starts_is_lost_rather_than_unable(
    tmp_path: Path, executor: StandIn, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = subprocess.Popen(["sleep", "60"])
    killed.kill()
    monkeypatch.setattr(launch, "_spawn", lambda *_: killed)
    with pytest.raises(UnansweredError, match=r"ended with code -9"):
        start(config(tmp_path), executor, short_path)
    assert left_over(short_path) == []


def test_an_engine_that_cannot_be_built_says_so(tmp_path: Path, executor: StandIn, short_path: Path) -> None:
    wrong = config(tmp_path, operators=("{}",))
    found = start(wrong, executor, short_path)
    with pytest.raises(StateServerError, match="could not start: KeyError"):
        StateClient(found, wrong.access).open(range(SHARDS))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_server_that_does_not_hear_is_ended_with_its_folder(
    common: ServerConfig, executor: StandIn, short_path: Path, number: signal.Signals
) -> None:
    found = start(common, executor, short_path)
    os.kill(found.pid, number)
    end_unresponsive(found)
    assert left_over(short_path) == []
    assert eventually(lambda: not running(found.pid))


def test_a_server_that_ends_by_itself_meanwhile(
    common: ServerConfig, executor: StandIn, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder goes between two looks at it."""
    found = start(common, executor, short_path)
    read = scratch.read_whole

    def read_and_end(path: str) -> str | None:
        text = read(path)
        os.kill(found.pid, signal.SIGKILL)
        scratch.remove_tree(os.path.dirname(path))
        return text

    monkeypatch.setattr(scratch, "read_whole", read_and_end)
    end_unresponsive(found)
    assert left_over(short_path) == []


def test_the_remains_of_no_server_of_ours_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for log_path in ("", "log", str(tmp_path / "mine" / "log"), "/elsewhere/run-1-2/log"):
        end_unresponsive(ServerAddress("s", "grpc://s", "there", 1, 1, log_path))
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


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
