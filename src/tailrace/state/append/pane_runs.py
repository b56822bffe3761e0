"""Runs of the aligned store: rows that lie pane by pane, and inside a pane shard by shard.

Invariants
- A run is immutable but for its ``cells``: a cell is one shard in one pane, a slice of rows. Cells that are gone are
  taken from the list; their rows go when the run is next rewritten, or with it.
- Inside a cell rows keep the order of arrival; strings of an epoch's own run stay as they came, elsewhere they lie as
  their rows do. Only a segment's cells are sorted by hash too (stable): what does not fit in memory is read back in
  ranges of hashes, what does is sorted when it is read, once.

Threads: as the store that owns it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.layout import RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import Slices, arrange, bits_for, single_rows
from tailrace.state.rows.rows import Rows, no_rows, plain

_FIRST_SLOTS = 64


@dataclass(frozen=True)
class Cells:
    """Slices of a run by (pane, shard), ascending; ``heap`` is the bytes that a cell's strings take."""

    panes: np.ndarray
    shards: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    heap: np.ndarray

    def __len__(self) -> int:
        return len(self.panes)

    def where(self, chosen: np.ndarray) -> Cells:
        return Cells(*(part[chosen] for part in (self.panes, self.shards, self.lo, self.hi, self.heap)))

    @property
    def rows(self) -> int:
        return int((self.hi - self.lo).sum())

    @property
    def nbytes(self) -> int:
        return 40 * len(self)

    def row_bytes(self, layout: RecordLayout) -> np.ndarray:
        """What the rows of each cell take, strings included."""
        sizes: np.ndarray = (self.hi - self.lo) * (8 * layout.words) + self.heap
        return sizes


NO_CELLS = Cells(*(np.empty(0, np.int64) for _ in range(5)))


class PaneRun:
    def __init__(self, rows: Rows, cells: Cells, file: ScratchFile | None = None) -> None:
        self.rows = rows
        self.cells = cells
        self.file = file  # of a segment

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        held = 0 if self.file is not None else self.rows.words.nbytes + self.rows.heap.nbytes
        return int(held + self.cells.nbytes)

    @property
    def disk_bytes(self) -> int:
        return 0 if self.file is None else self.file.nbytes

    def drop(self, gone: np.ndarray) -> None:
        """Take away the cells that the mask names."""
        self.cells = self.cells.where(~gone)

    def drop_before(self, floor: int) -> None:
        """Take away the cells of panes before the floor."""
        if len(self.cells) and self.cells.panes[0] < floor:
            self.drop(self.cells.panes < floor)

    def release(self) -> None:
        """A segment's pages need not stay in memory."""
        if self.file is not None:
            self.file.release()

    def close(self) -> None:
        self.cells, self.rows = NO_CELLS, Rows(np.empty((0, self.rows.words.shape[1]), np.int64), np.empty(0, np.uint8))
        if self.file is not None:
            self.file.close()


def _distinct_panes(parts: Sequence[Rows]) -> np.ndarray:
    found = []
    for rows in parts:
        slots = _FIRST_SLOTS
        while True:
            room, used = np.empty(slots, np.int64), np.zeros(slots, np.bool_)
            if rk.distinct_panes(rows.words, room, used):
                break
            slots *= 4
        found.append(room[used])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def run_of_frames(frames: Sequence[tuple[Rows, np.ndarray]], layout: RecordLayout) -> PaneRun:
    """The rows of one epoch: pairs of rows sorted by shard and ``bounds[shards + 1]``."""
    frames = [(plain(rows), np.ascontiguousarray(bounds, np.int64)) for rows, bounds in frames if len(rows)]
    if not frames:
        return PaneRun(no_rows(layout), NO_CELLS)
    shards = len(frames[0][1]) - 1
    panes = _distinct_panes([rows for rows, _ in frames])
    keys = np.empty(sum(len(rows) for rows, _ in frames), np.uint64)
    at = 0
    for rows, bounds in frames:
        rk.cell_keys(rows.words, bounds, panes, keys[at : at + len(rows)])
        at += len(rows)
    arranged = arrange(
        [single_rows(rows) for rows, _ in frames],
        keys,
        layout,
        exact=False,
        high_bit=bits_for(len(panes) * shards),
        whole_heaps=True,
    )
    kept = arranged.rows
    if len(frames) == 1:
        kept = Rows(kept.words, kept.heap.copy())  # not a view of memory that is the frame's
    edges = np.flatnonzero(np.concatenate([[True], arranged.keys[1:] != arranged.keys[:-1]]))
    ends = np.append(edges[1:], len(keys))
    numbers = arranged.keys[edges].astype(np.int64)
    heap = arranged.heap_starts[ends] - arranged.heap_starts[edges]
    return PaneRun(kept, Cells(panes[numbers // shards], numbers % shards, edges, ends, heap))


@dataclass(frozen=True)
class JointCells:
    """The cells of several runs put together: ``ranks[r]`` are the numbers, among all, of the cells of run ``r``."""

    panes: np.ndarray
    shards: np.ndarray
    rows: np.ndarray
    heap: np.ndarray
    ranks: list[np.ndarray]

    def cells(self) -> Cells:
        """As they lie once all rows are in their order."""
        hi = np.cumsum(self.rows)
        return Cells(self.panes, self.shards, hi - self.rows, hi, self.heap)


def joint_cells(parts: Sequence[Cells]) -> JointCells:
    panes, shards = (np.concatenate([getattr(cells, name) for cells in parts]) for name in ("panes", "shards"))
    order = np.lexsort((shards, panes))
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(panes[order]) != 0) | (np.diff(shards[order]) != 0)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(fresh) - 1
    chosen = order[fresh]
    rows, heap = np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.int64)
    np.add.at(rows, ranks, np.concatenate([cells.hi - cells.lo for cells in parts]))
    np.add.at(heap, ranks, np.concatenate([cells.heap for cells in parts]))
    edges = np.cumsum([len(cells) for cells in parts])[:-1]
    return JointCells(panes[chosen], shards[chosen], rows, heap, np.split(ranks, edges))


def merged(runs: Sequence[PaneRun], layout: RecordLayout) -> PaneRun:
    """Several runs, oldest first, as one in memory; what their cells do not hold is left behind."""
    joint = joint_cells([run.cells for run in runs])
    sources = [Slices(run.rows, run.cells.lo, run.cells.hi) for run in runs]
    keys = np.concatenate(joint.ranks).astype(np.uint64)
    arranged = arrange(sources, keys, layout, exact=False, high_bit=bits_for(len(joint.panes)))
    return PaneRun(arranged.rows, joint.cells())


def cuts(sizes: np.ndarray, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Neighbouring items in groups of at most ``bytes_max``; an item that is larger makes a group of its own."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        yield first, end
        first = end
