"""Times at which records have to be looked at, of state that may be larger than memory: by hash, in memory and on disk.

Invariants
- An entry is a hint, a time and the hash of a key: who takes it looks at the records with that hash, which may have
  moved on or gone, and puts another where needed. One too many does no harm.
- Entries lie in runs sorted by time. In memory each run is more than twice as long as the next; where they take more
  than ``memory_bytes`` together they become one run on disk, and those are merged in tiers (see ``state.tiers``). So
  taking costs what is taken, a search in each of a few runs, and never what waits.
- What an epoch that can be undone has taken is kept; undoing gives it back. What it has put stays: it is only a hint.
- Entries are no state: they are made anew from the records of a shard that is restored.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.metrics import Metrics
from tailrace.state.tiers import newest_to_merge

TIME, HASH = 0, 1
_CHUNK = 1 << 16
"""Entries in memory at once while runs on disk are merged."""


class _DiskRun:
    """Times, and behind them hashes, in one file."""

    def __init__(self, file: ScratchFile, room: int, count: int) -> None:
        self._file = file
        self.disk_bytes = file.nbytes
        self.times, self.hashes = file.sealed((np.int64, 0, count), (np.int64, 8 * room, count))
        self.done = 0

    @property
    def left(self) -> int:
        return len(self.times) - self.done

    def ends(self, until: int) -> int:
        """How many of the entries left are at or before ``until``."""
        return int(np.searchsorted(self.times[self.done :], until, side="right"))

    def first(self, count: int) -> np.ndarray:
        """Copies of the next entries."""
        span = slice(self.done, self.done + count)
        return np.stack([self.times[span], self.hashes[span]], axis=1)

    def read(self, count: int) -> np.ndarray:
        """Copies of the next entries, which are then behind."""
        entries = self.first(count)
        self.done += count
        return entries

    def release(self) -> None:
        self._file.release()

    def close(self) -> None:
        self.times = self.hashes = np.empty(0, np.int64)
        self._file.close()


class Deadlines:
    """``memory_bytes`` None: all of it stays in memory."""

    def __init__(self, shard_count: int, memory_bytes: int | None = None, folder: str | None = None) -> None:
        self._shard_count = shard_count
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._runs: list[np.ndarray] = []  # int64[n, 2] of (time, hash)
        self._disk: list[_DiskRun] = []
        self._taken: list[tuple[int, np.ndarray]] = []  # epoch, entries
        self._dropped: set[int] = set()  # shards whose entries are still among the others
        self.moved = 0  # entries written, taken or merged so far: what it has cost

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs) + sum(run.left for run in self._disk)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs) + sum(entries.nbytes for _, entries in self._taken)

    @property
    def disk_bytes(self) -> int:
        return sum(run.disk_bytes for run in self._disk)

    def metrics(self) -> Metrics:
        return {}

    def put(self, times: np.ndarray, hashes: np.ndarray) -> None:
        if not len(times):
            return
        self._put(_sorted(np.stack([times, hashes], axis=1)))
        self._hold_budget()

    def _put(self, run: np.ndarray) -> None:
        self._runs.append(run)
        self.moved += len(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            both = np.concatenate(self._runs[-2:])
            self.moved += len(both)
            # Stable sorting finds the two sorted halves and merges them.
            self._runs[-2:] = [_sorted(both)]

    def take(self, epoch: int, until: int) -> np.ndarray:
        """Take out the entries at or before ``until``: their hashes, each once, ascending."""
        return np.unique(self.take_entries(epoch, until)[:, HASH])

    def take_entries(self, epoch: int, until: int) -> np.ndarray:
        """Take out the entries at or before ``until``, as (time, hash)."""
        parts, left = [np.empty((0, 2), np.int64)], []
        for run in self._runs:
            cut = int(np.searchsorted(run[:, TIME], until, side="right"))
            parts.append(run[:cut])
            rest = run[cut:]
            base = run if run.base is None else run.base
            if len(rest):
                # What was taken is held in memory with the rest until half is gone.
                left.append(rest if 2 * len(rest) > len(base) else rest.copy())
        self._runs = left
        for disk in self._disk:
            parts.append(disk.read(disk.ends(until)))
            disk.release()
        self._close_empty()
        taken = self._owned(np.concatenate(parts))
        self.moved += len(taken)
        if len(taken):
            self._taken.append((epoch, taken))
        return taken

    def earliest(self, count: int) -> np.ndarray:
        """So many entries with the earliest times, as (time, hash), in no order: copies, which stay where they are."""
        parts = [np.empty((0, 2), np.int64), *(run[:count] for run in self._runs)]
        parts += [disk.first(count) for disk in self._disk]
        entries = self._owned(np.concatenate(parts))
        if len(entries) > count:
            entries = entries[np.argpartition(entries[:, TIME], count)[:count]]
        return entries

    # Epochs ----------------------------------------------------------------------------------------------------------

    def undo(self, epoch: int) -> None:
        back = [entries for number, entries in self._taken if number >= epoch]
        self._taken = [each for each in self._taken if each[0] < epoch]
        if back:
            self._put(_sorted(np.concatenate(back)))
            self._hold_budget()

    def forget(self, epoch: int) -> None:
        self._taken = [each for each in self._taken if each[0] > epoch]

    # Shards ----------------------------------------------------------------------------------------------------------

    def drop_shard(self, shard: int) -> None:
        """Its entries are never taken. They go for good when it comes back, or with the next merging of runs."""
        self._dropped.add(shard)

    def restore(self, shard: int, times: np.ndarray, hashes: np.ndarray) -> None:
        """The entries of a shard that was not there, or was dropped."""
        if shard in self._dropped:
            self._runs = [run for run in map(self._owned, self._runs) if len(run)]
            self._taken = [(epoch, self._owned(entries)) for epoch, entries in self._taken]
            self._rewrite(len(self._disk))
            self._dropped = set()
        self.put(times, hashes)

    def _owned(self, entries: np.ndarray) -> np.ndarray:
        if not self._dropped:
            return entries
        return entries[~np.isin(entries[:, HASH] % self._shard_count, list(self._dropped))]

    # Disk ------------------------------------------------------------------------------------------------------------

    def _hold_budget(self) -> None:
        if self._memory_bytes is None or sum(run.nbytes for run in self._runs) <= self._memory_bytes:
            return
        with suppress(OSError):  # a full disk: entries stay in memory, and the store beside them says so
            entries = self._owned(_sorted(np.concatenate(self._runs)))
            self._write([entries], len(entries))
            self._runs = []
            self._rewrite(newest_to_merge([16 * run.left for run in self._disk]))

    def _rewrite(self, count: int) -> None:
        """The newest runs on disk as one, without what was taken and without dropped shards."""
        old = self._disk[len(self._disk) - count :]
        if not old:
            return
        merged = self._write(self._merged(old), sum(run.left for run in old))
        for run in old:
            run.close()
        self._disk = [*self._disk[: len(self._disk) - count - merged], *self._disk[len(self._disk) - merged :]]

    def _merged(self, runs: Sequence[_DiskRun]) -> Iterator[np.ndarray]:
        """All entries left of these runs by time, a chunk at a time. Changes no run."""
        at = [run.done for run in runs]
        step = max(1, _CHUNK // len(runs))
        while True:
            ahead = [run.times[place : place + step] for run, place in zip(runs, at, strict=True)]
            ends = [times[-1] for times in ahead if len(times)]
            if not ends:
                return
            # No run has an entry beyond its part that comes before this: so what is left comes after the chunk.
            until = min(ends)
            counts = [int(np.searchsorted(times, until, side="right")) for times in ahead]
            parts = [
                np.stack([run.times[place : place + n], run.hashes[place : place + n]], axis=1)
                for run, place, n in zip(runs, at, counts, strict=True)
            ]
            at = [place + n for place, n in zip(at, counts, strict=True)]
            for run in runs:
                run.release()
            yield self._owned(_sorted(np.concatenate(parts)))

    def _write(self, chunks: Iterable[np.ndarray], room: int) -> int:
        """A new run on disk, of at most ``room`` entries; returns how many runs that were, 1 or 0."""
        assert self._folder is not None
        file, count = ScratchFile(self._folder), 0
        try:
            for entries in chunks:
                file.write(entries[:, TIME], 8 * count)
                file.write(entries[:, HASH], 8 * (room + count))
                count += len(entries)
        except BaseException:
            file.close()
            raise
        self.moved += count
        if not count:
            file.close()
            return 0
        self._disk.append(_DiskRun(file, room, count))
        return 1

    def _close_empty(self) -> None:
        empty = [run for run in self._disk if not run.left]
        self._disk = [run for run in self._disk if run.left]
        for run in empty:
            run.close()

    def close(self) -> None:
        for run in self._disk:
            run.close()
        self._runs, self._disk, self._taken = [], [], []


def _sorted(entries: np.ndarray) -> np.ndarray:
    ordered: np.ndarray = entries[np.argsort(entries[:, TIME], kind="stable")]
    return ordered


def split_by_shard(hashes: np.ndarray, shard_count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Hashes, shard by shard."""
    shards = hashes % shard_count
    order = np.argsort(shards, kind="stable")
    shards, hashes = shards[order], hashes[order]
    edges = np.flatnonzero(shards[1:] != shards[:-1]) + 1
    for part in np.split(np.arange(len(hashes)), edges):
        if len(part):
            yield int(shards[part[0]]), hashes[part]
