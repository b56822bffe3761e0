"""Folders of compiled code go when nobody has used them for long, and never under a process that uses them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.env.kernels import cache_folders as kernel_folders
from tailrace.env.kernels import code_cache
from tailrace.env.kernels import compile as compiled

NAMES = [f"{number:016x}" for number in range(4)]
DAY_S = 24 * 3600


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a process that has just begun."""
    held: dict[Path, int | None] = {}
    monkeypatch.setattr(kernel_folders, "_held", held)
    yield
    for descriptor in held.values():
        if descriptor is not None:
            os.close(descriptor)


def unused(base: Path, name: str, days: float) -> Path:
    """A folder with code that was last used so long ago, by nobody who still lives."""
    code = base / name / "state_0" / "kernel.nbc"
    code.parent.mkdir(parents=True)
    code.write_bytes(b"code")
    marker = base / name / ".used"
    marker.touch()
    os.utime(marker, (time.time() - days * DAY_S,) * 2)
    return base / name


def test_what_was_not_used_for_two_weeks_goes_and_nothing_else(tmp_path: Path) -> None:
    old, recent = unused(tmp_path, NAMES[0], 14.1), unused(tmp_path, NAMES[1], 13.9)
    ahead = unused(tmp_path, NAMES[2], -400)  # a clock that was set back
    strangers = [
        unused(tmp_path, name, 99) for name in ("operators_08b1d89a82883fb3", "libraries", NAMES[0].upper() + "F")
    ]
    assert kernel_folders.remove_unused(tmp_path) == [NAMES[0]]
    assert not old.exists()
    assert sorted(tmp_path.iterdir()) == sorted([recent, ahead, *strangers])


def test_a_folder_without_a_marker_counts_as_used_when_it_is_first_seen(tmp_path: Path) -> None:
    folder = unused(tmp_path, NAMES[0], 99)
    (folder / ".used").unlink()
    os.utime(folder, (0, 0))
    assert kernel_folders.remove_unused(tmp_path) == []
    os.utime(folder / ".used", (0, 0))
    assert kernel_folders.remove_unused(tmp_path) == [NAMES[0]]


def test_use_makes_the_folder_and_sets_the_time(tmp_path: Path) -> None:
    old, new = unused(tmp_path, NAMES[0], 99), tmp_path / "not" / "there"
    for folder in (old, new, old):
        kernel_folders.hold(folder)
        assert (folder / ".used").stat().st_mtime > time.time() - DAY_S


def test_a_folder_stays_while_a_process_uses_it_and_goes_after_its_death(tmp_path: Path) -> None:
    folder = tmp_path / NAMES[0]
    text = "import sys; from pathlib import Path; from tailrace.env.kernels import cache_folders as kernel_folders\n"
    text += "kernel_folders.hold(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    try:
        assert child.stdout is not None and child.stdout.readline()
        os.utime(folder / ".used", (0, 0))  # it has been running for long
        assert kernel_folders.remove_unused(tmp_path) == []
    finally:
        child.kill()
        child.communicate()
    assert kernel_folders.remove_unused(tmp_path) == [NAMES[0]]


def test_this_process_does_not_remove_what_it_uses_itself(tmp_path: Path) -> None:
    folder = unused(tmp_path, NAMES[0], 99)
    kernel_folders.hold(folder)
    os.utime(folder / ".used", (0, 0))
    assert kernel_folders.remove_unused(tmp_path) == []


