"""The forkserver: private, gone soon after its last executor, unharmed by what becomes of those it has forked."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from support.servers.forkservers import CONTEXT, Forks, fork_folder, forkservers, parent, works_in
from support.servers.state_servers import (
    eventually,
    left_over,
    running,
)
from tailrace.env.files import scratch
from tailrace.env.forking import Handover
from tailrace.env.randomness import short_id
from tailrace.server.process.fork import LINGER_S, Forkserver
from tailrace.server.process.fork_client import ForkFolder
from tailrace.server.transport.folder import ServerFolder


def test_the_forkserver_is_private(shared_forks: Forks) -> None:
    shared_forks.start()
    assert stat.S_IMODE(os.stat(shared_forks.place.path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(shared_forks.place.socket).st_mode) == 0o600
    (pid,) = shared_forks.forkservers()
    assert b"secret-token" not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize("hears", [True, False], ids=["after its answer", "before its answer"])
def test_a_forked_process_that_nobody_lets_go_on_ends(shared_forks: Forks, hears: bool) -> None:
    """As when who has asked is killed: no server may come up that nobody knows of."""
    shared_forks.start()
    folder = ServerFolder(str(shared_forks.temporary / "given-up"))
    os.mkdir(folder.path)
    with scratch.open_log(folder.log) as log:
        mine = shared_forks.ask(folder.path, Handover.of_this_process(dict(os.environ), folder.path), log)
    if hears:
        pid, _ = json.loads(mine.recv(256))
        assert running(pid)
    mine.close()
    assert eventually(lambda: not any(works_in(each, folder.path) for each in psutil.process_iter()))
    assert sorted(os.listdir(folder.path)) == ["log"]
    assert running(shared_forks.start().pid)


def test_a_forkserver_ends_soon_after_its_last_executor(forks: Forks) -> None:
    address = forks.start()
    assert forks.forkservers()
    forks.executor.end()
    assert eventually(lambda: not running(address.pid) and not forks.forkservers(), LINGER_S + 10)
    assert not os.path.exists(forks.place.path)
    assert left_over(forks.temporary) == []


def test_what_a_killed_server_leaves_goes_with_the_forkserver(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it warms up, say, and nobody ever starts one here again."""
    monkeypatch.setattr(tempfile, "tempdir", str(forks.temporary))  # so that the forkserver lies beside the server
    found = forks.start()
    os.kill(found.pid, signal.SIGKILL)
    assert eventually(lambda: not running(found.pid)) and left_over(forks.temporary)
    forks.executor.end()
    assert eventually(lambda: left_over(forks.temporary) == [], LINGER_S + 20)


def test_a_forkserver_without_its_socket_ends(forks: Forks) -> None:
    forks.start()
    os.unlink(forks.place.socket)
    assert eventually(lambda: not forks.forkservers())


def test_a_forked_process_that_fails_on_a_full_disk_leaves_the_forkserver_alone(
    tmp_path: Path, shared_forks: Forks
) -> None:
    """It cannot even say what is wrong. Whatever it raises, it must not go on as if it were the forkserver."""
    shared_forks.start()
    (forkserver,) = shared_forks.forkservers()
    nowhere = Handover.of_this_process({}, str(tmp_path / "no-such-folder"))
    with open("/dev/full", "wb", buffering=0) as full:
        mine = shared_forks.ask(str(tmp_path), nowhere, full)
    mine.settimeout(30)
    assert mine.recv(256) == b"", "it has ended without a word"
    mine.close()
    address = shared_forks.start()
    assert parent(address) == forkserver and shared_forks.forkservers() == [forkserver]
    assert os.path.exists(shared_forks.place.socket)


def test_a_fork_that_the_system_refuses_ends_nothing(
    tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "too many processes")

    scratch.make_private(forks.place.path)
    alive = scratch.ProcessLock.take(forks.place.alive_lock, 0.0)
    assert alive is not None
    forkserver = Forkserver(forks.place, alive)
    monkeypatch.setattr(os, "fork", refused)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # of this process, which is no forkserver
    with open(os.devnull, "wb") as log:
        mine = forks.ask(str(tmp_path), Handover.of_this_process({}, str(tmp_path)), log)
    forkserver._serve()
    assert mine.recv(256) == b"", "who has asked hears at once that there is no server"
    mine.close()
    forkserver._warm_up()
    assert not forkserver._is_over()
    forkserver.close()


def _lock_is_free(place: ForkFolder) -> bool:
    lock = scratch.ProcessLock.take(place.alive_lock, 0.0)
    if lock is not None:
        lock.release()
    return lock is not None


def test_what_a_killed_forkserver_leaves_is_removed_by_the_next_of_any_context(
    forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks.start()
    (killed,) = forks.forkservers()
    os.kill(killed, signal.SIGKILL)
    # Its locks are held until the last of its threads is gone, a moment after it counts as dead.
    assert eventually(lambda: not forks.forkservers() and _lock_is_free(forks.place))
    assert os.path.exists(forks.place.socket)
    monkeypatch.setenv(CONTEXT, short_id())
    other = fork_folder()
    address = forks.start()
    assert parent(address) in forkservers(other)
    assert not os.path.exists(forks.place.path)
    forks.executor.end()
    assert eventually(lambda: not os.path.exists(other.path), LINGER_S + 20)


def test_a_forkserver_has_no_threads_that_a_fork_would_break(shared_forks: Forks) -> None:
    """Those of OpenBLAS, which have no name of their own, and of jemalloc see to forks themselves."""
    shared_forks.start()
    (pid,) = shared_forks.forkservers()
    named = [each.read_text().strip() for each in Path(f"/proc/{pid}/task").glob("*/comm")]
    plain = named[0]
    assert set(named) <= {plain, "jemalloc_bg_thd"}
    assert named.count(plain) <= (os.cpu_count() or 1)


def test_a_forkserver_that_ends_leaves_its_folder_to_who_starts_the_next_one(forks: Forks) -> None:
    scratch.make_private(forks.place.path)
    alive = scratch.ProcessLock.take(forks.place.alive_lock, 0.0)
    assert alive is not None
    forkserver = Forkserver(forks.place, alive)
    starting = scratch.ProcessLock.take(forks.place.launch_lock, 0.0)
    assert starting is not None
    forkserver.close()
    assert os.path.exists(forks.place.path), "the next one is being started in it"
    starting.release()
    assert forks.start()
    forks.executor.end()
