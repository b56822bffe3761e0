"""Servers from the forkserver: the same as fresh ones, and whoever dies meanwhile, no more and no less than one."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from support.processes import MARK, session_servers
from support.servers.forkservers import Forks, fork_folder, forkservers, parent, works_in
from support.servers.state_servers import (
    SHARDS,
    StandIn,
    config,
    eventually,
    frame,
    rows,
    running,
    stage,
    start,
)
from tailrace.env.files import scratch
from tailrace.env.forking import Handover
from tailrace.env.randomness import short_id
from tailrace.server.process import fork_client
from tailrace.server.process.fork import LINGER_S
from tailrace.server.process.fork_client import SPARK_SECRETS, SWITCH
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.server_config import ServerAddress


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


def test_a_forked_server_is_as_a_fresh_one(shared_forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        warm, forked = (shared_forks.start() for _ in range(2))
        monkeypatch.setenv(SWITCH, "off")
        fresh = shared_forks.start()
    finally:
        os.umask(before)
    parents = [parent(each) for each in (warm, forked, fresh)]
    assert parents == [*shared_forks.forkservers() * 2, os.getpid()]
    assert described(forked) == described(warm) == described(fresh)
    # A server that warms up has files open for a while.
    assert eventually(lambda: open_files(forked) == open_files(fresh))


def test_a_forked_server_works(tmp_path: Path, shared_forks: Forks) -> None:
    shared_forks.start(config(tmp_path / "other"))
    common = shared_forks.config()
    address = shared_forks.start(common)
    assert parent(address) in shared_forks.forkservers()
    client = StateClient(address, common.access)
    client.open(range(SHARDS))
    done = client.run_epoch(0, 0, [stage(client, common.run, 0, 0, 1, 0, frame([1, 2]))], 0, 0, commit=True)
    assert rows(list(done.batches or ())) == {1: (1, 1), 2: (1, 2)}
    client.shutdown()
    assert eventually(lambda: not running(address.pid))


def test_a_call_of_another_user_is_refused(shared_forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_forks.start()
    monkeypatch.setattr(fork_client, "peer_user", lambda _: os.getuid() + 1)
    address = shared_forks.start()
    assert parent(address) == os.getpid()


def test_servers_outlive_their_forkserver_and_the_next_has_a_new_one(forks: Forks) -> None:
    first = forks.start()
    (killed,) = forks.forkservers()
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: not forks.forkservers())
    second = forks.start()
    assert running(first.pid)
    (forkserver,) = forks.forkservers()
    assert parent(second) == forkserver != killed


def test_a_forkserver_that_is_killed_while_it_is_asked(forks: Forks) -> None:
    forks.start()
    (stopped,) = forks.forkservers()
    os.kill(stopped, signal.SIGSTOP)
    found: list[ServerAddress] = []
    common = forks.config()
    asking = threading.Thread(target=lambda: found.append(forks.start(common)), daemon=True)
    asking.start()
    assert eventually(lambda: any(line.endswith(forks.place.socket) and " 02 " in line for line in _unix_sockets()))
    os.kill(stopped, signal.SIGKILL)
    asking.join(60)
    assert [running(each.pid) for each in found] == [True]
    assert forks.start(common) == found[0]
    assert len(_servers_in(forks.temporary)) == 2


def _unix_sockets() -> list[str]:
    """One that waits to be accepted counts as connecting (02)."""
    return Path("/proc/net/unix").read_text().splitlines()


def _servers_in(temporary: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter()
        if any(works_in(process, str(folder)) for folder in temporary.glob("tailrace-*/*"))
    ]


def test_executors_that_ask_at_once_share_one_forkserver(forks: Forks) -> None:
    executors = [StandIn() for _ in range(4)]
    found: list[ServerAddress] = []
    asking = [
        threading.Thread(target=lambda each=each: found.append(start(forks.config(), each, forks.temporary)))
        for each in executors
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(90)
    assert len({address.pid for address in found}) == 4
    (forkserver,) = forks.forkservers()
    assert {parent(address) for address in found} == {forkserver}
    for executor in executors[1:]:
        executor.end()
    alone = [address for address in found if address.executor_pid == executors[0].facts.pid]
    assert eventually(lambda: [each for each in found if running(each.pid)] == alone)
    assert forks.forkservers() == [forkserver]
    executors[0].end()


def test_without_a_forkserver_a_server_is_started_plainly(
    forks: Forks,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(fork_client, "_FORKSERVER_WORDS", ("-c", "raise SystemExit('no fork today')"))
    with caplog.at_level(logging.WARNING, "tailrace.server"):
        address = forks.start()
    assert parent(address) == os.getpid()
    assert "started plainly" in caplog.text and "no fork today" in caplog.text
    scratch.remove_tree(forks.place.path)


def test_a_forked_process_that_cannot_begin_is_replaced_by_a_plain_one(
    tmp_path: Path,
    shared_forks: Forks,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = Handover.of_this_process({}, str(tmp_path / "no-such-folder"))
    monkeypatch.setattr(Handover, "of_this_process", lambda *_: nowhere)
    with caplog.at_level(logging.WARNING, "tailrace.server"):
        address = shared_forks.start()
    assert parent(address) == os.getpid()
    assert "started plainly" in caplog.text
    assert "no-such-folder" in Path(address.log_path).read_text()


def test_executors_of_other_secrets_share_a_forkserver_and_no_server_knows_them(
    shared_forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives the Python workers of each executor a secret of their own."""
    parents = set()
    for secret in ("of-one-executor", "of-another"):
        monkeypatch.setenv(SPARK_SECRETS[0], secret)
        server = psutil.Process(shared_forks.start().pid)
        parents.add(server.ppid())
        assert SPARK_SECRETS[0] not in server.environ()
    assert [*parents] == shared_forks.forkservers()


def test_the_hunt_for_leaks_finds_a_forked_server(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests look for servers by their command line and by a variable: a leak that they cannot see is none to them."""
    monkeypatch.setenv(MARK, short_id())
    own = fork_folder()
    address = forks.start()
    assert parent(address) in forkservers(own)
    assert [process.pid for process in session_servers()] == [address.pid]
    forks.executor.end()
    assert eventually(lambda: not session_servers() and not os.path.exists(own.path), LINGER_S + 20)
