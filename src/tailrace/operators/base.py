"""What a state server needs of an operator of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa


class EpochState(Protocol):
    """What moves epoch by epoch, and shard by shard: an operator, its store, and what it keeps beside its store."""

    def undo(self, epoch: int) -> None: ...
    def forget(self, epoch: int) -> None: ...
    def drop_shard(self, shard: int) -> None: ...
    def close(self) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...


class ShardState(EpochState, Protocol):
    """State that is divided into shards, and whose panes expire: an operator, and its store."""

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None: ...
    @property
    def horizon(self) -> int: ...
    @property
    def shards(self) -> frozenset[int]: ...
    @property
    def rows(self) -> int: ...


class Operator(ShardState, Protocol):
    """One call at a time. Steps of an epoch: ``apply``, ``advance``, ``delta``; ``undo`` goes back to before it."""

    def apply(self, epoch: int, frames: Sequence[Any]) -> None: ...
    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        """What the epoch puts out; ``output.EpochOutput`` where that may be much."""

    def delta(self, epoch: int) -> Mapping[int, pa.RecordBatch]: ...
    def updated(self, epoch: int) -> int: ...


@runtime_checkable
class Timed(Protocol):
    """An operator that goes by the epoch's own time, or forgets what was not updated for long."""

    def set_times(self, now: int, forget_before: int) -> None:
        """Before ``apply``: when the epoch began, and up to which last update records are forgotten by it."""


@runtime_checkable
class Patient(Protocol):
    """An operator that may wait for something outside of the engine."""

    def give_up(self) -> None:
        """Wait for nothing any more: the query is being stopped. Any thread, beside a step."""


@runtime_checkable
class ShardSnapshotSource(Protocol):
    """An operator that can give all records of shards out of memory. See ``commit.compaction.shard_snapshot``."""

    @property
    def in_memory(self) -> bool:
        """Whether it can now."""

    def whole(self, shards: Sequence[int]) -> Mapping[int, pa.RecordBatch]:
        """A section of each of these shards that has records: all that the shard's sections so far amount to."""


@runtime_checkable
class RestoredInPieces(Protocol):
    """An operator that need not have all sections of a shard at once."""

    @property
    def restored_in_pieces(self) -> bool:
        """Whether it can, with what it is made of."""

    def restore_more(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """The sections of other keys of a shard of which ``restore`` has had some."""


@dataclass(frozen=True)
class HintedKeys:
    """Keys on their way, by their hashes, each with its event time.

    ``panes``: of the records that are meant, where a key has several. ``keys``: the key columns, where a spec asks.
    """

    hashes: np.ndarray
    times: np.ndarray
    panes: np.ndarray | None = None
    keys: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return len(self.hashes)


@runtime_checkable
class Hinted(Protocol):
    """An operator whose state may be spilled, and that prefetches what hints name.

    Hints may be dropped and change no answer. Called between steps, as all else, or by a step that rewrites what lies
    on disk and pauses (``ColdTuning.pause``): they change nothing but what is fetched. ``wants_hints`` at any time.
    """

    def wants_hints(self) -> bool:
        """Whether any state is spilled: else hints cost and bring nothing."""

    def hint_frame(self, frame: Any, epoch: int) -> None:
        """A staged frame of the operator's, that this epoch will apply."""

    def hint_keys(self, hinted: HintedKeys, epoch: int) -> None:
        """Keys that are on their way, and will be applied in this epoch."""


@runtime_checkable
class HintedByKey(Hinted, Protocol):
    """One that needs the keys themselves, and says by their hashes which of them."""

    def lacking(self, hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Of keys that are on their way, which it would fetch. Any thread, beside a step."""
