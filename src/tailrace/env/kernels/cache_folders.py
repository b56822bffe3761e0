"""Folders of compiled code: which are in use, and the removal of those that nobody used for long.

A folder is named by the digest of its sources (``source_digest``); once these change, nobody finds it again.

Invariants
- A folder in use holds a marker: its time is that of the last beginning of a use, and each process that uses the folder
  holds a shared lock on it until it ends. Processes that were forked hold it along.
- A folder is removed only under an exclusive lock on its marker, so by nobody while a process uses it. It is renamed
  first: who comes meanwhile makes a new one, and who has opened the old marker sees that it is no longer there.
- A folder without a marker gets one: it counts as used when it was first seen.
- A folder may say that all its code was compiled for a kind of machine: that goes with the folder.
- Nothing here fails: without a lock, or with a disk that refuses, code is compiled once more or a folder stays.
- The machine's own clock counts, whatever a simulator says: the files are the machine's.

Threads: any number, in any number of processes.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from tailrace.env.clock import SYSTEM

UNUSED_DAYS_MAX = 14
_UNUSED_S_MAX = UNUSED_DAYS_MAX * 24 * 3600
_MARKER = ".used"
_WHOLE = ".whole-"
_DIGEST = re.compile("[0-9a-f]{16}")
_GONE = re.compile(r"\.[0-9a-f]{16}\.[0-9]+\.gone")
_TRIES = 50
_TRY_AGAIN_S = 0.02

_held: dict[Path, int | None] = {}
"""Descriptors of markers, open while this process lives; None where there was no lock to be had."""
_guard = threading.Lock()


def hold(folder: Path) -> None:
    """This process uses the folder from now on. Made where it is missing."""
    with _guard:
        if folder not in _held:
            _held[folder] = None
            with suppress(OSError):
                _held[folder] = _locked_marker(folder)


def _locked_marker(folder: Path) -> int | None:
    for _ in range(_TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # removed since
            descriptor = _open_marker(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_there(descriptor, folder):
                    with suppress(PermissionError):  # another user's
                        os.utime(descriptor)
                    return descriptor
            except BlockingIOError:
                SYSTEM.sleep(_TRY_AGAIN_S)  # somebody removes it: that is soon done
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    return None


def mark_whole(folder: Path, machine: str) -> None:
    """All code of this folder was compiled for such a machine."""
    with suppress(OSError):
        (folder / f"{_WHOLE}{machine}").touch()


def is_whole(folder: Path, machine: str) -> bool:
    return (folder / f"{_WHOLE}{machine}").exists()


def remove_unused(base: Path) -> list[str]:
    """Remove the folders of ``base`` that nobody uses or has used for `UNUSED_DAYS_MAX`: their names.

    Call it after `hold` of what this process will use, or it may remove that first.
    """
    removed = []
    with suppress(OSError):
        for name in sorted(os.listdir(base)):
            if _GONE.fullmatch(name):  # who has renamed it did not live to remove it
                shutil.rmtree(base / name, ignore_errors=True)
            elif _DIGEST.fullmatch(name):
                with suppress(OSError):
                    if _remove_if_unused(base / name):
                        removed.append(name)
    return removed


def _remove_if_unused(folder: Path) -> bool:
    gone = folder.with_name(f".{folder.name}.{os.getpid()}.gone")
    descriptor = _open_marker(folder, os.O_RDWR)
    try:
        if not _is_old(descriptor):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Looked at again: somebody may have used it, or removed it, before the lock was ours.
        if not _is_old(descriptor) or not _is_there(descriptor, folder):
            return False
        folder.rename(gone)
    finally:
        os.close(descriptor)
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _open_marker(folder: Path, access: int) -> int:
    return os.open(folder / _MARKER, access | os.O_CREAT, 0o644)


def _is_old(descriptor: int) -> bool:
    return SYSTEM.now() - os.fstat(descriptor).st_mtime > _UNUSED_S_MAX


def _is_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder / _MARKER))
    except FileNotFoundError:
        return False
