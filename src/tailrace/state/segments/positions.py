"""Records of several segments that were looked up at once: copies of them, and their positions.

A caller that has looked a record up need not search for it again to take it or to cache it: its position names it.

Invariants
- Positions are valid until segments are compacted: whoever holds some uses them before that.
- Records of one segment come in the order of their positions; where several rows match one record, it is there once
  for each of them, one after the other.

Threads: pure functions, apart from reading segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state.layout import RecordLayout
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.segments import kernels as ck
from tailrace.state.segments.fingerprint_index import candidate_positions
from tailrace.state.segments.reader import SegmentReader, ids_in
from tailrace.state.segments.segment import Segment, each_once

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class RecordPositions:
    """Record ``i`` lies at position ``at[i]`` of segment ``owners[i]``."""

    segments: Sequence[Segment]
    owners: np.ndarray
    at: np.ndarray

    def where(self, chosen: np.ndarray) -> RecordPositions:
        return RecordPositions(self.segments, self.owners[chosen], self.at[chosen])

    def by_segment(self) -> Iterator[tuple[Segment, np.ndarray]]:
        """Positions in each segment, ascending and each once."""
        for owner, segment in enumerate(self.segments):
            at = self.at[self.owners == owner]
            if len(at):
                yield segment, each_once(at)

    def ids(self, chosen: np.ndarray) -> np.ndarray:
        """The ids of the chosen records in the cache."""
        return ids_in(self.segments, self.owners[chosen], self.at[chosen])

    def firsts(self) -> np.ndarray:
        """Of each record the first row that matches it."""
        other = (self.at[1:] != self.at[:-1]) | (self.owners[1:] != self.owners[:-1])
        return np.flatnonzero(np.append(True, other)) if len(self.at) else _NONE

    def shards(self) -> np.ndarray:
        shards = np.empty(len(self.at), np.int64)
        for owner, segment in enumerate(self.segments):
            own = self.owners == owner
            shards[own] = segment.shards_of(self.at[own])
        return shards


@dataclass(frozen=True)
class SegmentLookup:
    """``rows[i]`` is a copy of the record that row ``numbers[i]`` matches. Several rows may share strings."""

    rows: Rows
    numbers: np.ndarray
    positions: RecordPositions


@dataclass(frozen=True)
class SegmentIndex:
    """Segments that are searched together, and how they are read."""

    segments: Sequence[Segment]
    reads: SegmentReader
    layout: RecordLayout

    def look_up(self, wanted: Rows, bounds: np.ndarray, horizon: int, *, keep: bool) -> SegmentLookup:
        """Records with the key and pane of rows, which are sorted by shard. ``keep``: they may be looked up again."""
        candidates = candidate_positions(self.segments, wanted, bounds, horizon)
        if candidates.rows is None:  # too many share a fingerprint to list all of them
            return self._shard_by_shard(wanted, bounds, horizon, keep=keep)
        places = RecordPositions(self.segments, candidates.which, candidates.at)
        firsts = places.firsts()
        once = places.where(firsts)
        copies, numbers = self.reads.read_all(self.segments, once.owners, once.at, keep=keep)
        owners, positions = np.empty(len(copies), np.int64), np.empty(len(copies), np.int64)
        owners[numbers], positions[numbers] = once.owners, once.at
        by, of = candidates.rows, np.repeat(numbers, np.diff(np.append(firsts, len(candidates.rows))))
        how = (self.layout.key_words, self.layout.key_mask)
        count = ck.matches(wanted.words, wanted.heap, by, of, copies.words, copies.heap, *how)
        by, of = by[:count], of[:count]
        return SegmentLookup(
            Rows(copies.words[of], copies.heap), by, RecordPositions(self.segments, owners[of], positions[of])
        )

    def _shard_by_shard(self, wanted: Rows, bounds: np.ndarray, horizon: int, *, keep: bool) -> SegmentLookup:
        found = []
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            chosen = np.arange(bounds[shard], bounds[shard + 1], dtype=np.int64)
            found += [
                (owner, segment.find(self.reads, shard, wanted, chosen, horizon, keep=keep))
                for owner, segment in enumerate(self.segments)
            ]
        owners, at, numbers = (
            np.concatenate([_NONE, *parts])
            for parts in (
                [np.full(len(pairs), owner, np.int64) for owner, pairs in found],
                [pairs.at for _, pairs in found],
                [pairs.rows for _, pairs in found],
            )
        )
        rows = concat_rows([pairs.paired() for _, pairs in found], self.layout)
        return SegmentLookup(rows, numbers, RecordPositions(self.segments, owners, at))
