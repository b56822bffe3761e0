"""Staged frames: what tasks have sent and no epoch has applied yet.

Invariants
- A stage is one attempt's frames for one operator and one (epoch, try), in the order in which they were sent.
- A stage is complete once its stream has ended with the sender's own receipt and that equals what arrived; only a
  complete stage can be committed. A stream that breaks off leaves nothing.
- Fence: a stage below the newest (epoch, try), at or below the forgotten epoch, or of an (epoch, try) that is already
  sealed for its operator is refused; a fenced stage that is still being written is dropped and its stream refused.
- Frames that find no room in the server's transit memory lie in one unnamed file per stage.

Threading
``_lock`` guards the maps, the counters and every ``state`` of a stage, and is never held over disk or network. While a
stage is OPEN its frames and its spilled rows belong to the thread that feeds it: others only mark it DROPPED, and that
thread cleans up. Afterwards they belong to whoever takes the stage out of the map.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

import pyarrow as pa

from tailrace.env.files.scratch import SpilledBatches
from tailrace.env.transit_memory import TransitMemory
from tailrace.errors import FencedError, StateServerError
from tailrace.ids import NO_EPOCH, Attempt
from tailrace.server.transport.stage_messages import (
    NOTHING_STAGED,
    CommittedAttempt,
    StageKey,
    StageReceipt,
    chain_checksum,
)


class Frame(Protocol):
    """What staging needs of ``operators.ingest.frame.Frame``."""

    @property
    def n(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def checksum(self) -> int: ...
    def to_batch(self) -> pa.RecordBatch: ...


class StageState(Enum):
    OPEN = "open"
    COMPLETE = "complete"
    DROPPED = "dropped"


class Stage:
    """One attempt's frames. A frame is None where it is spilled instead."""

    def __init__(self, key: StageKey) -> None:
        self.key = key
        self.state = StageState.OPEN
        self.receipt = NOTHING_STAGED
        self.frames: list[Frame | None] = []
        self.memory_bytes = 0
        self.spilled_bytes = 0
        self.spill: SpilledBatches | None = None

    @property
    def at(self) -> Attempt:
        return Attempt(self.key.epoch, self.key.try_)


