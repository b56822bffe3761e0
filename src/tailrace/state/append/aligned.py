"""The append store for aligned windows (AAR): rows are appended one by one and read pane by pane.

Invariants
- Every epoch's rows are one run (see ``pane_runs``); undoing the epoch drops it. Runs of epochs that cannot be undone
  are merged in tiers. All rows of a pane that lie in segments are older than those in memory, because all rows of a
  pane are written together; segments and runs are kept oldest first. So rows of one key and pane come back in order of
  arrival.
- Rows before the horizon are never seen again. They go when no epoch can be undone that saw them: from memory when
  their run is merged, from disk with their segment, or when that is rewritten because too much on disk is dead (see
  ``pane_segments``).
- Memory: runs that cannot be undone, and the cells of segments, take at most ``memory_bytes``; beyond, the latest panes
  go to disk, since they are read last. Rows of epochs that can be undone come on top. Merging and writing take a copy
  of what they work on.

Threads: one at a time; inside, more make the next pieces of what is read. Rows handed out are copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.state.append.pane_pieces import Made, Part, Piece, between, pieces_of
from tailrace.state.append.pane_runs import PaneRun, merged, run_of_frames
from tailrace.state.append.pane_segments import PaneSegments
from tailrace.state.append.row_store import RowStore, UndoableEpoch
from tailrace.state.layout import RecordLayout
from tailrace.state.metrics import Metrics
from tailrace.state.rows import columns
from tailrace.state.rows.arrange import Slices
from tailrace.state.rows.gather import spread
from tailrace.state.rows.rows import Rows, no_rows
from tailrace.state.sections import sections
from tailrace.state.sections.sections import spread_section
from tailrace.state.tiers import newest_to_merge
from tailrace.state.tuning import DEFAULT_TUNING, Tuning
from tailrace.types import BIGINT

PIECE_BYTES = 32 << 20
_WRITE_BYTES_MIN, _WRITE_BYTES = 64 << 10, 4 << 20


@dataclass
class _Epoch(UndoableEpoch):
    run: PaneRun


class AppendAlignedStore(RowStore[_Epoch]):
    def __init__(
        self,
        layout: RecordLayout,
        shards: Iterable[int],
        *,
        shard_count: int,
        memory_bytes: int,
        folder: str,
        threads: int = 2,
        undo_epochs: int = 2,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        super().__init__(layout, shards, shard_count, undo_epochs)
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "tailrace-panes") if threads > 1 else None
        self._runs: list[PaneRun] = []  # in memory, of epochs that cannot be undone
        self._segments = PaneSegments(
            layout,
            folder,
            piece_bytes=max(_WRITE_BYTES_MIN, min(_WRITE_BYTES, memory_bytes)),
            max_space_amplification=tuning.max_space_amplification,
        )

    @property
    def rows(self) -> int:
        """Rows that can be seen."""
        parts = [run.cells.where(run.cells.panes >= self.horizon) for run in self._all()]
        return sum(cells.rows for cells in parts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(run.nbytes for run in self._all())

    @property
    def disk_bytes(self) -> int:
        return self._segments.disk_bytes

    @property
    def compaction_cpu_s(self) -> float:
        return self._segments.compaction_cpu_s

    def metrics(self) -> Metrics:
        return self._segments.metrics()

    def _all(self) -> list[PaneRun]:
        """Oldest first, for every pane."""
        return [*self._segments, *self._runs, *(epoch.run for epoch in self._epochs)]

    # Epochs ----------------------------------------------------------------------------------------------------------

    def append(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Open ``epoch`` and append rows sorted by shard: pairs of rows and ``bounds[shards + 1]``."""
        self._check_frames(frames)
        run = run_of_frames(frames, self.layout)
        self.open_epoch(epoch)
        self._epochs[-1].run = run

    def open_epoch(self, epoch: int) -> None:
        """Open it without rows. What is expired from now on belongs to it."""
        self._check_fresh(epoch)
        self._make_room()
        self._epochs.append(_Epoch(epoch, self.horizon, run_of_frames([], self.layout)))

    def undo(self, epoch: int) -> None:
        """Back to before ``epoch`` was opened; nothing happens where it was not."""
        while self._epochs and self._epochs[-1].number >= epoch:
            undone = self._epochs.pop()
            undone.run.close()
            self.horizon = undone.horizon_before

    def _forget_oldest(self) -> None:
        run = self._epochs.pop(0).run
        if len(run.cells):
            self._runs.append(run)

    def _maintain(self) -> None:
        """Drop cells below the floor, merge runs that have become many, write panes where memory is full, compact."""
        floor = self._floor
        for run in self._runs:
            run.drop_before(floor)
        self._runs = [run for run in self._runs if len(run.cells)]
        self._segments.drop(floor)
        count = newest_to_merge([run.nbytes for run in self._runs])
        if count:
            self._runs[-count:] = [merged(self._runs[-count:], self.layout)]
        self._hold_budget()
        self._segments.compact()

    def _hold_budget(self) -> None:
        """Where memory is full, write the latest panes until half of it is free: so segments do not get small."""
        room = max(self._memory_bytes // 2, self._memory_bytes - self._segments.nbytes)
        if sum(run.nbytes for run in self._runs) <= room:
            return
        panes = np.concatenate([run.cells.panes for run in self._runs])
        sizes = np.concatenate([run.cells.row_bytes(self.layout) + 40 for run in self._runs])
        starts, at = np.unique(panes, return_inverse=True)
        kept = np.cumsum(np.bincount(at.reshape(-1), weights=sizes))
        # Merging all remaining runs gives back the room of dropped cells, so that the memory is what is counted.
        first_out = int(np.searchsorted(kept, room // 2, side="right"))
        stay, go = [], []
        for run in self._runs:
            late = run.cells.panes >= starts[first_out] if first_out < len(starts) else np.zeros(len(run.cells), bool)
            go.append(PaneRun(run.rows, run.cells.where(late)))
            stay.append(PaneRun(run.rows, run.cells.where(~late)))
        eviction = [run for run in go if len(run.cells)]
        if eviction:
            self._segments.write(eviction)
        staying = [run for run in stay if len(run.cells)]
        self._runs = [merged(staying, self.layout)] if staying else []

    # Reading ---------------------------------------------------------------------------------------------------------

    def panes(self, below: int) -> np.ndarray:
        """Starts of the panes before ``below`` that have rows, ascending."""
        found = [run.cells.panes for run in self._all()]
        panes = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return panes[(panes >= self.horizon) & (panes < below)]

    def read(self, first_pane: int, end_pane: int, piece_bytes: int = PIECE_BYTES) -> Iterator[Rows]:
        """All rows with ``first_pane <= PANE < end_pane``, in pieces of about ``piece_bytes`` with all rows of a key.

        Pieces, and rows in a piece, are sorted by (shard, hash); rows of a key lie together, pane by pane, and inside a
        pane in order of arrival. Only a key that is larger than a piece makes a piece larger. The rows are those of
        this moment, whatever happens to the store before the last piece is taken; with threads, the next are made
        while the caller works on one.
        """
        return self.read_made(
            first_pane, end_pane, lambda piece: piece.by_key(self.layout, self._shard_count), piece_bytes
        )

    def read_made(
        self, first_pane: int, end_pane: int, make: Callable[[Piece], Made], piece_bytes: int = PIECE_BYTES
    ) -> Iterator[Made]:
        """As ``read``, for callers that need something else than a copy by key: the results of ``make`` for each piece.

        It may be called in another thread, and what it returns must not need the piece's rows any more.
        """
        first_pane = max(first_pane, self.horizon)
        parts = [
            Part(run.rows, run.cells.where(between(run.cells.panes, first_pane, end_pane)), run.file)
            for run in self._all()
        ]
        there = [part for part in parts if len(part.cells)]
        pieces = pieces_of(there, self.layout, self._shard_count, piece_bytes, make)
        return (piece() for piece in pieces) if self._pool is None else self._ahead(pieces)

    def _ahead(self, pieces: Iterator[Callable[[], Made]]) -> Iterator[Made]:
        assert self._pool is not None
        coming: deque[Future[Made]] = deque()
        for piece in pieces:
            coming.append(self._pool.submit(piece))
            if len(coming) > self._threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()

    def delta(self) -> dict[int, pa.RecordBatch]:
        """By shard, the rows that the newest epoch appended and that are still there."""
        if not self._epochs:
            return {}
        run = self._epochs[-1].run
        cells = run.cells.where(run.cells.panes >= self.horizon)
        in_shards = np.lexsort((cells.panes, cells.shards))
        rows = spread([Slices(run.rows, cells.lo[in_shards], cells.hi[in_shards])], self.layout)
        counts = np.zeros(self._shard_count + 1, np.int64)
        np.add.at(counts, cells.shards + 1, cells.hi - cells.lo)
        edges = np.cumsum(counts)
        section = spread_section(rows, self.layout)
        return {int(s): section.slice(int(edges[s]), int(counts[s + 1])) for s in np.flatnonzero(counts[1:])}

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """Build a shard from its sections, oldest first."""
        if shard in self._shards:
            self.drop_shard(shard)
        frames = []
        for batch in batches:
            rows = sections.from_section(live_rows(batch, horizon), self.layout)
            bounds = np.zeros(self._shard_count + 1, np.int64)
            bounds[shard + 1 :] = len(rows)
            frames.append((rows, bounds))
        run = run_of_frames(frames, self.layout)
        self._shards.add(shard)
        if len(run.cells):
            self._runs.append(run)
        self.horizon = max(self.horizon, horizon)
        self._maintain()

    def drop_shard(self, shard: int) -> None:
        """Its rows are gone, for good and in every epoch. Their room is given back when their run is merged."""
        self._shards.remove(shard)
        for run in self._all():
            run.drop(run.cells.shards == shard)
        self._maintain()

    def close(self) -> None:
        """Nothing is left, on disk neither."""
        for run in self._all():
            run.close()
        self._segments.close()
        self._epochs, self._runs = [], []
        if self._pool is not None:
            self._pool.shutdown()


def live_rows(batch: pa.RecordBatch, horizon: int) -> pa.RecordBatch:
    """The rows of a section that have not expired."""
    panes = columns.fixed_words(batch.column("__pane"), BIGINT, None)
    return batch if not len(panes) or panes.min() >= horizon else batch.filter(pa.array(panes >= horizon))


def compact_sections(layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int) -> pa.RecordBatch:
    """One section that stands for several (oldest first): all their rows that have not expired, in order."""
    live = [live_rows(batch, horizon) for batch in batches]
    table = pa.Table.from_batches(live, sections.section_schema(layout)).combine_chunks()
    return next(iter(table.to_batches()), sections.to_section(no_rows(layout), layout))
