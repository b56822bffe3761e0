"""How a sealed delta becomes a commit's result: saved, and where asked uploaded, with the times of these steps.

Threads: ``save`` is called by one thread at a time, the uploads by any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.commit.manifest import Compaction, Manifest
from tailrace.commit.objects import ObjectRef, ShardSections
from tailrace.env.clock import Clock
from tailrace.errors import StateServerError
from tailrace.ids import Attempt
from tailrace.server.checkpoint.deltas import Sealed
from tailrace.server.transport.epoch_messages import CommitResult, Span, Uploaded


class Checkpoint(Protocol):
    """Where deltas go and shards come from. ``far``: what is saved still has to be uploaded."""

    @property
    def far(self) -> bool: ...

    def save(self, at: Attempt, sealed: Sealed) -> ObjectRef: ...

    def upload(self, names: Sequence[str]) -> list[str]: ...

    def read(
        self, manifest: Manifest, operator: str, shards: Iterable[int], *, pieces: bool
    ) -> Iterator[ShardSections]: ...

    def keep(self, manifest: Manifest) -> None: ...
    def due(self, shards: Sequence[int], changed_bytes: int, state_bytes: int) -> tuple[int, ...] | None: ...
    def compact(self, manifest: Manifest, shards: Iterable[int], snapshot: ShardSnapshot | None = None) -> None: ...
    def compactions(self) -> list[Compaction]: ...
    def compacting(self) -> tuple[float, float] | None: ...
    def close(self) -> None: ...


class DeltaSaver:
    def __init__(self, checkpoint: Checkpoint, clock: Clock) -> None:
        self._checkpoint = checkpoint
        self._clock = clock

    def save(self, at: Attempt, sealed: Sealed, began: float, sealing: float) -> CommitResult:
        """Save the delta, where there is one.

        ``began``, ``sealing``: when the commit began, by the clock for durations and by the wall clock.
        """
        saving = self._clock.now()
        delta = None
        if any(sealed.sections.values()):
            delta = self._checkpoint.save(at, sealed)
        # else: horizons that moved without a record need no object, the manifest carries them
        compactions = tuple(self._checkpoint.compactions())
        spans = [("seal", sealing, saving), self._span("local", saving)]
        if (compacting := self._checkpoint.compacting()) is not None:
            spans.append(("snapshot", *compacting))
        return CommitResult(
            delta=delta,
            compactions=compactions,
            horizons=sealed.horizons,
            commit_ms=round((self._clock.monotonic() - began) * 1000, 3),
            uploaded=delta is None or not self._checkpoint.far,
            spans=tuple(spans),
        )

    def uploaded(self, committed: CommitResult) -> CommitResult:
        """The result once its delta is in the store, where it is brought if it is not there yet."""
        if committed.uploaded:
            return committed
        assert committed.delta is not None
        upload = self.upload([committed.delta.name])
        if not upload.names:
            raise StateServerError(f"{committed.delta.name} was saved on this machine and is gone; start a new try")
        return replace(committed, uploaded=True, spans=(*committed.spans, upload.span))

    def upload(self, names: Sequence[str]) -> Uploaded:
        """Bring deltas that were saved on this machine into the store, by this server or by one before it."""
        began = self._clock.now()
        return Uploaded(tuple(self._checkpoint.upload(names)), self._span("upload", began))

    def _span(self, name: str, began: float) -> Span:
        return name, began, self._clock.now()
