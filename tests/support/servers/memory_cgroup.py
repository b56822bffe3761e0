"""A memory cgroup of a test's own, where the system lets one be made: a limit that the kernel sees to.

What is limited is all memory of the processes in it, pages that they share counted once, and the page cache of the
files that they read and write, which the kernel takes back when it is short of room. A process that needs more is
killed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_BASE = Path("/sys/fs/cgroup")


class MemoryCgroup:
    def __init__(self, path: Path, limit_file: str, peak_file: str, limit_bytes: int) -> None:
        self.path = path
        self._peak = path / peak_file
        (path / limit_file).write_text(str(limit_bytes))

    @classmethod
    def made(cls, limit_bytes: int) -> MemoryCgroup | None:
        """None where there are no such groups, or none may be made."""
        name = f"tailrace-test-{os.getpid()}-{time.monotonic_ns()}"
        for base, limit, peak in (
            (_BASE / "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            (_BASE, "memory.max", "memory.peak"),
        ):
            path = base / name
            with suppress(OSError):
                path.mkdir()
                try:
                    return cls(path, limit, peak, limit_bytes)
                except OSError:
                    path.rmdir()
        return None

    def has(self, pid: int) -> bool:
        """Whether the process is in it."""
        return str(pid) in (self.path / "cgroup.procs").read_text().split()

    @property
    def peak_bytes(self) -> int:
        return int(self._peak.read_text())

    def remove(self, timeout_s: float = 20.0) -> None:
        """Once its processes have ended."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.path.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
