"""Work on the parts of a store (its shards, its instances), at once where it pays.

Invariant: every part has ended before an error is raised, since nobody may undo while another part is still changing.

Threads: one calls at a time. Work on one part must not change what work on another uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

_PARALLEL_ROWS = 20_000
"""Fewer rows than these are done sooner than threads are woken."""

_Result = TypeVar("_Result")


class PartPool:
    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name) if threads > 1 else None

    def each(self, work: Callable[[int], _Result], parts: Sequence[int], rows: int) -> list[_Result]:
        """What ``work`` gives for each part. ``rows``: of all of them, about."""
        if self._pool is None or rows < _PARALLEL_ROWS:
            return [work(part) for part in parts]
        futures = [self._pool.submit(work, part) for part in parts]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
