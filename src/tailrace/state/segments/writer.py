"""Makes a segment of spilled records, piece by piece: on disk, or in memory.

Invariants
- Pieces come in the order of the segment, by (shard, pane, fingerprint): two pieces may share a cell, but none of its
  fingerprints.
- On disk a segment takes no memory but for its cells and the piece that is being added: words, strings and fingerprints
  are written as they come. ``Segment.load_fingerprints`` reads the fingerprints back.
- A segment in memory is written once where it will stay: its ``rows`` are known before.

Threads: one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import Slices, by_hash
from tailrace.state.rows.rows import Rows
from tailrace.state.segments import kernels as ck
from tailrace.state.segments.compaction_groups import EVERY, CompactionGroup
from tailrace.state.segments.point_reads import PointRows
from tailrace.state.segments.segment import Segment, close_files, mapped

Source = tuple[Rows, np.ndarray, np.ndarray]
"""Rows, which of them, and which of these are dead."""


class SegmentWriter:
    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._count = self._heap_end = 0
        self._cells: list[np.ndarray] = []

    def add(self, shard: int, sources: Sequence[Source]) -> np.ndarray:
        """Records of one shard. Returns the positions they get, source after source."""
        panes = np.concatenate([rows.words[at, PANE] for rows, at, _ in sources])
        dead = np.concatenate([dead for _, _, dead in sources])
        starts, ranks = np.unique(panes, return_inverse=True)
        ranks = ranks.reshape(-1)
        edges = np.cumsum([len(at) for _, at, _ in sources])[:-1]
        slices = [Slices(rows, at, at + 1) for rows, at, _ in sources]
        arranged = by_hash(slices, np.split(ranks.astype(np.int64), edges), len(starts), self._layout)
        rows, order = arranged.rows, arranged.order
        fingerprints = np.empty(len(rows), np.uint32)
        ck.put_fingerprints(rows.words, fingerprints)
        fingerprints |= np.where(dead[order], np.uint32(ck.DEAD), np.uint32(0))
        counts, live = (np.bincount(some, minlength=len(starts)) for some in (ranks, ranks[~dead]))
        hi = self._count + np.cumsum(counts)
        self._cells.append(np.stack([np.full(len(starts), shard, np.int64), starts, hi - counts, hi, live]))
        rk.shift_strings(rows.words, self._layout.bytes_words, self._heap_end)
        self._put(rows, fingerprints)
        positions = np.empty(len(rows), np.int64)
        positions[order] = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        self._heap_end += len(rows.heap)
        return positions

    def finish(self) -> Segment | None:
        """The segment, or None where nothing was added."""
        if not self._count:
            self.close()
            return None
        return self._segment(_each_cell_once(np.concatenate(self._cells, axis=1)))

    def close(self) -> None:
        """Remove everything that was added."""

    def _put(self, rows: Rows, fingerprints: np.ndarray) -> None:
        raise NotImplementedError

    def _segment(self, cells: np.ndarray) -> Segment:
        raise NotImplementedError


class MemoryWriter(SegmentWriter):
    def __init__(self, layout: RecordLayout, rows: int) -> None:
        """``rows``: how many will be added."""
        super().__init__(layout)
        self._words, self._fingerprints = np.empty((rows, layout.words), np.int64), np.empty(rows, np.uint32)
        self._heaps: list[np.ndarray] = []

    def _put(self, rows: Rows, fingerprints: np.ndarray) -> None:
        end = self._count + len(rows)
        self._words[self._count : end], self._fingerprints[self._count : end] = rows.words, fingerprints
        self._heaps.append(rows.heap)

    def _segment(self, cells: np.ndarray) -> Segment:
        rows = Rows(self._words, np.concatenate(self._heaps))
        return Segment(self._layout, rows, self._fingerprints, cells, None)


class DiskWriter(SegmentWriter):
    def __init__(
        self, layout: RecordLayout, folder: str, *, compaction_group: CompactionGroup = EVERY, direct: bool = False
    ) -> None:
        super().__init__(layout)
        self.compaction_group = compaction_group
        self._direct = direct
        self._files: list[ScratchFile] = []
        try:
            for _ in range(3):
                self._files.append(ScratchFile(folder))
        except BaseException:
            self.close()
            raise

    def _put(self, rows: Rows, fingerprints: np.ndarray) -> None:
        words, heap, fingerprints_file = self._files
        words.write(rows.words, 8 * self._layout.words * self._count)
        heap.write(rows.heap, self._heap_end)
        fingerprints_file.write(fingerprints, fingerprints.itemsize * self._count)

    def _segment(self, cells: np.ndarray) -> Segment:
        words, heap, fingerprints_file = self._files
        points = PointRows(self._layout, words, heap, direct=self._direct)
        try:
            rows = mapped((words, heap), self._count, self._layout)
            (fingerprints,) = fingerprints_file.sealed((np.uint32, 0, self._count))
        except BaseException:
            close_files((), points)
            raise
        return Segment(
            self._layout, rows, fingerprints, cells, (words, heap), points, fingerprints_file, self.compaction_group
        )

    def close(self) -> None:
        for file in self._files:
            file.close()


def _each_cell_once(cells: np.ndarray) -> np.ndarray:
    """Cells that came in several pieces, one after the other, as one."""
    new = np.append(True, (cells[:2, 1:] != cells[:2, :-1]).any(axis=0))
    if new.all():
        return cells
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    shards, panes, lo, hi, live = cells
    return np.stack([shards[first], panes[first], lo[first], hi[last], np.add.reduceat(live, first)])