def test_a_folder_that_goes_between_opening_and_locking_its_marker_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unused(tmp_path, NAMES[0], 99)
    flock, removed = fcntl.flock, []

    def removed_before(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        removed.extend(kernel_folders.remove_unused(tmp_path))
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    kernel_folders.hold(folder)
    assert removed == [NAMES[0]]
    assert not (folder / "state_0").exists()
    os.utime(folder / ".used", (0, 0))
    assert kernel_folders.remove_unused(tmp_path) == [], "the lock is on the new folder's marker"


def test_who_uses_a_folder_while_it_is_removed_waits_and_has_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unused(tmp_path, NAMES[0], 99)
    rename, waited = Path.rename, threading.Event()
    user = threading.Thread(target=kernel_folders.hold, args=(folder,))

    class Waiting:
        def sleep(self, seconds: float) -> None:
            waited.set()
            time.sleep(seconds)

        def now(self) -> float:
            return time.time()

    def renamed_late(self: Path, target: Path) -> Path:
        user.start()
        assert waited.wait(60)
        return rename(self, target)

    monkeypatch.setattr(kernel_folders, "SYSTEM", Waiting())
    monkeypatch.setattr(Path, "rename", renamed_late)
    assert kernel_folders.remove_unused(tmp_path) == [NAMES[0]]
    user.join()
    assert not (folder / "state_0").exists()
    os.utime(folder / ".used", (0, 0))
    assert kernel_folders.remove_unused(tmp_path) == []


def test_a_use_that_begins_before_the_lock_is_taken_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = unused(tmp_path, NAMES[0], 99)
    flock = fcntl.flock

    def used_before(descriptor: int, how: int) -> None:
        os.utime(folder / ".used")  # and its process has ended already
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", used_before)
    assert kernel_folders.remove_unused(tmp_path) == []
    assert folder.exists()


def test_what_another_has_not_lived_to_remove_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unused(tmp_path, NAMES[0], 99)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert kernel_folders.remove_unused(tmp_path) == [NAMES[0]]
    assert list(tmp_path.iterdir())
    kernel_folders.remove_unused(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("function", ["os.open", "fcntl.flock", "os.utime", "os.listdir", "pathlib.Path.rename"])
def test_a_disk_that_refuses_fails_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    folder = unused(tmp_path, NAMES[0], 99)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(function, refuse)
        kernel_folders.hold(tmp_path / NAMES[1])
        kernel_folders.remove_unused(tmp_path)
    assert (folder / "state_0" / "kernel.nbc").exists() or function == "os.utime"


def test_places_that_cannot_be_folders_fail_nobody(tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_text("a file")
    kernel_folders.hold(tmp_path / NAMES[0])
    assert kernel_folders.remove_unused(tmp_path) == []
    assert kernel_folders.remove_unused(tmp_path / NAMES[0]) == []
    assert kernel_folders.remove_unused(tmp_path / "missing") == []


def test_kernels_are_held_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_KERNEL_CACHE", str(tmp_path))

    def one(x: int) -> int:
        return x + 1

    one.__module__ = "tailrace.state.rows.arrange_kernels"
    compiled.inlined(one)
    unused(tmp_path, NAMES[0], 99)
    os.utime(code_cache.cache_folder_of(one) / ".used", (0, 0))
    compiled.remove_unused_code()
    assert list(tmp_path.iterdir()) == [code_cache.cache_folder_of(one)]


def test_kernels_are_compiled_once_all_of_every_module_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def __init__(self, function: Any, *signatures: str) -> None:
            self.py_func = function
            self.signatures = list(signatures)

    monkeypatch.setenv("TAILRACE_KERNEL_CACHE", str(tmp_path))
    late = Kernel(compiled.remember_compiled)
    kernels = [Kernel(kernel_folders.hold, "(int64)"), Kernel(compiled.kernel, "(int64)"), late]
    monkeypatch.setattr(compiled, "KERNELS", kernels)
    folders = {code_cache.cache_folder_of(each.py_func) for each in kernels}
    assert len(folders) == 2
    for folder in folders:
        folder.mkdir(parents=True)
    compiled.remember_compiled()
    assert not compiled.are_compiled(), "one kernel of a module is missing"
    late.signatures.append("(float64)")
    compiled.remember_compiled()
    assert compiled.are_compiled()
    with monkeypatch.context() as patch:
        patch.setattr(compiled.binding, "get_host_cpu_name", lambda: "another processor")
        assert not compiled.are_compiled()
    shutil.rmtree(code_cache.cache_folder_of(compiled.kernel))
    assert not compiled.are_compiled()
