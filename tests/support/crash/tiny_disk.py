"""A disk that a test can fill: a small file system of its own where this user may mount one, else a pretended one.

The pretended one is a folder. ``sitecustomize`` of ``tests/support/full_disk``, which the processes of a query find on
their path, lets writes below it fail with the system's own error as long as a file says so.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRETENDED = Path(__file__).parent / "full_disk"
VARIABLE = "TAILRACE_TEST_FULL_DISK"
_SIZE_MB = 8


class TinyDisk:
    def __init__(self, root: Path, mounted: bool) -> None:
        self.root = root
        self.mounted = mounted
        self._filler = root / "filler"

    def environment(self) -> dict[str, str]:
        """For the processes that are to find the disk full."""
        return {} if self.mounted else {VARIABLE: str(self._filler), "PYTHONPATH": str(PRETENDED)}

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            try:
                while self.mounted:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextmanager
def tiny_disk(root: Path, size_mb: int = _SIZE_MB) -> Iterator[TinyDisk]:
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(root)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    print("a disk of its own is mounted" if mounted else "a full disk is pretended")
    try:
        yield TinyDisk(root, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(root)], check=True)
