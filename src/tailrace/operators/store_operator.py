"""What operators pass on to their stores: everything but applying rows and making the output.

An operator is over one store. What else it keeps, its companions (an index of the store's rows, deadlines of its
records), moves with the store: both are undone, dropped and closed together. Only the operator knows what a companion
is restored from, so that it overrides ``restore``.

Threads: one call at a time, as for every operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tailrace.operators.base import EpochState, HintedKeys, ShardState
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.state.layout import RecordLayout
from tailrace.state.metrics import Metrics, added
from tailrace.state.read_modify_write.store import ReadModifyWriteStore


class Companion(EpochState, Protocol):
    """What an operator keeps beside its store."""

    def metrics(self) -> Metrics: ...


class Store(Companion, ShardState, Protocol):
    """What is common to the stores."""

    @property
    def newest_epoch(self) -> int | None: ...
    def delta(self) -> Mapping[int, pa.RecordBatch]: ...


_Store = TypeVar("_Store", bound=Store)


def record_store(
    layout: RecordLayout,
    shards: Iterable[int],
    resources: Resources,
    *,
    removes: bool = False,
    noted_word: int | None = None,
    spill_changes: bool = False,
) -> ReadModifyWriteStore:
    """A store of records. ``removes``, ``noted_word``: for operators that remove single records; ``spill_changes``: for
    those that take an epoch's changes in pieces. See the store.
    """
    return ReadModifyWriteStore(
        layout,
        shards,
        resources.threads,
        removes=removes or noted_word is not None,
        noted_word=noted_word,
        spill_changes=spill_changes,
        transit=resources.transit,
        memory_bytes=resources.memory_bytes,
        folder=resources.folder,
        tuning=resources.tuning,
    )


class HintedRecords:
    """Hints for an operator whose frames have the keys and panes of its records first. See ``base.Hinted``."""

    _store: ReadModifyWriteStore

    def wants_hints(self) -> bool:
        return self._store.wants_hints

    def hint_frame(self, frame: Frame, epoch: int) -> None:
        self._store.hint(*frame.parts(), epoch)

    def hint_keys(self, hinted: HintedKeys, epoch: int) -> None:
        self._store.hint_hashes(hinted.hashes, hinted.panes, epoch)


class OverStore(Generic[_Store]):
    def __init__(self, store: _Store, *companions: Companion) -> None:
        self._store = store
        self._companions = list(companions)

    @property
    def _kept_together(self) -> list[Companion]:
        return [self._store, *self._companions]

    @property
    def shards(self) -> frozenset[int]:
        return self._store.shards

    @property
    def horizon(self) -> int:
        return self._store.horizon

    @property
    def rows(self) -> int:
        return self._store.rows

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + sum(each.nbytes for each in self._companions)

    @property
    def disk_bytes(self) -> int:
        return self._store.disk_bytes + sum(each.disk_bytes for each in self._companions)

    def metrics(self) -> Metrics:
        return added(self._store.metrics(), *(each.metrics() for each in self._companions))

    def delta(self, epoch: int) -> Mapping[int, pa.RecordBatch]:
        self._check_newest(epoch)
        return self._store.delta()

    def undo(self, epoch: int) -> None:
        for each in self._kept_together:
            each.undo(epoch)

    def forget(self, epoch: int) -> None:
        for each in self._kept_together:
            each.forget(epoch)

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        self._store.restore(shard, batches, horizon)

    def drop_shard(self, shard: int) -> None:
        for each in self._kept_together:
            each.drop_shard(shard)

    def close(self) -> None:
        for each in self._kept_together:
            each.close()

    def _check_newest(self, epoch: int) -> None:
        if self._store.newest_epoch != epoch:
            raise ValueError(f"epoch {epoch} is not the one last applied ({self._store.newest_epoch})")


class RecordSnapshots:
    """Shards whole, for an operator over records that writes nothing else. See ``base.ShardSnapshotSource``."""

    _store: ReadModifyWriteStore

    @property
    def in_memory(self) -> bool:
        """Not where its delta is more than its store's: of that the store knows nothing."""
        return getattr(type(self), "delta", None) is OverStore.delta and self._store.in_memory

    def whole(self, shards: Sequence[int]) -> dict[int, pa.RecordBatch]:
        return self._store.snapshot(shards)
