"""The rows of a stream's file, in memory or read as they are sent; sensors' are looped, production's end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tailrace.errors import TailraceError


def rows_of(path: Path, looped: bool, in_memory: bool, first: int = 0, step: int = 1) -> Iterator[bytes]:
    """Rows ``first``, ``first + step`` and so on, as if the file followed itself for ever where it is ``looped``."""
    if not path.is_file():
        raise TailraceError(f"{path} is missing: make the files of a run by `tailrace espbench generate`")
    if in_memory:
        lines = path.read_bytes().split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        if not lines:
            raise TailraceError(f"{path} has no rows")
        at = first
        while looped or at < len(lines):
            yield lines[at % len(lines)]
            at += step
        return
    skip = first
    while True:
        with path.open("rb") as file:
            read = 0
            for read, line in enumerate(file, 1):  # noqa: B007 (how many there are)
                if skip:
                    skip -= 1
                    continue
                skip = step - 1
                yield line.rstrip(b"\n")
        if not read:
            raise TailraceError(f"{path} has no rows")
        if not looped:
            return