class Staging:
    def __init__(
        self,
        run: str,
        folder: str,
        transit: TransitMemory,
        frame_of: Callable[[str, pa.RecordBatch], Frame],
        gather: Callable[[str, list[Frame]], list[Frame]] = lambda operator, frames: frames,
    ) -> None:
        """``gather`` puts frames of an operator together where they are small."""
        self._run = run
        self.folder = folder
        self.transit = transit
        self._frame_of = frame_of
        self._gather = gather
        self._lock = threading.Lock()
        self._stages: dict[StageKey, Stage] = {}
        self._newest = Attempt(NO_EPOCH, 0)
        self._forgotten: int = NO_EPOCH
        self._sealed: dict[str, Attempt] = {}  # by operator
        self._memory_bytes = 0
        self._spilled_bytes = 0

    @property
    def spilled_bytes(self) -> int:
        return self._spilled_bytes

    @property
    def staged_bytes(self) -> int:
        return self._memory_bytes + self._spilled_bytes

    # -- the stream of one attempt ------------------------------------------------------------------------------------

    def open(self, key: StageKey) -> Stage:
        """Begin an attempt's stage. A later try fences the earlier ones as soon as its first task appears."""
        with self._lock:
            self._refuse_fenced(key)
            if key in self._stages:
                raise StateServerError(f"attempt {key.attempt} has already staged rows for epoch {key.epoch}")
            stage = self._stages[key] = Stage(key)
            losers = self._raise_newest(stage.at)
        self._clean(losers)
        return stage

    def preview(self, key: StageKey, batch: pa.RecordBatch) -> Frame:
        """The frame that will be staged once its task has sent all. Refused where that would be."""
        with self._lock:
            self._refuse_fenced(key)
        return self._frame_of(key.operator, batch)

    def add(self, stage: Stage, batch: pa.RecordBatch, *, in_file: bool = False) -> Frame:
        """Append a frame, spilling it where memory has no room. Called only by the thread that opened the stage.

        ``in_file``: it is mapped from a file already, and stays there.
        """
        frame = self._frame_of(stage.key.operator, batch)
        nbytes = frame.nbytes
        receipt = stage.receipt.after(frame.n, nbytes, frame.checksum())
        with self._lock:
            self._refuse_dropped(stage)
            fits = self.transit.take(nbytes)
            if fits:
                self._memory_bytes += nbytes
                stage.memory_bytes += nbytes
            else:
                self._spilled_bytes += nbytes
                stage.spilled_bytes += nbytes
        if not fits and not in_file:
            if stage.spill is None:
                stage.spill = SpilledBatches(self.folder, batch.schema)
            stage.spill.write(batch)
        stage.frames.append(frame if fits or in_file else None)
        stage.receipt = receipt
        return frame

    def finish(self, stage: Stage, said: StageReceipt) -> StageReceipt:
        """Complete a stage whose sender says what it has sent."""
        if said != stage.receipt:
            raise StateServerError(f"attempt {stage.key.attempt} sent {said}, but {stage.receipt} arrived")
        with self._lock:
            self._refuse_dropped(stage)
            stage.state = StageState.COMPLETE
        return stage.receipt

    def abandon(self, stage: Stage) -> None:
        """Throw away a stage that its stream has not finished. Called only by the thread that opened it."""
        with self._lock:
            if stage.state is StageState.COMPLETE:
                return
            stage.state = StageState.DROPPED
            if self._stages.get(stage.key) is stage:
                del self._stages[stage.key]
        self._clean([stage])

    # -- the driver's side --------------------------------------------------------------------------------------------

    def select(self, operator: str, at: Attempt, committed_attempts: Sequence[CommittedAttempt]) -> list[Stage]:
        """Take the committed attempts' stages in the order in which they are named: rows are applied in it.

        Every other stage of this (epoch, try) is dropped, and it is sealed. An attempt that staged nothing here need
        not be present. Where something is missing nothing is taken.
        """
        with self._lock:
            found = {stage.key.attempt: stage for stage in self._of(operator, at)}
            faults = [
                fault
                for committed_attempt in committed_attempts
                if (fault := _fault(committed_attempt, found.get(committed_attempt.attempt)))
            ]
            if len({committed_attempt.partition for committed_attempt in committed_attempts}) != len(
                committed_attempts
            ):
                faults.append("two committed attempts of one partition")
            if faults:
                shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
                raise StateServerError(f"epoch {at.epoch} try {at.try_} of {operator!r} cannot be prepared: {shown}")
            taken = [found.pop(w.attempt) for w in committed_attempts if w.attempt in found]
            for stage in taken:
                del self._stages[stage.key]
            losers = self._drop_locked(found.values())
            self._sealed[operator] = at
        self._clean(losers)
        return taken

    def gathered(self, operator: str, stages: Iterable[Stage]) -> list[Frame]:
        """The frames of taken stages in order, the small ones put together."""
        return self.together(operator, list(self.frames(stages)))

    def together(self, operator: str, frames: list[Frame]) -> list[Frame]:
        """The frames in their order, the small ones as one."""
        return self._gather(operator, frames)

    def frames(self, stages: Iterable[Stage]) -> Iterator[Frame]:
        """The frames of taken stages in order. Spilled ones are mapped from disk and checked again."""
        for stage in stages:
            spilled = iter(stage.spill.batches() if stage.spill is not None else ())
            checksum = 0
            for held in stage.frames:
                frame = held if held is not None else self._frame_of(stage.key.operator, next(spilled))
                if stage.spill is not None:
                    checksum = chain_checksum(checksum, frame.checksum())
                yield frame
            if stage.spill is not None and checksum != stage.receipt.checksum:
                raise StateServerError(f"rows spilled to {self.folder} came back damaged: check that disk")

    def release(self, stages: Iterable[Stage]) -> None:
        """Let go of taken stages."""
        self._clean(stages)

    def fence(self, newest: Attempt, forgotten: int = NO_EPOCH) -> None:
        """From now on refuse what is below ``newest`` or at or below ``forgotten``; drop what is held of it."""
        with self._lock:
            self._forgotten = max(self._forgotten, forgotten)
            losers = self._raise_newest(newest)
            losers += self._drop_locked([s for s in self._stages.values() if s.key.epoch <= self._forgotten])
        self._clean(losers)

    def clear(self) -> None:
        """Drop everything that is staged."""
        with self._lock:
            losers = self._drop_locked(list(self._stages.values()))
        self._clean(losers)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _of(self, operator: str, at: Attempt) -> list[Stage]:
        return [s for s in self._stages.values() if s.key.operator == operator and s.at == at]

    def _refuse_fenced(self, key: StageKey) -> None:
        at = Attempt(key.epoch, key.try_)
        if key.run != self._run:
            raise FencedError(f"this server belongs to run {self._run}, not to {key.run}")
        if key.epoch <= self._forgotten or at < self._newest:
            raise FencedError(
                f"attempt {key.attempt} comes too late: epoch {key.epoch} try {key.try_} is over"
                f" (now at epoch {self._newest.epoch} try {self._newest.try_})"
            )
        sealed = self._sealed.get(key.operator)
        if sealed is not None and at <= sealed:
            raise FencedError(
                f"attempt {key.attempt} comes too late: epoch {key.epoch} try {key.try_} has its committed attempts"
            )

    def _refuse_dropped(self, stage: Stage) -> None:
        if stage.state is not StageState.OPEN:
            raise FencedError(f"attempt {stage.key.attempt} lost: epoch {stage.key.epoch} went on without it")

    def _raise_newest(self, at: Attempt) -> list[Stage]:
        if at <= self._newest:
            return []
        self._newest = at
        return self._drop_locked([stage for stage in self._stages.values() if stage.at < at])

    def _drop_locked(self, stages: Iterable[Stage]) -> list[Stage]:
        """Take stages out of the map; those returned are ours to clean, open ones their own thread's."""
        ours = []
        for stage in stages:
            del self._stages[stage.key]
            if stage.state is StageState.COMPLETE:
                ours.append(stage)
            stage.state = StageState.DROPPED
        return ours

    def _clean(self, stages: Iterable[Stage]) -> None:
        for stage in stages:
            if stage.spill is not None:
                stage.spill.close()
            stage.frames.clear()
            self.transit.give_back(stage.memory_bytes)
            with self._lock:
                self._memory_bytes -= stage.memory_bytes
                self._spilled_bytes -= stage.spilled_bytes
                stage.memory_bytes = stage.spilled_bytes = 0


def _fault(committed_attempt: CommittedAttempt, stage: Stage | None) -> str | None:
    """Why a committed attempt's rows cannot be used, or None."""
    who = f"partition {committed_attempt.partition} attempt {committed_attempt.attempt}"
    if stage is None:
        return None if committed_attempt.rows == 0 else f"{who}: {committed_attempt.rows} rows missing"
    if stage.state is not StageState.COMPLETE:
        return f"{who}: its stream has not ended"
    if stage.key.partition != committed_attempt.partition:
        return f"{who}: staged for partition {stage.key.partition}"
    if stage.receipt.rows != committed_attempt.rows:
        return f"{who}: {committed_attempt.rows} rows expected, {stage.receipt.rows} staged"
    if stage.receipt.checksum != committed_attempt.checksum:
        return f"{who}: checksum {committed_attempt.checksum:#x} expected, {stage.receipt.checksum:#x} staged"
    return None
