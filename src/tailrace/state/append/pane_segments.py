"""Segments of the aligned store: how they are written, and which of them are rewritten.

Invariants
- Segments stand oldest first, for every pane. Only neighbours become one, in their place: so rows of one key and pane
  keep the order of arrival.
- Cells that are gone take room on disk until their segment is rewritten or closed. After ``compact``, bytes on disk are
  at most ``max_space_amplification`` times those of the cells that are there. The emptiest segments are rewritten
  first, so that what is rewritten is paid for by what is freed: for each byte freed at most 1 / (limit - 1) is written.
- There are at most ``SEGMENTS_MAX`` segments, each with one descriptor: beyond, those neighbours become one that have
  the fewest bytes together. So a row is rewritten logarithmically often.
- A full disk stops a compaction, which is all or nothing for each new segment, and nothing else.

Memory: a segment is written in pieces, from the sorted cells of others too, however large a cell is.

Threads: as the store that owns it. Rows of a segment that was rewritten stay readable for who holds on to them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from tailrace.env import clock
from tailrace.env.files.scratch import ScratchFile
from tailrace.state import metrics
from tailrace.state.append.hash_ranges import hash_ranges, narrow
from tailrace.state.append.pane_runs import PaneRun, cuts, joint_cells
from tailrace.state.layout import RecordLayout
from tailrace.state.metrics import Metrics
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import Slices, by_hash
from tailrace.state.rows.rows import Rows
from tailrace.state.tiers import FAN_IN

SEGMENTS_MAX = 64

logger = logging.getLogger("tailrace.state")


class PaneSegments:
    def __init__(self, layout: RecordLayout, folder: str, *, piece_bytes: int, max_space_amplification: float) -> None:
        self._layout = layout
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._amplification_max = max_space_amplification
        self._segments: list[PaneRun] = []
        self._bytes_written = self._bytes_read = self._compactions = 0
        self.compaction_cpu_s = 0.0

    def __iter__(self) -> Iterator[PaneRun]:
        return iter(self._segments)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(segment.nbytes for segment in self._segments)

    @property
    def disk_bytes(self) -> int:
        return sum(segment.disk_bytes for segment in self._segments)

    def metrics(self) -> Metrics:
        return {
            metrics.SEGMENTS: len(self._segments),
            metrics.BYTES_READ: self._bytes_read,
            metrics.BYTES_WRITTEN: self._bytes_written,
            metrics.COMPACTIONS: self._compactions,
            metrics.COMPACTION_CPU_MS: self.compaction_cpu_s * 1e3,
            metrics.DISK_BYTES: self.disk_bytes,
            metrics.DISK_LIVE_BYTES: sum(self._live_bytes(segment) for segment in self._segments),
        }

    def write(self, runs: Sequence[PaneRun]) -> None:
        """Runs that lie in memory, oldest first, become the newest segment. A full disk raises."""
        self._segments.append(self._written(runs))

    def drop(self, floor: int) -> None:
        """Cells of panes before the floor are gone, and segments without cells."""
        for segment in self._segments:
            segment.drop_before(floor)
        for segment in self._segments:
            if not len(segment.cells):
                segment.close()
        self._segments = [segment for segment in self._segments if len(segment.cells)]

    def compact(self) -> None:
        """Rewrite the emptiest segments where too much on disk is dead, the smallest ones where there are too many."""
        due = self._due()
        if not due.any():
            return
        began = clock.thread_cpu()
        edges = np.flatnonzero(np.diff(np.concatenate([[False], due, [False]]).astype(np.int8)))
        try:
            # From the last, so that the numbers of those before stay as they are.
            for first, end in reversed(edges.reshape(-1, 2).tolist()):
                self._replace(first, end)
        except OSError as error:
            logger.warning("segments in %s were not compacted: %s", self._folder, error)
        self.compaction_cpu_s += clock.thread_cpu() - began

    def _due(self) -> np.ndarray:
        """Which segments are rewritten now."""
        live = np.array([self._live_bytes(segment) for segment in self._segments], np.int64)
        disk = np.array([segment.disk_bytes for segment in self._segments], np.int64)
        due = np.zeros(len(live), bool)
        if len(live) > SEGMENTS_MAX:
            first = int(np.argmin(np.convolve(live, np.ones(FAN_IN, np.int64), "valid")))
            due[first : first + FAN_IN] = True
        allowed = self._amplification_max * int(live.sum())
        left = int(disk.sum() - (disk - live)[due].sum())
        for emptiest in np.argsort(live / np.maximum(disk, 1), kind="stable").tolist():
            if left <= allowed:
                break
            left -= int((disk - live)[emptiest]) * (not due[emptiest])
            due[emptiest] = True
        return due

    def _live_bytes(self, segment: PaneRun) -> int:
        return int(segment.cells.row_bytes(self._layout).sum())

    def _replace(self, first: int, end: int) -> None:
        """Neighbours become one."""
        old = self._segments[first:end]
        self._segments[first:end] = [self._written(old)]
        self._compactions += 1
        self._bytes_read += sum(self._live_bytes(segment) for segment in old)
        for segment in old:
            segment.close()

    def _written(self, runs: Sequence[PaneRun]) -> PaneRun:
        """Runs or segments, oldest first, as one new segment, each cell sorted by hash."""
        joint = joint_cells([run.cells for run in runs])
        cells, row_bytes = joint.cells(), 8 * self._layout.words
        heap_start = row_bytes * cells.rows
        rows_end = heap_end = 0
        file = ScratchFile(self._folder)
        try:
            for first, end in cuts(cells.row_bytes(self._layout), self._piece_bytes):
                sources, ranks = [], []
                for run, numbers in zip(runs, joint.ranks):
                    here = (numbers >= first) & (numbers < end)
                    sources.append(Slices(run.rows, run.cells.lo[here], run.cells.hi[here]))
                    ranks.append(numbers[here] - first)
                whole = int(cells.row_bytes(self._layout)[first:end].sum()) <= self._piece_bytes
                sorted_by_hash = [run.file is not None for run in runs]
                for rows in self._pieces(sources, ranks, end - first, None if whole else sorted_by_hash):
                    rk.shift_strings(rows.words, self._layout.bytes_words, heap_end)
                    file.write(rows.words, row_bytes * rows_end)
                    file.write(rows.heap, heap_start + heap_end)
                    rows_end += len(rows)
                    heap_end += len(rows.heap)
                    for run in runs:
                        run.release()
            words, heap = file.sealed((np.int64, 0, self._layout.words * rows_end), (np.uint8, heap_start, heap_end))
        except BaseException:
            file.close()
            raise
        self._bytes_written += file.nbytes
        return PaneRun(Rows(words.reshape(-1, self._layout.words), heap), cells, file)

    def _pieces(
        self, sources: Sequence[Slices], ranks: Sequence[np.ndarray], rank_count: int, cut: Sequence[bool] | None
    ) -> Iterator[Rows]:
        """The rows by (rank, hash); where ``cut`` is given, of one cell that is too large, in ranges of hashes.

        ``cut``: of each source, whether its cells are sorted by hash.
        """
        if cut is None:
            yield by_hash(sources, ranks, rank_count, self._layout).rows
            return
        for hashes in hash_ranges(sources, self._layout, self._piece_bytes):
            parts = [narrow(s.rows, s.lo, s.hi, hashes, sorted_by_hash=own)[0] for s, own in zip(sources, cut)]
            yield by_hash(parts, [np.zeros(len(part.lo), np.int64) for part in parts], 1, self._layout).rows

    def close(self) -> None:
        """Nothing is left on disk."""
        for segment in self._segments:
            segment.close()
        self._segments = []
