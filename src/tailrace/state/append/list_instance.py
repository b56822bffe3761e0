"""One instance of the unaligned store: runs in memory, segments on disk, and the prefetch buffer between them.

Invariants
- Rows of a list lie, oldest first, in segments, in runs, in the runs of open epochs: each of these in order of age. So
  reading sources in this order gives the rows in order of arrival. All runs are written out together, which keeps it
  so.
- The buffer holds copies of complete lists as they lie on disk, never a part of one. A list is dropped from it when
  rows arrive for it or are written to disk for it, and when it is removed; a scan of the index builds the buffer anew.
- A scan happens when a wanted list may lie on disk and is not in the buffer, or when the buffer has hardly more left
  than was just taken from it: then it is filled before the next read, which probably needs as much.
- After ``maintain``, bytes on disk are at most ``max_space_amplification`` times the live ones, whether anything is
  read or not; rows before the floor are not live. A compaction fills the buffer anew, as its lists lie elsewhere.
- Lists without triggers are never chosen by a scan: who knows which are due next is asked to say so, when the buffer
  would have been filled (``wants_ahead``).
- Runs that cannot hold a wanted list, by their panes, are skipped: old lists are read, and memory holds new ones.

Threads: one at a time; instances share nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np

from tailrace.env import clock
from tailrace.state.append import due_lists
from tailrace.state.append import list_kernels as lk
from tailrace.state.append.list_runs import GONE, ListRun, Targets, build, merged
from tailrace.state.append.list_segments import written
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.arrange import Slices, row_numbers
from tailrace.state.tiers import newest_to_merge

PIECE_BYTES = 4 << 20

_NO_KEYS = np.empty(0, np.uint64)
_EPOCHS_AHEAD = 4
"""Lists that a caller names are read ahead for so many epochs like the last one, or more where the ratio says so."""

logger = logging.getLogger("tailrace.state")


@dataclass
class Stats:
    """What a store has done since it was made.

    Hits and misses count lists that have rows on disk; a scan is one look at the index on disk, whatever it looks for.
    """

    hits: int = 0
    misses: int = 0
    index_scans: int = 0
    lists_prefetched: int = 0
    lists_evicted: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    compactions: int = 0
    write_cpu_s: float = 0.0
    read_delete_cpu_s: float = 0.0
    compaction_cpu_s: float = 0.0

    def __add__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Settings:
    layout: RecordLayout
    folder: str
    memory_bytes: int
    read_batch_ratio: float
    max_space_amplification: float


@dataclass(frozen=True)
class Found:
    """Lists that were looked for, in one run: rows ``slices`` of the targets numbered ``targets``."""

    targets: np.ndarray
    slices: Slices


@dataclass(frozen=True)
class _Loaded:
    """Lists copied from disk: pieces ``edges[i]:edges[i + 1]`` are of list ``i``, and piece ``p`` is list ``lists[p]``
    of ``sources[segments[p]]``."""

    run: ListRun
    edges: np.ndarray
    sources: list[ListRun]
    segments: np.ndarray
    lists: np.ndarray


class ListInstance:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.layout = settings.layout
        self.floor = -(2**63)  # rows of panes before it can be dropped for good
        self.stats = Stats()
        self._open: list[ListRun] = []  # of epochs that can be undone
        self._runs: list[ListRun] = []
        self._segments: list[ListRun] = []
        self._buffer: _Loaded | None = None
        self._hits_lately = self._misses_lately = 0  # since ``wants_ahead`` was asked
        self._lost_buffer = False

    def rows(self, horizon: int) -> int:
        """Rows that were not removed and do not lie before the horizon, but for a few that do (see ``pane_counts``)."""
        return sum(run.visible_rows(horizon) for run in self._all())

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._all()) + self._buffer_bytes

    @property
    def disk_bytes(self) -> int:
        return sum(segment.disk_bytes for segment in self._segments)

    @property
    def live_disk_bytes(self) -> float:
        """Of the bytes on disk, those of rows that some epoch may still need."""
        return sum(segment.disk_bytes * segment.live_share(self.floor) for segment in self._segments)

    @property
    def segments(self) -> Sequence[ListRun]:
        return self._segments

    @property
    def newest(self) -> ListRun:
        """The run of the newest open epoch."""
        return self._open[-1]

    @property
    def _buffer_bytes(self) -> int:
        return self._buffer.run.nbytes if self._buffer is not None else 0

    @property
    def _lists_ahead(self) -> int:
        return 0 if self._buffer is None else self._buffer.run.lists_there

    def _all(self) -> list[ListRun]:
        return [*self._segments, *self._runs, *self._open]

    # Epochs ----------------------------------------------------------------------------------------------------------

    def build(self, sources: Sequence[Slices], keys: np.ndarray, triggers: np.ndarray) -> ListRun:
        """A run of rows, each a slice; nothing else changes."""
        with self._spending("write_cpu_s"):
            return build(sources, keys, triggers, np.zeros(len(keys), np.uint8), self.layout).run

    def open(self, run: ListRun) -> None:
        """A new epoch with these rows."""
        self._open.append(run)
        self._leave_buffer(run, arrived=True)

    def undo(self, slot: int) -> None:
        """Drop the newest epoch, whose removals have this slot."""
        self._open.pop().close()
        for run in self._all():
            run.restore(slot)

    def forget(self, slot: int) -> None:
        """The oldest epoch will not be undone."""
        self._runs.append(self._open.pop(0))
        for run in self._all():
            run.confirm(slot)

    def add(self, run: ListRun) -> None:
        """Rows that belong to no epoch, of lists that have no others."""
        self._runs.append(run)

    def maintain(self) -> None:
        """Drop runs without live rows, merge runs that have become many, write them where memory is full, compact."""
        with self._spending("write_cpu_s"):
            for runs in (self._runs, self._segments):
                for run in runs:
                    if not run.rows_from(self.floor):
                        run.close()
            self._runs = [run for run in self._runs if len(run)]
            self._segments = [segment for segment in self._segments if len(segment)]
            self._merge_memory(newest_to_merge([run.nbytes for run in self._runs]))
            self._hold_budget()
            self._hold_disk()

    def _merge_memory(self, count: int) -> None:
        if count:
            fresh = merged(self._runs[-count:], self.layout, self.floor)
            self._runs[-count:] = [fresh] if len(fresh) else []

    def _hold_budget(self) -> None:
        """A quarter of the memory is the buffer's; the rest holds runs, and what segments keep in memory."""
        limit = self.settings.memory_bytes * 3 // 4 - sum(segment.nbytes for segment in self._segments)
        if sum(run.nbytes for run in self._runs) <= limit:
            return
        if sum(run.nbytes * run.live_share(self.floor) for run in self._runs) <= limit / 2:
            self._merge_memory(len(self._runs))  # most of it is gone: no need to write
            return
        for run in self._runs:
            self._leave_buffer(run, arrived=False)
        self._write(self._runs, self._segments)
        self._runs = []

    def _hold_disk(self) -> None:
        """Where too much on disk is dead, all segments become one; where they are many, the newest."""
        count = newest_to_merge([segment.disk_bytes for segment in self._segments])
        if self.disk_bytes > self.live_disk_bytes * self.settings.max_space_amplification:
            count = len(self._segments)
        if not count:
            return
        had_buffer = self._buffer is not None
        self._compact(count)
        if had_buffer and self._buffer is None:
            self._read_ahead(_NO_KEYS)

    def _write(self, runs: Sequence[ListRun], others: Sequence[ListRun]) -> None:
        piece_bytes = min(PIECE_BYTES, self.settings.memory_bytes)
        fresh = written(runs, self.layout, self.floor, self.settings.folder, piece_bytes)
        if fresh is not None:
            self.stats.bytes_written += fresh.disk_bytes
        self._segments = [*others, *([] if fresh is None else [fresh])]

    def _compact(self, count: int) -> None:
        """The newest segments become one. Where the disk has no room for that, they stay as they are until later."""
        with self._spending("compaction_cpu_s"):
            old = self._segments[-count:]
            try:
                self._write(old, self._segments[:-count])
            except OSError as error:
                logger.warning("segments in %s were not compacted: %s", self.settings.folder, error)
                return
            self._lost_buffer |= self._buffer is not None
            self._buffer = None  # it names lists by their places
            self.stats.compactions += 1
            for segment in old:
                self.stats.bytes_read += segment.disk_bytes
                segment.close()

    # Reading ---------------------------------------------------------------------------------------------------------

    def find(self, targets: Targets, slot: int) -> list[Found]:
        """The wanted lists, source after source, oldest first; with a slot (not 0), they are removed under it."""
        with self._spending("read_delete_cpu_s"):
            found = self._on_disk(targets, slot)
            for run in (*self._runs, *self._open):
                if not run.may_have(targets):
                    continue
                lists = run.find(targets, self.layout)
                there = np.flatnonzero(lists >= 0)
                if len(there):
                    found.append(Found(there, run.slices(lists[there])))
                    if slot:
                        run.remove(lists[there], slot)
            return found

    def _on_disk(self, targets: Targets, slot: int) -> list[Found]:
        found = []
        left = np.ones(len(targets), np.bool_)
        taken = 0
        if self._buffer is not None:
            there, part = self._take(self._buffer, targets, left, slot)
            left[there] = False
            taken = len(there)
            self.stats.hits += taken
            self._hits_lately += taken
            found.append(part)
        if taken < len(targets) and self._may_hold(targets, left):
            wanted = self._scan(np.unique(targets.keys[left]))
            # Of two lists with one order key, both were loaded, and one may have come from the buffer.
            there, part = self._take(wanted, targets, left, slot)
            self.stats.misses += len(there)
            self._misses_lately += len(there)
            found.append(part)
        elif taken and slot and self._has_triggers and self._lists_ahead < taken + taken // 4:
            self._scan(_NO_KEYS)
        return [part for part in found if len(part.targets)]

    def _may_hold(self, targets: Targets, left: np.ndarray) -> bool:
        """Whether some of those that are left may lie on disk; only they are left then."""
        maybe = np.zeros(len(targets), np.bool_)
        for segment in self._segments:
            if segment.may_have(targets):
                assert segment.prefixes is not None
                lk.may_hold(segment.prefixes, segment.gone, targets.keys, targets.order, maybe)
        left &= maybe
        return bool(left.any())

    def _take(self, loaded: _Loaded, targets: Targets, among: np.ndarray, slot: int) -> tuple[np.ndarray, Found]:
        lists = loaded.run.find(targets, self.layout)
        there = np.flatnonzero((lists >= 0) & among)
        lists = lists[there]
        part = Found(there, loaded.run.slices(lists))
        if slot:
            # Most lists lie in one segment only: then a piece has the number of its list.
            whole = len(loaded.lists) == len(loaded.run)
            pieces = lists if whole else row_numbers(loaded.edges[lists], loaded.edges[lists + 1])
            segments, places = loaded.segments[pieces], loaded.lists[pieces]
            for number in np.flatnonzero(np.bincount(segments)).tolist():
                loaded.sources[number].remove(places[segments == number], slot)
            loaded.run.bury(lists)
        return there, part

    def _scan(self, wanted: np.ndarray) -> _Loaded:
        """One pass over the index of all segments: the lists with these order keys, and a new buffer.

        Where no list has a trigger time, only the wanted lists are looked up: the index is sorted.
        """
        self.stats.index_scans += 1
        self._read_ahead(wanted)
        loaded = self._load(wanted)
        for segment in self._segments:
            segment.release()
        return loaded

    def _read_ahead(self, wanted: np.ndarray) -> None:
        """A new buffer: the lists that are due next by their trigger times, but for those wanted now."""
        if self._has_triggers:
            self._fill_buffer(self._soonest(wanted))

    @property
    def _has_triggers(self) -> bool:
        """Else who knows which lists are due next says so."""
        return any(segment.has_triggers for segment in self._segments)

    def wants_ahead(self) -> int:
        """How many lists are to be read ahead now, by who knows which are due next; 0: there is no need.

        There is none where nothing was missed since this was asked before, and more is left than was taken since.
        """
        hits, misses, lost = self._hits_lately, self._misses_lately, self._lost_buffer
        self._hits_lately = self._misses_lately = 0
        self._lost_buffer = False
        if not self.settings.read_batch_ratio or not (misses or lost or self._lists_ahead < hits + hits // 4):
            return 0
        return max(self._batch_lists, _EPOCHS_AHEAD * (hits + misses))

    def read_ahead(self, keys: np.ndarray, at_most: int) -> None:
        """A new buffer: of the lists with these order keys the first ones that lie on disk, at most so many."""
        with self._spending("read_delete_cpu_s"):
            self._fill_buffer(due_lists.first_of(self._segments, keys, at_most).fitting(self._buffer_room))
            for segment in self._segments:
                segment.release()

    def _fill_buffer(self, keys: np.ndarray) -> None:
        self._buffer = None  # its memory is the new one's
        if len(keys):
            self._buffer = self._load(np.sort(keys))
            self.stats.lists_prefetched += len(self._buffer.run)

    @property
    def _batch_lists(self) -> int:
        """How many lists are read ahead at once."""
        lists_there = sum(segment.lists_there for segment in self._segments)
        return int(np.ceil(self.settings.read_batch_ratio * lists_there))

    @property
    def _buffer_room(self) -> int:
        return self.settings.memory_bytes // 4

    def _load(self, keys: np.ndarray) -> _Loaded:
        """All lists with these order keys (ascending, distinct), copied from disk."""
        lists = [segment.lists_with(keys) for segment in self._segments]
        sources = [segment.slices(chosen) for segment, chosen in zip(self._segments, lists)]
        columns = [
            np.concatenate([getattr(segment.index, name)[chosen] for segment, chosen in zip(self._segments, lists)])
            for name in ("keys", "triggers")
        ] if lists else [np.empty(0, np.uint64), np.empty(0, np.int64)]  # fmt: skip
        built = build(sources, columns[0], columns[1], np.zeros(len(columns[0]), np.uint8), self.layout)
        self.stats.bytes_read += int(built.run.rows.words.nbytes + built.run.rows.heap.nbytes) + 32 * len(columns[0])
        numbers = np.repeat(np.arange(len(lists)), [len(chosen) for chosen in lists])
        places = np.concatenate(lists) if lists else np.empty(0, np.int64)
        return _Loaded(built.run, built.edges, list(self._segments), numbers[built.order], places[built.order])

    def _soonest(self, wanted: np.ndarray) -> np.ndarray:
        """Order keys of the lists on disk that are due next by their trigger times, but not wanted now."""
        if not self.settings.read_batch_ratio:
            return _NO_KEYS
        self._bury_expired()
        found = due_lists.by_triggers(self._segments, (*self._runs, *self._open), self._batch_lists, wanted)
        self.stats.bytes_read += found.bytes_read
        return found.fitting(self._buffer_room)

    def _bury_expired(self) -> None:
        """Lists before the floor are not to be read ahead."""
        for segment in self._segments:
            if segment.pane_min < self.floor:
                self.stats.bytes_read += segment.index.panes.nbytes
                segment.bury_before(self.floor)

    def _leave_buffer(self, run: ListRun, *, arrived: bool) -> None:
        """Drop the lists of these rows from the buffer: they are not complete there any more."""
        if self._buffer is None or not len(run):
            return
        held = self._buffer.run
        at = np.minimum(np.searchsorted(run.index.keys, held.index.keys), len(run) - 1)
        left = np.flatnonzero((run.index.keys[at] == held.index.keys) & (held.gone == 0))
        held.bury(left)
        if arrived:
            self.stats.lists_evicted += len(left)

    # Shards ----------------------------------------------------------------------------------------------------------

    def drop(self, first_key: int, last_key: int) -> None:
        """Lists with order keys in a range are gone, for good and in every epoch."""
        for run in [*self._all(), *([] if self._buffer is None else [self._buffer.run])]:
            low = int(np.searchsorted(run.index.keys, np.uint64(first_key), "left"))
            high = int(np.searchsorted(run.index.keys, np.uint64(last_key), "right"))
            run.bury(low + np.flatnonzero(run.gone[low:high] != GONE))

    def close(self) -> None:
        for run in self._all():
            run.close()
        self._open, self._runs, self._segments, self._buffer = [], [], [], None

    @contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        """Count processor time; what is counted inside as compaction is not counted twice."""
        start, inner = clock.thread_cpu(), self.stats.compaction_cpu_s
        try:
            yield
        finally:
            spent = clock.thread_cpu() - start - (self.stats.compaction_cpu_s - inner)
            setattr(self.stats, what, getattr(self.stats, what) + spent)
