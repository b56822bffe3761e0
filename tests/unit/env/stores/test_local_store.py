"""Local files: what is synced when, what a crash of the machine may take, and errors that say what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.stores.faulty import SimulatedCrash, SimulatedDisk
from tailrace.env.files import disk as disk_module
from tailrace.env.files.disk import Disk, FileLock
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, FencedError


@pytest.fixture
def trace(monkeypatch) -> list[str]:
    """The system calls that matter for durability, in order."""
    seen: list[str] = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def name(fd: int) -> str:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        return "temporary" if path.parent.name == ".tmp" else path.name

    monkeypatch.setattr(disk_module.os, "fsync", lambda fd: (seen.append(f"sync {name(fd)}"), fsync(fd)))
    monkeypatch.setattr(disk_module.os, "link", lambda a, b: (seen.append(f"link {b.name}"), link(a, b)))
    monkeypatch.setattr(disk_module.os, "replace", lambda a, b: (seen.append(f"rename {b.name}"), replace(a, b)))
    return seen


def test_a_put_is_synced_before_it_is_named_and_its_name_after(tmp_path, trace) -> None:
    store = LocalStore(tmp_path / "state")
    store.put("log/1", [b"x"])
    trace.clear()
    store.put("log/2", [b"x"])
    assert trace == ["sync temporary", "rename 2", "sync log"]
    trace.clear()
    store.put_if_absent("log/3", b"x")
    assert trace == ["sync temporary", "link 3", "sync log"]
    trace.clear()
    assert not store.put_if_absent("log/3", b"x")
    assert trace == ["sync temporary", "sync log"] or trace == ["sync temporary", "link 3", "sync log"]


def test_new_folders_are_synced_into_their_parents(tmp_path, trace) -> None:
    LocalStore(tmp_path / "a" / "state").put("log/1", [b"x"])
    made = [f"sync {tmp_path.name}", "sync a", "sync state"]  # a, state, .tmp
    assert trace[:6] == [f"sync {tmp_path.parent.name}", *made, "sync a", "sync state"]  # and log, in one that is there


@pytest.mark.parametrize("seed", range(6))
def test_what_is_listed_lasts_though_its_writer_was_killed_before_the_sync(seed) -> None:
    class Killed(BaseException):
        pass

    class DiesBeforeTheSync(SimulatedDisk):
        armed = True

        def sync_folder(self, path: Path) -> None:
            if self.armed:
                self.armed = False
                raise Killed
            super().sync_folder(path)

    disk = DiesBeforeTheSync(seed)
    with pytest.raises(Killed):
        LocalStore("/state", disk).put("log/1", [b"x"])
    listed = LocalStore("/state", disk).list("log/")
    disk.restart()
    assert (
        [each.name for each in listed] == [each.name for each in LocalStore("/state", disk).list("log/")] == ["log/1"]
    )


def test_a_store_that_is_only_read_leaves_no_trace(tmp_path) -> None:
    store = LocalStore(tmp_path / "state")
    assert store.list("") == []
    with pytest.raises(FileNotFoundError):
        store.get("a")
    store.delete(["a"])
    store.sweep(lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_put_writes_many_and_large_parts(tmp_path) -> None:
    parts = [bytes([n % 251]) * (n % 7) for n in range(3000)] + [b"z" * (3 << 20)] + [b"e"]
    disk = Disk()
    assert disk.write_synced(tmp_path / "f", iter(parts)) == sum(map(len, parts))
    assert (tmp_path / "f").read_bytes() == b"".join(parts)
    with pytest.raises(FileExistsError):
        disk.write_synced(tmp_path / "f", [b""])


def test_a_short_write_is_continued(tmp_path, monkeypatch) -> None:
    writev = os.writev
    monkeypatch.setattr(
        disk_module.os, "writev", lambda fd, views: writev(fd, [views[0][: max(1, len(views[0]) // 2)]])
    )
    Disk().write_synced(tmp_path / "f", [b"0123456789", b"", b"abc"])
    assert (tmp_path / "f").read_bytes() == b"0123456789abc"


def test_nothing_temporary_is_left_or_listed(tmp_path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", [b"x"])
    store.put_if_absent("a", b"y")
    assert list((tmp_path / ".tmp").iterdir()) == []
    (tmp_path / ".tmp" / "left").write_bytes(b"x")
    (tmp_path / "lock").write_bytes(b"x")
    assert [each.name for each in store.list("")] == ["a"]
    store.sweep(lambda: None)
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_what_a_newer_run_writes_is_not_swept(tmp_path) -> None:
    """It may begin between the listing of what is left over and the look at the fence, or behind that look."""
    store, others = LocalStore(tmp_path), tmp_path / ".tmp" / "others"
    store.put("a", [b"x"])
    left = tmp_path / ".tmp" / "left"
    left.write_bytes(b"x")
    store.sweep(lambda: others.write_bytes(b"half a put"))
    assert others.exists() and not left.exists()

    def refuse() -> None:
        raise FencedError("replaced")

    with pytest.raises(FencedError):
        store.sweep(refuse)
    assert others.exists()


def test_a_put_whose_temporary_file_was_swept_is_made_again(tmp_path) -> None:
    """By a run on another machine, which began a moment earlier and takes it for what a killed one has left."""
    other = LocalStore(tmp_path)

    class Swept(Disk):
        times = 0

        def link(self, source: Path, target: Path) -> bool:
            if self.times:
                self.times -= 1
                other.sweep(lambda: None)
            return super().link(source, target)

    disk = Swept()
    store = LocalStore(tmp_path, disk)
    disk.times = 2
    assert store.put_if_absent("fence", b"mine") and store.get("fence") == b"mine"
    disk.times = 1
    assert not store.put_if_absent("fence", b"another")
    disk.times = 99
    with pytest.raises(CheckpointError, match="Something else deletes below the state location"):
        store.put_if_absent("never", b"x")
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.parametrize("seed", range(30))
def test_what_was_put_survives_any_crash_and_what_was_not_is_whole_or_absent(seed: int, tmp_path) -> None:
    disk = SimulatedDisk(seed, crash_at=5 + seed)
    done: dict[str, bytes] = {}
    trying: tuple[str, bytes] = ("", b"")
    try:
        store = LocalStore(tmp_path, disk)
        for each in range(100):
            trying = (f"n{each % 5}", b"%d" % each * 50)
            if each % 2:
                store.put(trying[0], [trying[1]])
                done[trying[0]] = trying[1]
            elif store.put_if_absent(trying[0], trying[1]):
                done[trying[0]] = trying[1]
    except SimulatedCrash:
        pass
    disk.restart()
    store = LocalStore(tmp_path, disk)
    kept = {each.name: store.get(each.name) for each in store.list("")}
    if trying[0] in kept and kept[trying[0]] != done.get(trying[0]):
        assert kept.pop(trying[0]) == trying[1]
        done.pop(trying[0], None)
    assert kept == done


def test_a_put_without_its_folder_sync_would_be_lost(tmp_path, monkeypatch) -> None:
    """The simulated disk does see a missing sync: else the test above would prove nothing."""
    monkeypatch.setattr(SimulatedDisk, "sync_folder", lambda self, path: None)
    lost = 0
    for seed in range(20):
        disk = SimulatedDisk(seed)
        LocalStore(tmp_path, disk).put("a", [b"x"])
        disk.restart()
        lost += LocalStore(tmp_path, disk).list("") == []
    assert 0 < lost < 20


def test_errors_name_the_place_and_say_what_to_do(tmp_path, monkeypatch) -> None:
    store = LocalStore(tmp_path / "state")

    def fail(error: OSError):
        def failing(*_: object) -> None:
            raise error

        monkeypatch.setattr(Disk, "write_synced", failing)

    cases = [
        (PermissionError(13, "Permission denied"), "permission denied.*stateLocation"),
        (OSError(28, "No space left on device"), "No space left.*Free some space"),
        (OSError(30, "Read-only file system"), "read-only.*stateLocation"),
        (OSError(5, "Input/output error"), "Input/output error.*last durable epoch"),
        (FileNotFoundError(2, "No such file"), "has been removed.*location of its own"),
    ]
    for error, message in cases:
        fail(error)
        with pytest.raises(CheckpointError, match=f"{tmp_path}/state/log/1.*{message}"):
            store.put("log/1", [b"x"])
    with pytest.raises(FileNotFoundError, match="state/log/7"):
        store.get("log/7")


def test_a_file_lock_is_exclusive_and_tells_its_holder(tmp_path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire(b"me") is None
    assert second.acquire(b"you") == b"me"
    first.release()
    first.release()
    assert second.acquire(b"you") is None
    second.release()
    assert (tmp_path / "lock").read_bytes() == b""
