"""What an operator whose state is one store hands on to it: everything but applying rows and making the emission.

Threads: one call at a time, as for every operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tailrace.operators.base import HintedKeys
from tailrace.operators.ingest.frame import Frame
from tailrace.state.metrics import Metrics
from tailrace.state.read_modify_write.store import ReadModifyWriteStore


class Store(Protocol):
    """What is common to the stores."""

    horizon: int

    @property
    def shards(self) -> frozenset[int]: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...
    @property
    def newest_epoch(self) -> int | None: ...
    def metrics(self) -> Metrics: ...
    def delta(self) -> dict[int, pa.RecordBatch]: ...
    def undo(self, epoch: int) -> None: ...
    def forget(self, epoch: int) -> None: ...
    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None: ...
    def drop_shard(self, shard: int) -> None: ...
    def close(self) -> None: ...


_Store = TypeVar("_Store", bound=Store)


class HintedRecords:
    """Hints for an operator whose frames have the keys and panes of its records first. See ``operator.Hinted``."""

    _store: ReadModifyWriteStore

    def wants_hints(self) -> bool:
        return self._store.wants_hints

    def hint_frame(self, frame: Frame, epoch: int) -> None:
        self._store.hint(*frame.parts(), epoch)

    def hint_keys(self, told: HintedKeys, epoch: int) -> None:
        self._store.hint_hashes(told.hashes, told.panes, epoch)


class OverStore(Generic[_Store]):
    def __init__(self, store: _Store) -> None:
        self._store = store

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
        return self._store.nbytes

    @property
    def disk_bytes(self) -> int:
        return self._store.disk_bytes

    def metrics(self) -> Metrics:
        return self._store.metrics()

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        return self._store.delta()

    def undo(self, epoch: int) -> None:
        self._store.undo(epoch)

    def forget(self, epoch: int) -> None:
        self._store.forget(epoch)

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        self._store.restore(shard, batches, horizon)

    def drop_shard(self, shard: int) -> None:
        self._store.drop_shard(shard)

    def close(self) -> None:
        self._store.close()

    def _check_newest(self, epoch: int) -> None:
        if self._store.newest_epoch != epoch:
            raise ValueError(f"epoch {epoch} is not the one last applied ({self._store.newest_epoch})")


class RecordSnapshots:
    """Shards whole, for an operator over records that writes nothing else. See ``operator.Renewable``."""

    _store: ReadModifyWriteStore

    @property
    def in_memory(self) -> bool:
        """Not where its delta is more than its store's: of that the store knows nothing."""
        return getattr(type(self), "delta", None) is OverStore.delta and self._store.in_memory

    def whole(self, shards: Sequence[int]) -> dict[int, pa.RecordBatch]:
        return self._store.snapshot(shards)
