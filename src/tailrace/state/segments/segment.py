"""A segment of spilled records, and its index in memory: first in the write-back buffer, then on disk.

Invariants
- A segment may be made in memory: its records are read there until ``write_out`` has put them on disk.
- Records lie by (shard, pane, hash): those of one shard and pane are a *cell*, sorted by hash. A segment is immutable
  but for the dead bits of its fingerprints, the counts of live records that follow from them, and the list of cells.
- In memory a record costs four bytes, its fingerprint (see ``kernels``); a cell costs ``CELL_BYTES``. The record at a
  position has the fingerprint at that position.
- Single records are read by ``copied``, or of several segments by their ``points``, which map nothing. Whoever scans
  the mapped files gives their pages back with ``release``, every ``READ_BYTES``: else all of them would count as this
  process's memory.

Threads: one at a time for each shard; different shards may be used at once. ``write_out``, ``copied`` and reads by
``points`` may run beside everything else.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.layout import HASH, PANE, RecordLayout
from tailrace.state.rows.arrange import row_numbers, take
from tailrace.state.rows.rows import Rows, no_rows
from tailrace.state.segments import kernels as ck
from tailrace.state.segments.compaction_groups import EVERY, CompactionGroup
from tailrace.state.segments.fingerprint_index import IndexAt, candidate_positions
from tailrace.state.segments.point_reads import READ_BYTES, PointRows, read_records
from tailrace.state.segments.reader import SegmentReader
from tailrace.state.segments.row_buffer import RowBuffer

CELL_BYTES = 40
FINGERPRINTS = ck.DEAD
"""Fingerprints are numbers below this."""
_DEAD = np.uint32(ck.DEAD)
_NO_FINGERPRINTS = np.empty(0, np.uint32)
_NO_KEYS = np.empty((0, 2), np.int64)
_UIDS = itertools.count(1)


def fingerprints_of(hashes: np.ndarray) -> np.ndarray:
    fingerprints: np.ndarray = ((hashes.view(np.uint64) ^ np.uint64(1 << 63)) >> np.uint64(33)).view(np.int64)
    return fingerprints


class SegmentClosedError(Exception):
    """A hinted record lies elsewhere by now, or is gone. Only the prefetching manager meets this."""


class Segment:
    """Made by ``writer``. The arrays of cells are by (shard, pane), ascending."""

    def __init__(
        self,
        layout: RecordLayout,
        rows: Rows,
        fingerprints: np.ndarray,
        cells: np.ndarray,
        files: tuple[ScratchFile, ScratchFile] | None,
        points: PointRows | None = None,
        fingerprints_file: ScratchFile | None = None,
        compaction_group: CompactionGroup = EVERY,
    ) -> None:
        """``cells``: shards, panes, first positions, ends, live records.

        ``files``: where the rows are mapped from, and ``points``: by which single ones are read; None while they lie in
        memory. ``fingerprints_file``: where the fingerprints are mapped from, until ``load_fingerprints``.
        ``compaction_group``: the segment has no other shards than those.
        """
        self._points = points
        self.uid = next(_UIDS)
        self.compaction_group = compaction_group
        self._layout = layout
        self._files = files
        self._closed = False
        self._swapping = threading.Lock()
        self.rows = rows
        self.disk_bytes = rows.words.nbytes + rows.heap.nbytes
        self.fingerprints = fingerprints
        self._fingerprints_file = fingerprints_file
        self.shards, self.panes, self.lo, self.hi, self.live = (np.ascontiguousarray(column) for column in cells)
        self._index_at: IndexAt | None = None  # as long as the arrays are these

    @property
    def in_memory(self) -> bool:
        return self._files is None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are not on disk yet."""
        return self.disk_bytes if self._files is None and not self._closed else 0

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def points(self) -> PointRows:
        """Reads single records that are on disk."""
        if self._points is None:
            raise SegmentClosedError("a segment is in memory, or was before it was closed")
        return self._points

    @property
    def index_at(self) -> IndexAt:
        if self._index_at is None:
            self._index_at = IndexAt.of(self.shards, self.panes, self.lo, self.hi, self.fingerprints)
        return self._index_at

    def write_out(self, folder: str, *, direct: bool = False) -> None:
        """Put the records on disk. Where the disk is full they stay in memory, and it can be tried again."""
        files = ScratchFile(folder), ScratchFile(folder)
        points: PointRows | None = None
        try:
            files[0].write(self.rows.words, 0)
            files[1].write(self.rows.heap, 0)
            points = PointRows(self._layout, *files, direct=direct)
            rows = mapped(files, len(self.fingerprints), self._layout)
        except BaseException:
            close_files(files, points)
            raise
        with self._swapping:
            if self._closed:
                close_files(files, points)
            else:
                self.rows, self._points, self._files = rows, points, files

    def load_fingerprints(self) -> None:
        """Copy the fingerprints into memory and close their file. They can be used before, and still if this fails.

        To be called after the old segments are closed, so that a compaction never holds the fingerprints of both.
        """
        if self._fingerprints_file is None:
            return
        fingerprints, step = np.empty_like(self.fingerprints), READ_BYTES // self.fingerprints.itemsize
        for first in range(0, len(fingerprints), step):
            fingerprints[first : first + step] = self.fingerprints[first : first + step]
            self._fingerprints_file.release()
        self.fingerprints, self._index_at = fingerprints, None
        self._fingerprints_file.close()
        self._fingerprints_file = None

    @property
    def index_bytes(self) -> int:
        """Bytes of memory of its index."""
        return int(self.fingerprints.nbytes + CELL_BYTES * len(self.panes))

    @property
    def row_bytes(self) -> float:
        """On disk, of the average record."""
        return self.disk_bytes / len(self.fingerprints)

    def drop(self, gone: np.ndarray) -> None:
        """Take away the cells that the mask names."""
        if gone.any():
            stay = ~gone
            self.shards, self.panes, self.lo, self.hi, self.live = (
                part[stay] for part in (self.shards, self.panes, self.lo, self.hi, self.live)
            )
            self._index_at = None

    def mark(self, at: np.ndarray, dead: bool) -> None:
        """Whether the records at these positions, each named once, are dead."""
        if self._closed:
            return
        at = at[(self.fingerprints[at] >= _DEAD) != dead]
        if not len(at):
            return
        self.fingerprints[at] ^= _DEAD
        if not len(self.lo):
            return
        cell = np.searchsorted(self.lo, at, side="right") - 1
        inside = (cell >= 0) & (at < self.hi[cell])  # others lie in cells that are gone
        np.add.at(self.live, cell[inside], -1 if dead else 1)

    def cells_of(self, shard: int) -> slice:
        return slice(*(int(np.searchsorted(self.shards, shard, side=side)) for side in ("left", "right")))

    # Reading ---------------------------------------------------------------------------------------------------------

    def copied(self, at: np.ndarray) -> Rows:
        """A copy of the records at these positions, ascending."""
        rows, points = self.rows, self._points  # read once: another thread may write it out, or close it
        if self._closed or len(rows) < len(self.fingerprints):
            raise SegmentClosedError("a segment was closed while it was read ahead")
        if points is None:
            return take(rows, at, self._layout)
        room = RowBuffer(self._layout, len(at), points.heap_bytes(len(at)))
        read_records([(points, at)], room)
        return room.rows()

    def heap_bytes(self, count: int) -> int:
        """About what the strings of so many records take."""
        points = self._points
        return 0 if points is None else points.heap_bytes(count)

    def shards_of(self, at: np.ndarray) -> np.ndarray:
        """The shards of the records at these positions; -1 for those of cells that are gone."""
        if not len(self.lo):
            return np.full(len(at), -1)
        cell = np.searchsorted(self.lo, at, side="right") - 1
        inside = (cell >= 0) & (at < self.hi[cell])
        return np.where(inside, self.shards[cell], -1)

    def release(self) -> None:
        for file in self._files or ():
            file.release()

    def candidates(self, shard: int, wanted: Rows, chosen: np.ndarray, horizon: int) -> tuple[np.ndarray, np.ndarray]:
        """Live records with the pane and fingerprint of the chosen rows: (rows of ``wanted``, positions), by position.

        The files are read only where fingerprints cannot tell records apart, which is rare.
        """
        cells = self.cells_of(shard)
        first = cells.start + int(np.searchsorted(self.panes[cells], horizon))
        cells = slice(first, cells.stop)
        if first == cells.stop or not len(chosen):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        room, count = len(chosen) + 16, np.zeros(1, np.int64)
        pair_rows, pair_at = np.empty(room, np.int64), np.empty(room, np.int64)
        found_rows, found_at, done = [], [], 0
        while done < len(chosen):
            before, done = done, ck.candidates(
                wanted.words, chosen, done, self.panes[cells], self.lo[cells], self.hi[cells], self.fingerprints,
                self.rows.words, pair_rows, pair_at, count,
            )  # fmt: skip
            found_rows.append(pair_rows[: count[0]].copy())
            found_at.append(pair_at[: count[0]].copy())
            if done == before:  # more records share a fingerprint than there is room for
                room *= 2
                pair_rows, pair_at = np.empty(room, np.int64), np.empty(room, np.int64)
        rows, at = np.concatenate(found_rows), np.concatenate(found_at)
        order = np.argsort(at, kind="stable")
        return rows[order], at[order]

    def places_of(self, other: Segment, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Live records of a segment that this one was made of: which of them are here beyond doubt, and where.

        A record's fingerprint is the same in both. A record that shares it with others is left out.
        """
        shards = other.shards_of(at)
        live = np.flatnonzero((other.fingerprints[at] < _DEAD) & (shards >= 0))
        order = live[np.argsort(shards[live], kind="stable")]
        if not len(order):
            return order, order
        fingerprints, cells = (
            other.fingerprints[at[order]].astype(np.uint64),
            np.searchsorted(other.lo, at[order], side="right") - 1,
        )
        words = np.zeros((len(order), self._layout.words), np.int64)
        words[:, HASH] = ((fingerprints << np.uint64(33)) ^ np.uint64(1 << 63)).view(np.int64)
        words[:, PANE] = other.panes[cells]
        bounds = np.searchsorted(shards[order], np.arange(int(shards[order[-1]]) + 2))
        found = candidate_positions([self], Rows(words, np.empty(0, np.uint8)), bounds, int(words[:, PANE].min()))
        if found.rows is None:
            return order[:0], order[:0]
        alone = (np.bincount(found.rows, minlength=len(order)) == 1)[found.rows]
        return order[found.rows[alone]], found.at[alone]

    def find(
        self,
        reads: SegmentReader,
        shard: int,
        wanted: Rows,
        chosen: np.ndarray,
        horizon: int,
        *,
        by_hash: bool = False,
        keep: bool = True,
    ) -> Matches:
        """Live records that have the key and pane of the chosen rows, by position.

        ``by_hash``: those that have the hash and the pane, whatever the key. ``keep``: they may be asked for again.
        """
        pair_rows, pair_at = self.candidates(shard, wanted, chosen, horizon)
        copies = reads.read(self, each_once(pair_at), keep=keep)
        return self.matching(wanted, pair_rows, pair_at, copies, by_hash=by_hash)

    def matching(
        self, wanted: Rows, pair_rows: np.ndarray, pair_at: np.ndarray, copies: Rows, *, by_hash: bool = False
    ) -> Matches:
        """Of pairs of a row and a position, by position, those whose record is the one that the row looks for.

        ``copies``: of the records at these positions, each once.
        """
        if not len(pair_at):
            return Matches(pair_rows, pair_at, copies, pair_at)
        new = np.append(True, pair_at[1:] != pair_at[:-1])
        places = np.cumsum(new) - 1
        how = (_NO_KEYS, 0) if by_hash else (self._layout.key_words, self._layout.key_mask)
        same = ck.matches(wanted.words, wanted.heap, pair_rows, places, copies.words, copies.heap, *how)
        pair_rows, places = pair_rows[:same], places[:same]
        return Matches(pair_rows, pair_at[new][places], copies, places)

    def live_in(self, cells: np.ndarray, first_fingerprint: int = 0, end_fingerprint: int = ck.DEAD) -> np.ndarray:
        """Positions of the live records of these cells (numbers) with fingerprints in a range, cell by cell."""
        at = row_numbers(
            *(self.fingerprint_positions(cells, fingerprint) for fingerprint in (first_fingerprint, end_fingerprint))
        )
        found: np.ndarray = at[self.fingerprints[at] < _DEAD]
        return found

    def fingerprint_positions(self, cells: np.ndarray, fingerprint: int) -> np.ndarray:
        """In each of these cells (numbers) the first position whose fingerprint is not below one; else its end."""
        out = np.empty(len(cells), np.int64)
        ck.fingerprint_positions(self.fingerprints, self.lo[cells], self.hi[cells], fingerprint, out)
        return out

    def close(self) -> None:
        with self._swapping:
            self._closed = True
            self.drop(np.ones(len(self.shards), bool))
            self.rows, self.fingerprints, self._index_at = no_rows(self._layout), _NO_FINGERPRINTS, None
            close_files(self._files or (), self._points)
            if self._fingerprints_file is not None:
                self._fingerprints_file.close()


def each_once(at: np.ndarray) -> np.ndarray:
    """Of ascending positions."""
    once: np.ndarray = at[np.append(True, at[1:] != at[:-1])] if len(at) else at
    return once


@dataclass(frozen=True)
class Matches:
    """Pairs of a row and the record that it looks for, by the record's position.

    ``at`` are positions; row ``places[i]`` of ``copies`` is a copy of pair ``i``'s record. Copies that no pair names
    are of records that only seemed to match.
    """

    rows: np.ndarray
    at: np.ndarray
    copies: Rows
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.at)

    def distinct(self) -> tuple[np.ndarray, Rows]:
        """Each record once: positions, and copies."""
        new = np.append(True, self.at[1:] != self.at[:-1]) if len(self.at) else np.empty(0, bool)
        return self.at[new], self._chosen(self.places[new])

    def paired(self) -> Rows:
        """A copy of the record for every pair; they share their strings."""
        return self._chosen(self.places)

    def _chosen(self, places: np.ndarray) -> Rows:
        return Rows(self.copies.words[places], self.copies.heap)


def close_files(files: Sequence[ScratchFile], points: PointRows | None) -> None:
    for file in files:
        file.close()
    if points is not None:
        points.close()


def mapped(files: tuple[ScratchFile, ScratchFile], count: int, layout: RecordLayout) -> Rows:
    """The rows that were written to the files of words and of strings."""
    words, heap = files
    (word,) = words.sealed((np.int64, 0, layout.words * count))
    (text,) = heap.sealed((np.uint8, 0, heap.nbytes))
    return Rows(word.reshape(-1, layout.words), text)


def warm_up_fingerprints() -> None:
    """Compile what only segments of many records need."""
    nobody = np.empty(0, np.int64)
    ck.fingerprint_positions(_NO_FINGERPRINTS, nobody, nobody, 0, nobody)
