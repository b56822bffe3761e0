"""The deltas of a server's newest epochs: sealed, then saved; and the shard snapshots that are taken with them.

Invariants
- A delta is frozen, as copies, while its epoch is the newest one: nothing that comes later is in it.
- A shard snapshot taken with it is the state after the same epoch. It is kept until that epoch is durable.
- A delta is saved at most once per (epoch, try): ``saved`` is what it came to.

Threads: under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.env.transit_memory import TransitMemory
from tailrace.ids import Attempt
from tailrace.operators.base import Operator, ShardSnapshotSource
from tailrace.server.transport.epoch_messages import CommitResult
from tailrace.state.sections.epoch_sections import EpochSections

Due = Callable[[Sequence[int], int, int], tuple[int, ...] | None]
"""Shards, bytes changed, bytes of state -> the shards to take a snapshot of: see ``SnapshotScheduler.due``."""


@dataclass(frozen=True)
class Sealed:
    """An epoch's delta, frozen."""

    shards: list[int]
    sections: Mapping[str, EpochSections]
    horizons: dict[str, int]

    def release(self) -> None:
        for sections in self.sections.values():
            sections.release()


class Sealing:
    def __init__(self, due: Due, transit: TransitMemory | None = None, folder: str | None = None) -> None:
        """``transit``: where deltas are counted until they are saved; what finds no room lies in ``folder``."""
        self._due = due
        self._transit, self._folder = transit, folder
        self._sealed: dict[Attempt, Sealed] = {}
        self._snapshots: dict[Attempt, ShardSnapshot] = {}
        self.saved: dict[Attempt, CommitResult] = {}

    def has(self, at: Attempt) -> bool:
        return at in self._sealed or at in self.saved

    def sealed(self, at: Attempt) -> Sealed | None:
        return self._sealed.get(at)

    def seal(self, at: Attempt, shards: list[int], operators: Mapping[str, Operator]) -> Sealed:
        """Freeze the delta of the newest epoch, which all operators have advanced."""
        sections = {name: self._counted(operator.delta(at.epoch)) for name, operator in operators.items()}
        horizons = {name: operator.horizon for name, operator in operators.items()}
        sealed = self._sealed[at] = Sealed(shards, sections, horizons)
        with suppress(MemoryError):  # then no shard snapshot is taken with this epoch, and that is all
            snapshot = self._take_snapshot(sealed, operators)
            if snapshot is not None:
                self._snapshots[at] = snapshot
        return sealed

    def _counted(self, delta: Mapping[int, pa.RecordBatch]) -> EpochSections:
        if isinstance(delta, EpochSections):
            return delta
        return EpochSections(delta.items(), self._transit, self._folder)

    def _take_snapshot(self, sealed: Sealed, operators: Mapping[str, Operator]) -> ShardSnapshot | None:
        """The shards whose turn it is, where it pays to write them from memory."""
        sources = {
            name: each for name, each in operators.items() if isinstance(each, ShardSnapshotSource) and each.in_memory
        }
        if len(sources) < len(operators):
            return None
        rows = sum(sections.rows for sections in sealed.sections.values())
        changed_bytes = sum(sections.nbytes for sections in sealed.sections.values())
        state_bytes = changed_bytes * sum(each.rows for each in operators.values()) // max(rows, 1)
        due = self._due(sealed.shards, changed_bytes, state_bytes)
        if due is None:
            return None
        sections = {name: each.whole(due) for name, each in sources.items()} if due else {}
        return ShardSnapshot(due, sections, sealed.horizons)

    def keep(self, at: Attempt, saved: CommitResult) -> None:
        """The delta was saved; where it was undone meanwhile, that means nothing."""
        sealed = self._sealed.pop(at, None)
        if sealed is not None:
            sealed.release()
            self.saved[at] = saved

    def take_snapshot_of(self, epoch: int) -> ShardSnapshot | None:
        """The shard snapshot of a durable epoch: handed out once, and nothing older is kept."""
        found = next((snapshot for at, snapshot in self._snapshots.items() if at.epoch == epoch), None)
        self._snapshots = {at: snapshot for at, snapshot in self._snapshots.items() if at.epoch > epoch}
        return found

    def let_go(self, over: Callable[[Attempt], bool]) -> None:
        """Keep nothing of these epochs. A write that is under way goes on, and means nothing."""
        for at in [at for at in self._sealed if over(at)]:
            self._sealed.pop(at).release()
        for kept in (self._snapshots, self.saved):
            for at in [at for at in kept if over(at)]:
                del kept[at]
