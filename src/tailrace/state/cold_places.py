"""Records of several segments that were looked for at once: copies of them, and where they lie.

Who has looked at a record need not look for it again to take it, nor to keep a copy of it: its place says which it is.

Invariants
- Places stay what they are until segments are rewritten: whoever holds some uses them before that.
- Records of one segment come in the order of their positions; where several rows want one, it is there for each of
  them, one beside the other.

Threads: pure functions, but that they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state import cold_kernels as ck
from tailrace.state.cold_reads import ColdReads
from tailrace.state.cold_segment import ColdSegment, each_once
from tailrace.state.layout import RecordLayout
from tailrace.state.table import Rows, concat_rows

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Places:
    """Record ``i`` lies at position ``at[i]`` of segment ``owners[i]``."""

    segments: Sequence[ColdSegment]
    owners: np.ndarray
    at: np.ndarray

    def where(self, chosen: np.ndarray) -> Places:
        return Places(self.segments, self.owners[chosen], self.at[chosen])

    def by_segment(self) -> Iterator[tuple[ColdSegment, np.ndarray]]:
        """Positions in each segment, ascending and each once."""
        for owner, segment in enumerate(self.segments):
            at = self.at[self.owners == owner]
            if len(at):
                yield segment, each_once(at)

    def firsts(self) -> np.ndarray:
        """Of each record the first row that wants it."""
        other = (self.at[1:] != self.at[:-1]) | (self.owners[1:] != self.owners[:-1])
        return np.flatnonzero(np.append(True, other)) if len(self.at) else _NONE

    def shards(self) -> np.ndarray:
        shards = np.empty(len(self.at), np.int64)
        for owner, segment in enumerate(self.segments):
            own = self.owners == owner
            shards[own] = segment.shards_of(self.at[own])
        return shards


@dataclass(frozen=True)
class ColdLookup:
    """``rows[i]`` is a copy of the record that row ``numbers[i]`` wants. Strings of several rows may be the same."""

    rows: Rows
    numbers: np.ndarray
    places: Places

    def by_segment(self, chosen: np.ndarray) -> Iterator[tuple[ColdSegment, np.ndarray, Rows]]:
        """Of chosen records, none of them twice: positions in each segment, ascending, and copies."""
        for owner, segment in enumerate(self.places.segments):
            own = chosen & (self.places.owners == owner)
            if own.any():
                yield segment, self.places.at[own], Rows(self.rows.words[own], self.rows.heap)


@dataclass(frozen=True)
class ColdIndex:
    """Segments that are searched together, and how they are read."""

    segments: Sequence[ColdSegment]
    reads: ColdReads
    layout: RecordLayout

    def look_up(self, wanted: Rows, bounds: np.ndarray, horizon: int, *, keep: bool) -> ColdLookup:
        """Records with the key and pane of rows of all shards, sorted by shard. ``keep``: they may be wanted again."""
        likely = [segment.likely(wanted, bounds, horizon) for segment in self.segments]
        pairs = [(each.rows, each.at) for each in likely if each.rows is not None and each.at is not None]
        if len(pairs) < len(likely):  # too many share a tag to tell all of them
            return self._shard_by_shard(wanted, bounds, horizon, keep=keep)
        once = [each_once(at) for _, at in pairs]
        copies, numbers = self.reads.read_all(list(zip(self.segments, once, strict=True)), keep=keep)
        owners, positions = np.empty(len(copies), np.int64), np.empty(len(copies), np.int64)
        pair_copies = [_NONE]
        for owner, ((_, at), own, mine) in enumerate(zip(pairs, once, numbers, strict=True)):
            owners[mine], positions[mine] = owner, own
            pair_copies.append(mine[np.searchsorted(own, at)])
        by, of = np.concatenate([_NONE, *(rows for rows, _ in pairs)]), np.concatenate(pair_copies)
        how = (self.layout.key_words, self.layout.key_mask)
        count = ck.matches(wanted.words, wanted.heap, by, of, copies.words, copies.heap, *how)
        by, of = by[:count], of[:count]
        return ColdLookup(Rows(copies.words[of], copies.heap), by, Places(self.segments, owners[of], positions[of]))

    def _shard_by_shard(self, wanted: Rows, bounds: np.ndarray, horizon: int, *, keep: bool) -> ColdLookup:
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
        return ColdLookup(rows, numbers, Places(self.segments, owners, at))
