"""The deltas of a server's newest epochs: sealed, then saved; and the shards that are given whole with them.

Invariants
- A delta is frozen, as copies, while its epoch is the newest one: nothing that comes later is in it.
- What is given whole beside it is the state after the same epoch. It is kept until a manifest of that epoch is durable.
- A delta is saved at most once per (epoch, try): ``saved`` is what it came to.

Threads: under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.errors import StateServerError
from tailrace.ids import Attempt
from tailrace.operators.base import ShardSnapshotSource
from tailrace.server.epoch.operator_runner import OperatorRunner, Step
from tailrace.server.transport.epoch_messages import CommitResult

Due = Callable[[Sequence[int], int, int], tuple[int, ...] | None]
"""Of shards, bytes changed and bytes of state: which shards to give whole. See ``commit.renewal``."""


@dataclass(frozen=True)
class Sealed:
    """An epoch's delta, frozen."""

    shards: list[int]
    sections: Mapping[str, Mapping[int, pa.RecordBatch]]
    horizons: dict[str, int]


class Sealing:
    def __init__(self, runners: Mapping[str, OperatorRunner], due: Due) -> None:
        self._runners = runners
        self._due = due
        self._sealed: dict[Attempt, Sealed] = {}
        self._wholes: dict[Attempt, ShardSnapshot] = {}
        self.saved: dict[Attempt, CommitResult] = {}

    def has(self, at: Attempt) -> bool:
        return at in self._sealed or at in self.saved

    def sealed(self, at: Attempt) -> Sealed | None:
        return self._sealed.get(at)

    def seal(self, at: Attempt, shards: list[int]) -> Sealed:
        """Freeze the delta of the newest epoch."""
        behind = [runner.name for runner in self._runners.values() if runner.step_of(at) != Step.ADVANCED]
        if behind:
            raise StateServerError(f"epoch {at.epoch} try {at.try_} cannot be committed: {behind} not advanced")
        sections = {runner.name: runner.operator.delta(at.epoch) for runner in self._runners.values()}
        horizons = {runner.name: runner.operator.horizon for runner in self._runners.values()}
        sealed = self._sealed[at] = Sealed(shards, sections, horizons)
        with suppress(MemoryError):  # then nothing is renewed with this epoch, and that is all
            whole = self._whole(sealed)
            if whole is not None:
                self._wholes[at] = whole
        return sealed

    def _whole(self, sealed: Sealed) -> ShardSnapshot | None:
        """Shards whose turn it is, where it pays to write them out of memory."""
        operators = {name: runner.operator for name, runner in self._runners.items()}
        snapshot_source = {
            name: each for name, each in operators.items() if isinstance(each, ShardSnapshotSource) and each.in_memory
        }
        batches = [batch for by_shard in sealed.sections.values() for batch in by_shard.values()]
        rows = sum(batch.num_rows for batch in batches)
        if len(snapshot_source) < len(operators):
            return None
        changed = sum(batch.nbytes for batch in batches)
        held = changed * sum(each.rows for each in operators.values()) // max(rows, 1)
        due = self._due(sealed.shards, changed, held)
        if due is None:
            return None
        sections = {name: each.whole(due) for name, each in snapshot_source.items()} if due else {}
        return ShardSnapshot(due, sections, sealed.horizons)

    def keep(self, at: Attempt, saved: CommitResult) -> None:
        """The delta was saved; where it was undone meanwhile, that means nothing."""
        if self._sealed.pop(at, None) is not None:
            self.saved[at] = saved

    def whole(self, epoch: int) -> ShardSnapshot | None:
        """What was given whole with a durable epoch: handed out once, and nothing older is kept."""
        found = next((whole for at, whole in self._wholes.items() if at.epoch == epoch), None)
        self._wholes = {at: whole for at, whole in self._wholes.items() if at.epoch > epoch}
        return found

    def let_go(self, over: Callable[[Attempt], bool]) -> None:
        """Keep nothing of these epochs. A write that is under way goes on, and means nothing."""
        for kept in (self._sealed, self._wholes, self.saved):
            for at in [at for at in kept if over(at)]:
                del kept[at]
