"""Servers from the forkserver: the same as fresh ones, and whoever dies meanwhile, no more and no less than one."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from support.processes import MARK, session_servers
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
from tailrace.env.files import scratch
from tailrace.env.forking import Handover, context
from tailrace.env.randomness import short_id
from tailrace.server.process import fork_client
from tailrace.server.process.fork import LINGER_S, Forkserver
from tailrace.server.process.fork_client import LENGTH, SPARK_SECRETS, SWITCH, ForkFolder, request_of
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.folder import ServerFolder
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress

_ONCE = "TAILRACE_TEST_CONTEXT"


@pytest.fixture(scope="module")
def places() -> Iterator[list[ForkFolder]]:
    """Of all tests. Their forkservers end without being told, but linger: they are waited for together."""
    used: list[ForkFolder] = []
    yield used
    for folder in used:
        assert eventually(lambda folder=folder: not forkservers(folder), LINGER_S + 20), "it outlived its executors"
        assert eventually(lambda folder=folder: not os.path.exists(folder.path))


@pytest.fixture
def place(places: list[ForkFolder], monkeypatch: pytest.MonkeyPatch) -> ForkFolder:
    """A context of the test's own, and so a forkserver of its own."""
    monkeypatch.setenv(_ONCE, short_id())
    places.append(ForkFolder(os.path.join(scratch.private_base(0), f"forkserver-{context()}")))
    return places[-1]


@pytest.fixture
def executor(place: ForkFolder) -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.end()


def forkservers(place: ForkFolder) -> list[int]:
    """Without those that compile kernels for them."""
    found = {process.pid: process.ppid() for process in psutil.process_iter() if _works_in(process, place.path)}
    return [pid for pid, parent in found.items() if parent not in found]


