"""Shard snapshots: with every epoch a few shards are written completely, from memory, and older objects are not read.

A *shard snapshot* is a compaction (see ``compaction``) of all that its shards have. Its sections are not merged from
the objects that it replaces: they are the state itself, copied when an epoch's delta is sealed. Where an epoch changes
much of the state this costs a fraction of reading the last epochs' deltas and merging them: every epoch writes about
half as much again, and an object leaves the manifest once all of its shards had a snapshot. Where it changes little,
snapshots of everything within a bounded number of epochs would write much more than the epochs do, and merging objects
is cheaper.

Pure functions, and a memory of what was asked for last. One thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.commit.objects import ObjectRef


@dataclass(frozen=True)
class ShardSnapshot:
    """Shards as they were after an epoch, complete: sections by operator and shard. None, where none was due."""

    shards: tuple[int, ...]
    sections: Mapping[str, Mapping[int, pa.RecordBatch]]
    horizons: Mapping[str, int]


@dataclass(frozen=True)
class SnapshotRule:
    """``chain``: a snapshot of a shard is taken once so many objects hold something of it. So objects that die before
    are left alone. ``cycle``: snapshots pay where all shards get their turn within so many epochs. ``extra``: an epoch
    writes that much more, of what it changes. ``least_bytes``: below this an epoch costs its request, not its bytes.
    """

    chain: int = 16
    cycle: int = 32
    extra: float = 0.5
    least_bytes: int = 1 << 20

    def at_once(self, shards: int, changed_bytes: int, state_bytes: int) -> int:
        """Of how many shards an epoch that changes so much may take a snapshot; 0 where merging objects is cheaper.

        >>> SnapshotRule().at_once(64, changed_bytes=36_000_000, state_bytes=216_000_000)
        5
        >>> SnapshotRule().at_once(64, changed_bytes=2_000_000, state_bytes=216_000_000)
        0
        """
        if changed_bytes < self.least_bytes or not shards:
            return 0
        share = min(1.0, self.extra * changed_bytes / max(state_bytes, 1))
        return max(1, round(share * shards)) if share * self.cycle >= 1 else 0


DEFAULT_TUNING = SnapshotRule()


class SnapshotScheduler:
    """Which shards come next."""

    def __init__(self, rule: SnapshotRule = DEFAULT_TUNING) -> None:
        self._rule = rule
        self._chains: dict[int, int] = {}
        self._changed: deque[int] = deque(maxlen=rule.chain)
        self._asked: deque[tuple[int, ...]] = deque(maxlen=3)
        """What the newest manifest known here cannot show yet: asked for, being written, or waiting to be listed."""

    def see(self, objects: Iterable[ObjectRef], shards: Sequence[int]) -> None:
        """The living objects of a durable manifest, and the shards kept here."""
        self._chains = chains(objects, shards)

    def due(self, shards: Sequence[int], changed_bytes: int, state_bytes: int) -> tuple[int, ...] | None:
        """The shards to take a snapshot of now, ascending; None where merging objects is cheaper.

        To be asked with every epoch: what counts is the mean of the last ones. So one large epoch among small ones
        takes no snapshot, and a stream does not go back and forth between snapshots and merging.
        """
        self._changed.append(changed_bytes)
        if not changed_bytes:
            return None
        count = self._rule.at_once(len(shards), sum(self._changed) // len(self._changed), state_bytes)
        if not count:
            return None
        waiting = {shard for asked in self._asked for shard in asked}
        long = [
            (-length, shard)
            for shard in shards
            if shard not in waiting and (length := self._chains.get(shard, 0)) >= self._rule.chain
        ]
        chosen = tuple(sorted(shard for _, shard in sorted(long)[:count]))
        self._asked.append(chosen)
        return chosen


def chains(objects: Iterable[ObjectRef], shards: Sequence[int]) -> dict[int, int]:
    """By shard, how many of the objects hold something of it."""
    counts = np.zeros(max(shards, default=-1) + 1, np.int64)
    for ref in objects:
        for start, end in ref.shards:
            counts[start:end] += 1
    return {shard: int(counts[shard]) for shard in shards}
