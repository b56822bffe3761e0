"""The query's lock: in this process, across processes, on object stores; gone with a killed process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tailrace.commit.lock import QueryLock
from tailrace.env.files.disk import FileLock
from tailrace.env.randomness import new_run_id, short_id
from tailrace.env.stores.location import open_store
from tailrace.errors import CheckpointError, LockedError

HOLDER = """
import sys
from tailrace.commit.lock import QueryLock
from tailrace.env.stores.location import open_store
QueryLock(open_store(sys.argv[1], {"region": "us-east-1"}), "00000000000000aa")
print("held", flush=True)
sys.stdin.read()
"""


def hold(uri: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", HOLDER, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"held\n"
    return child


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_another_process_is_refused_until_it_dies(kind: str, tmp_path) -> None:
    uri = str(tmp_path / "state") if kind == "local" else f"s3://bucket-{short_id()}/x"
    child = hold(uri)
    try:
        store = open_store(uri, {} if kind == "local" else {"region": "us-east-1"})
        with pytest.raises(LockedError) as caught:
            QueryLock(store, new_run_id())
        text = str(caught.value)
        assert uri in text and f"process {child.pid} on {os.uname().nodename}" in text
        assert "run 00000000000000aa, since 2" in text and "Stop that query first" in text
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(20)
    lock = QueryLock(store, new_run_id())
    lock.release()


def test_a_lock_beside_an_object_store_leaves_no_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    store = open_store("memory://somewhere")
    for _ in range(2):
        lock = QueryLock(store, new_run_id())
        assert len(list(tmp_path.rglob("*.lock"))) == 1
        lock.release()
        assert list(tmp_path.rglob("*.lock")) == []


def test_a_lock_on_a_file_that_was_removed_is_taken_on_its_successor(tmp_path) -> None:
    path = tmp_path / "lock"
    first, late = FileLock(path, temporary=True), FileLock(path, temporary=True)
    assert first.acquire(b"first") is None
    held = os.open(path, os.O_RDWR)  # as of one who has opened the file, and waits for its lock
    first.release()
    assert late._take(held, b"late") is None and not path.exists()
    assert late.acquire(b"late") is None
    assert FileLock(path, temporary=True).acquire(b"third") == b"late"
    late.release()
    assert not path.exists()


def test_a_link_to_the_same_place_is_the_same_place(tmp_path) -> None:
    store = open_store(str(tmp_path / "state"))
    (tmp_path / "other").symlink_to(tmp_path / "state")
    lock = QueryLock(store, new_run_id())
    with pytest.raises(LockedError, match="this same process"):
        QueryLock(open_store(str(tmp_path / "other")), new_run_id())
    lock.release()
    lock.release()
    QueryLock(open_store(str(tmp_path / "other")), new_run_id()).release()


def test_releasing_twice_does_not_release_the_next_holder(tmp_path) -> None:
    store = open_store(str(tmp_path))
    first = QueryLock(store, new_run_id())
    first.release()
    second = QueryLock(store, new_run_id())
    first.release()
    with pytest.raises(LockedError, match="this same process"):
        QueryLock(store, new_run_id())
    second.release()
    QueryLock(store, new_run_id()).release()


def test_a_holder_that_has_not_written_its_note_yet(tmp_path) -> None:
    child = hold(str(tmp_path))
    try:
        (tmp_path / "lock").write_bytes(b"")
        with pytest.raises(LockedError, match="in use by another process"):
            QueryLock(open_store(str(tmp_path)), new_run_id())
    finally:
        child.kill()
        child.wait(20)


def test_a_place_that_cannot_be_locked(tmp_path) -> None:
    store = open_store(str(tmp_path / "state"))
    (tmp_path / "state" / "lock").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"Cannot lock .*stateLocation"):
        QueryLock(store, new_run_id())