def _works_in(process: psutil.Process, folder: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.cwd() == folder
    except psutil.Error:
        return False


def described(address: ServerAddress) -> dict[str, object]:
    """What can be seen of a process from outside."""
    process = Path(f"/proc/{address.pid}")
    wanted = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed", "NoNewPrivs")
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    return {
        **{name: status[name] for name in wanted},
        "command": (process / "cmdline").read_bytes(),
        "folder": os.readlink(process / "cwd") == os.path.dirname(address.log_path),
        "limits": (process / "limits").read_text(),
        "cgroup": (process / "cgroup").read_text(),
        "group": os.getpgid(address.pid),
        "session": os.getsid(address.pid),
        "priority": os.getpriority(os.PRIO_PROCESS, address.pid),
        "streams": [os.path.basename(os.readlink(process / "fd" / str(each))) for each in range(3)],
    }


def open_files(address: ServerAddress) -> list[str]:
    """What it has open but sockets and what belongs to its threads."""
    found = []
    for each in Path(f"/proc/{address.pid}/fd").iterdir():
        with_name = os.readlink(each)
        if with_name.startswith("/"):
            found.append(with_name.replace(os.path.dirname(address.log_path), "<folder>"))
    return sorted(found)


def test_a_forked_server_is_as_a_fresh_one(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        warm, forked = (start(config(tmp_path / "store"), executor, short_path) for _ in range(2))
        monkeypatch.setenv(SWITCH, "off")
        fresh = start(config(tmp_path / "store"), executor, short_path)
    finally:
        os.umask(before)
    parents = [psutil.Process(each.pid).ppid() for each in (warm, forked, fresh)]
    assert parents == [*forkservers(place) * 2, os.getpid()]
    assert described(forked) == described(warm) == described(fresh)
    assert open_files(forked) == open_files(fresh)


def test_a_forked_server_works(tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder) -> None:
    start(config(tmp_path / "other"), executor, short_path)
    common = config(tmp_path / "store")
    address = start(common, executor, short_path)
    assert psutil.Process(address.pid).ppid() in forkservers(place)
    client = StateClient(address, common.access)
    client.open(range(SHARDS))
    done = client.run_epoch(0, 0, [stage(client, common.run, 0, 0, 1, 0, frame([1, 2]))], 0, 0, commit=True)
    assert rows(list(done.batches or ())) == {1: (1, 1), 2: (1, 2)}
    client.shutdown()
    assert eventually(lambda: not running(address.pid))


def test_the_forkserver_is_private(tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder) -> None:
    start(config(tmp_path / "store"), executor, short_path)
    assert stat.S_IMODE(os.stat(place.path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(place.socket).st_mode) == 0o600
    (pid,) = forkservers(place)
    assert b"secret-token" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_call_of_another_user_is_refused(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(config(tmp_path / "store"), executor, short_path)
    monkeypatch.setattr(fork_client, "peer_user", lambda _: os.getuid() + 1)
    address = start(config(tmp_path / "store"), executor, short_path)
    assert psutil.Process(address.pid).ppid() == os.getpid()


def test_servers_outlive_their_forkserver_and_the_next_has_a_new_one(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder
) -> None:
    first = start(config(tmp_path / "store"), executor, short_path)
    (killed,) = forkservers(place)
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: not forkservers(place))
    second = start(config(tmp_path / "store"), executor, short_path)
    assert running(first.pid)
    (forkserver,) = forkservers(place)
    assert psutil.Process(second.pid).ppid() == forkserver != killed


def test_a_forkserver_that_is_killed_while_it_is_asked(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder
) -> None:
    start(config(tmp_path / "store"), executor, short_path)
    (stopped,) = forkservers(place)
    os.kill(stopped, signal.SIGSTOP)
    found: list[ServerAddress] = []
    common = config(tmp_path / "store")
    asking = threading.Thread(target=lambda: found.append(start(common, executor, short_path)), daemon=True)
    asking.start()
    assert eventually(lambda: any(line.endswith(place.socket) and " 02 " in line for line in _unix_sockets()))
    os.kill(stopped, signal.SIGKILL)
    asking.join(60)
    assert [running(each.pid) for each in found] == [True]
    assert start(common, executor, short_path) == found[0]
    assert len(_servers_in(short_path)) == 2


def _unix_sockets() -> list[str]:
    """One that waits to be accepted counts as connecting (02)."""
    return Path("/proc/net/unix").read_text().splitlines()


def _servers_in(temporary: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter()
        if any(_works_in(process, str(folder)) for folder in temporary.glob("tailrace-*/*"))
    ]


def ask(place: ForkFolder, config: ProcessConfig, handover: Handover, log: BinaryIO) -> socket.socket:
    """Have the forkserver fork, and leave what it has forked alone."""
    request = request_of(config, handover)
    mine, its = socket.socketpair()
    with its, socket.socket(socket.AF_UNIX) as line:
        line.connect(place.socket)
        socket.send_fds(line, [LENGTH.pack(len(request))], [log.fileno(), its.fileno()])
        line.sendall(request)
    return mine


@pytest.mark.parametrize("hears", [True, False], ids=["after its answer", "before its answer"])
def test_a_forked_process_that_nobody_lets_go_on_ends(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder, hears: bool
) -> None:
    """As when who has asked is killed: no server may come up that nobody knows of."""
    start(config(tmp_path / "store"), executor, short_path)
    folder = ServerFolder(str(short_path / "given-up"))
    os.mkdir(folder.path)
    owner = (executor.facts.pid, executor.facts.started)
    asked = ProcessConfig("s", folder.path, "localhost", *owner, config(tmp_path / "store"))
    with scratch.open_log(folder.log) as log:
        mine = ask(place, asked, Handover.of_this_process(dict(os.environ), folder.path), log)
    if hears:
        pid, _ = json.loads(mine.recv(256))
        assert running(pid)
    mine.close()
    assert eventually(lambda: not any(_works_in(each, folder.path) for each in psutil.process_iter()))
    assert sorted(os.listdir(folder.path)) == ["log"]
    assert running(start(config(tmp_path / "store"), executor, short_path).pid)


def test_executors_that_ask_at_once_share_one_forkserver(tmp_path: Path, short_path: Path, place: ForkFolder) -> None:
    executors = [StandIn() for _ in range(4)]
    found: list[ServerAddress] = []
    asking = [
        threading.Thread(target=lambda each=each: found.append(start(config(tmp_path), each, short_path)))
        for each in executors
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(90)
    assert len({address.pid for address in found}) == 4
    (forkserver,) = forkservers(place)
    assert {psutil.Process(address.pid).ppid() for address in found} == {forkserver}
    for executor in executors[1:]:
        executor.end()
    alone = [address for address in found if address.executor_pid == executors[0].facts.pid]
    assert eventually(lambda: [each for each in found if running(each.pid)] == alone)
    assert forkservers(place) == [forkserver]
    executors[0].end()


def test_a_forkserver_ends_soon_after_its_last_executor(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder
) -> None:
    address = start(config(tmp_path / "store"), executor, short_path)
    assert forkservers(place)
    executor.end()
    assert eventually(lambda: not running(address.pid) and not forkservers(place), LINGER_S + 10)
    assert not os.path.exists(place.path)
    assert left_over(short_path) == []


def test_a_forkserver_without_its_socket_ends(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder
) -> None:
    start(config(tmp_path / "store"), executor, short_path)
    os.unlink(place.socket)
    assert eventually(lambda: not forkservers(place))


def test_other_limits_are_another_context(place: ForkFolder) -> None:
    here = context()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert context() != here
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert context() == here


def test_changed_sources_are_another_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "tailrace" / "deep" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("one = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = context()
    assert context() == before
    module.write_text("one = 11")
    assert context() != before


def test_without_a_forkserver_a_server_is_started_plainly(
    tmp_path: Path,
    executor: StandIn,
    short_path: Path,
    place: ForkFolder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(fork_client, "_FORKSERVER_WORDS", ("-c", "raise SystemExit('no fork today')"))
    with caplog.at_level(logging.WARNING, "tailrace.server"):
        address = start(config(tmp_path / "store"), executor, short_path)
    assert psutil.Process(address.pid).ppid() == os.getpid()
    assert "started plainly" in caplog.text and "no fork today" in caplog.text
    scratch.remove_tree(place.path)


def test_a_forked_process_that_cannot_begin_is_replaced_by_a_plain_one(
    tmp_path: Path,
    executor: StandIn,
    short_path: Path,
    place: ForkFolder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = Handover.of_this_process({}, str(tmp_path / "no-such-folder"))
    monkeypatch.setattr(Handover, "of_this_process", lambda *_: nowhere)
    with caplog.at_level(logging.WARNING, "tailrace.server"):
        address = start(config(tmp_path / "store"), executor, short_path)
    assert psutil.Process(address.pid).ppid() == os.getpid()
    assert "started plainly" in caplog.text
    assert "no-such-folder" in Path(address.log_path).read_text()


def test_a_forked_process_that_fails_on_a_full_disk_leaves_the_forkserver_alone(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder
) -> None:
    """It cannot even say what is wrong. Whatever it raises, it must not go on as if it were the forkserver."""
    start(config(tmp_path / "store"), executor, short_path)
    (forkserver,) = forkservers(place)
    owner = (executor.facts.pid, executor.facts.started)
    asked = ProcessConfig("s", str(tmp_path), "localhost", *owner, config(tmp_path / "store"))
    with open("/dev/full", "wb", buffering=0) as full:
        mine = ask(place, asked, Handover.of_this_process({}, str(tmp_path / "no-such-folder")), full)
    mine.settimeout(30)
    assert mine.recv(256) == b"", "it has ended without a word"
    mine.close()
    address = start(config(tmp_path / "store"), executor, short_path)
    assert psutil.Process(address.pid).ppid() == forkserver and forkservers(place) == [forkserver]
    assert os.path.exists(place.socket)


def test_a_fork_that_the_system_refuses_ends_nothing(
    tmp_path: Path, executor: StandIn, place: ForkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "too many processes")

    scratch.make_private(place.path)
    alive = scratch.ProcessLock.take(place.alive_lock, 0.0)
    assert alive is not None
    forkserver = Forkserver(place, alive)
    monkeypatch.setattr(os, "fork", refused)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # of this process, which is no forkserver
    asked = ProcessConfig(
        "s", str(tmp_path), "localhost", executor.facts.pid, executor.facts.started, config(tmp_path / "store")
    )
    with open(os.devnull, "wb") as log:
        mine = ask(place, asked, Handover.of_this_process({}, str(tmp_path)), log)
    forkserver._serve()
    assert mine.recv(256) == b"", "who has asked hears at once that there is no server"
    mine.close()
    forkserver._warm_up()
    assert not forkserver._is_over()
    forkserver.close()


def test_executors_of_other_secrets_share_a_forkserver_and_no_server_knows_them(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives the Python workers of each executor a secret of their own."""
    parents = set()
    for secret in ("of-one-executor", "of-another"):
        monkeypatch.setenv(SPARK_SECRETS[0], secret)
        server = psutil.Process(start(config(tmp_path / "store"), executor, short_path).pid)
        parents.add(server.ppid())
        assert SPARK_SECRETS[0] not in server.environ()
    assert [*parents] == forkservers(place)


def _lock_is_free(place: ForkFolder) -> bool:
    lock = scratch.ProcessLock.take(place.alive_lock, 0.0)
    if lock is not None:
        lock.release()
    return lock is not None


def test_what_a_killed_forkserver_leaves_is_removed_by_the_next_of_any_context(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(config(tmp_path / "store"), executor, short_path)
    (killed,) = forkservers(place)
    os.kill(killed, signal.SIGKILL)
    # Its locks are held until the last of its threads is gone, a moment after it counts as dead.
    assert eventually(lambda: not forkservers(place) and _lock_is_free(place)) and os.path.exists(place.socket)
    monkeypatch.setenv(_ONCE, short_id())
    other = ForkFolder(os.path.join(scratch.private_base(0), f"forkserver-{context()}"))
    address = start(config(tmp_path / "store"), executor, short_path)
    assert psutil.Process(address.pid).ppid() in forkservers(other)
    assert not os.path.exists(place.path)
    executor.end()
    assert eventually(lambda: not os.path.exists(other.path), LINGER_S + 20)


def test_a_forkserver_has_no_threads_that_a_fork_would_break(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder
) -> None:
    """Those of OpenBLAS, which have no name of their own, and of jemalloc see to forks themselves."""
    start(config(tmp_path / "store"), executor, short_path)
    (pid,) = forkservers(place)
    named = [each.read_text().strip() for each in Path(f"/proc/{pid}/task").glob("*/comm")]
    plain = named[0]
    assert set(named) <= {plain, "jemalloc_bg_thd"}
    assert named.count(plain) <= (os.cpu_count() or 1)


def test_the_hunt_for_leaks_finds_a_forked_server(
    tmp_path: Path, executor: StandIn, short_path: Path, place: ForkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests look for servers by their command line and by a variable: a leak that they cannot see is none to them."""
    monkeypatch.setenv(MARK, short_id())
    own = ForkFolder(os.path.join(scratch.private_base(0), f"forkserver-{context()}"))
    address = start(config(tmp_path / "store"), executor, short_path)
    assert psutil.Process(address.pid).ppid() in forkservers(own)
    assert [process.pid for process in session_servers()] == [address.pid]
    executor.end()
    assert eventually(lambda: not session_servers() and not os.path.exists(own.path), LINGER_S + 20)


_TWINS = """
import os, random, sys
import numpy as np
from tailrace.env.forking import Handover, take_on
random.seed(7), np.random.seed(7)
variables = {"PATH": "/bin", "TZ": "Asia/Tokyo", "OWN": "1"}
given = Handover(variables, sys.argv[1], ["/somewhere"], os.getpgid(0), 0o077, [0])
for number in range(2):
    if os.fork() == 0:
        log = os.open(sys.argv[1] + f"/log{number}", os.O_WRONLY | os.O_CREAT)
        take_on(given, log, ["server", "words"])
        import time
        print(random.random(), np.random.random())
        print(dict(os.environ), time.tzname[0], os.getcwd() == sys.argv[1], sys.path[0], oct(os.umask(0)))
        words = open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))
        print(words, sorted(os.sched_getaffinity(0)), flush=True)
        os._exit(0)
    os.wait()
"""


def test_twins_share_nothing_but_what_they_were_given(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _TWINS, str(tmp_path)], check=True, timeout=60)
    (chance, *said), (other_chance, *other_said) = (
        (tmp_path / f"log{each}").read_text().splitlines() for each in (0, 1)
    )
    assert chance.split()[0] != other_chance.split()[0]
    assert chance.split()[1] != other_chance.split()[1]
    assert said == other_said
    assert said[0] == "{'PATH': '/bin', 'TZ': 'Asia/Tokyo', 'OWN': '1'} JST True /somewhere 0o77"
    assert said[1] == "['server', 'words'] [0]"
