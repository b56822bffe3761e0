"""Compaction: several segments become one of a compaction group, with the records that are live or can become so again.

Invariants
- Memory: a piece of about ``PIECE_BYTES`` at a time, and 16 bytes for each record that an undoable epoch has taken,
  however large the segments are. A piece is some panes of a shard, or a range of fingerprints where one pane is too
  large; records that share a fingerprint are in one piece. The new fingerprints stay on disk until the old segments are
  closed.
- The old segments are only read. A compaction that fails leaves nothing behind.

Threads: one, and nobody else changes the segments meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state.rows.arrange import row_numbers
from tailrace.state.segments import kernels as ck
from tailrace.state.segments.compaction_groups import CompactionGroup
from tailrace.state.segments.segment import Segment
from tailrace.state.segments.writer import DiskWriter, Source

PIECE_BYTES = 16 << 20
_ROW_ROOM_BYTES = 200
"""What sorting takes for a row, beside two copies of it."""
_NOWHERE = -1


@dataclass(frozen=True)
class Moved:
    """Where records that lay at ``before`` (ascending) lie now."""

    before: np.ndarray
    after: np.ndarray

    def places(self, at: np.ndarray) -> np.ndarray:
        """The new positions of those of these records that are listed here."""
        numbers, _ = self.found_in(np.sort(at))
        there: np.ndarray = self.after[numbers]
        return there

    def still_there(self) -> Moved:
        there = self.after != _NOWHERE
        return Moved(self.before[there], self.after[there])

    def found_in(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of ``before`` are among these positions, ascending too, and where."""
        if not len(at):
            return at, at
        first, end = np.searchsorted(self.before, [at[0], at[-1] + 1])
        place = np.searchsorted(at, self.before[first:end])
        there = at[place] == self.before[first:end]  # no place is beyond the last: that is not below any of these
        return first + np.flatnonzero(there), place[there]


def compact(
    old: Sequence[Segment],
    undoable: Sequence[np.ndarray],
    writer: DiskWriter,
    pause: Callable[[], None] = lambda: None,
) -> tuple[Segment | None, list[Moved]]:
    """The new segment of the writer's group, if any record is left for it, and where ``undoable`` records lie there.

    ``undoable``: of each segment, ascending positions of dead records that must be kept. ``pause`` is called between
    two pieces: others may read the segments then.
    """
    moved = [Moved(at, np.full(len(at), _NOWHERE, np.int64)) for at in undoable]
    try:
        for shard, spans in _pieces(old, writer.compaction_group, _piece_rows(old)):
            pause()
            sources: list[Source] = []
            picked: list[tuple[Moved, np.ndarray]] = []
            for segment, mine, (lo, hi) in zip(old, moved, spans, strict=True):
                at = row_numbers(lo, hi)
                dead = segment.fingerprints[at] >= ck.DEAD
                stays = ~dead
                _, place = mine.found_in(at)
                stays[place] = True
                at = at[stays]
                if len(at):
                    sources.append((segment.rows, at, dead[stays]))
                    picked.append((mine, at))
            if not sources:
                continue
            positions = writer.add(shard, sources)
            for segment in old:
                segment.release()
            edges = np.cumsum([len(at) for _, at in picked])[:-1]
            for (mine, at), to in zip(picked, np.split(positions, edges), strict=True):
                numbers, place = mine.found_in(at)
                mine.after[numbers] = to[place]
        return writer.finish(), [mine.still_there() for mine in moved]
    except BaseException:
        writer.close()
        raise


def _piece_rows(old: Sequence[Segment]) -> int:
    row_bytes = sum(segment.disk_bytes for segment in old) / sum(len(segment.fingerprints) for segment in old)
    return max(2 * len(old), int(PIECE_BYTES / (2 * row_bytes + _ROW_ROOM_BYTES)))


Spans = list[tuple[np.ndarray, np.ndarray]]
"""For each segment, first positions and ends of the cells that belong to a piece."""


def _pieces(old: Sequence[Segment], compaction_group: CompactionGroup, rows_most: int) -> Iterator[tuple[int, Spans]]:
    """The group's cells in the order of a segment: shards, and spans of about so many rows together."""
    for shard in filter(
        compaction_group.holds, np.unique(np.concatenate([segment.shards for segment in old])).tolist()
    ):
        cells = [segment.cells_of(shard) for segment in old]
        panes = [segment.panes[own] for segment, own in zip(old, cells, strict=True)]
        counts = [(segment.hi - segment.lo)[own] for segment, own in zip(old, cells, strict=True)]
        starts, which = np.unique(np.concatenate(panes), return_inverse=True)
        ends = np.cumsum(np.bincount(which.reshape(-1), np.concatenate(counts), len(starts)))
        first = 0
        while first < len(starts):
            done = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, done + rows_most, side="right")))
            numbers = [
                own.start + np.flatnonzero((pane >= starts[first]) & (pane <= starts[stop - 1]))
                for own, pane in zip(cells, panes, strict=True)
            ]
            cuts = _cuts(old, numbers, rows_most) if ends[stop - 1] - done > rows_most else []
            before = [segment.lo[own] for segment, own in zip(old, numbers, strict=True)]
            for cut in cuts:
                after = [segment.fingerprint_positions(own, cut) for segment, own in zip(old, numbers, strict=True)]
                yield shard, list(zip(before, after, strict=True))
                before = after
            yield shard, [(lo, segment.hi[own]) for lo, segment, own in zip(before, old, numbers, strict=True)]
            first = stop


def _cuts(old: Sequence[Segment], numbers: Sequence[np.ndarray], rows_most: int) -> list[int]:
    """Fingerprints at which to cut one pane of a shard, of which each segment has at most one cell."""
    # Every step-th fingerprint of n cells is a sample: between one n-th sample and the next, no cell has more rows than
    # a step beyond its own samples.
    own = [(segment, cell) for segment, cells in zip(old, numbers, strict=True) for cell in cells.tolist()]
    step = max(1, rows_most // (2 * len(own)))
    samples = np.sort(
        np.concatenate([ck.FINGERPRINT_MASK & s.fingerprints[s.lo[c] + step : s.hi[c] : step] for s, c in own])
    )
    cuts: list[int] = np.unique(samples[len(own) - 1 :: len(own)]).tolist()
    return cuts
