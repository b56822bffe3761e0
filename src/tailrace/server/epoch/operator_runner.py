"""Runs one operator of a server: holds the operator, and how far its newest (epoch, try) has come.

Invariants
- Steps go prepared -> applied -> advanced, each at most once per (epoch, try); a repeated step returns what the first
  one returned.
- ``undoable`` are the applied epochs whose undo the operator still keeps, ascending.
- A sum that overflows, a user's function that fails, or a table that cannot be read undoes its epoch before the error
  leaves: the operator is then as before that epoch. Where that undo fails, or a step fails in any other way, nobody
  knows the state any more, and ``StateLost`` says so.

Threading: none of its own. The engine holds its lock around every call, because an operator takes one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from tailrace.env.clock import Clock
from tailrace.errors import QueryStopped, StateServerError, SumOverflowError, TableError, UserFunctionError
from tailrace.ids import MIN_MICROS, NO_EPOCH, Attempt
from tailrace.operators.base import Hinted, Operator, Timed
from tailrace.operators.metrics import metrics_of
from tailrace.operators.output import EpochOutput
from tailrace.operators.resources import Resources
from tailrace.server.epoch.outputs import Outputs
from tailrace.server.epoch.staging import Stage, Staging
from tailrace.server.transport.epoch_messages import Applied, OutputInfo
from tailrace.server.transport.server_status import OperatorStatus
from tailrace.server.transport.stage_messages import CommittedAttempt


class StateLost(StateServerError):
    """An undo has failed: what the operator holds now is unknown."""


class Step(IntEnum):
    NONE = 0
    PREPARED = 1
    APPLIED = 2
    ADVANCED = 3


_NOWHERE = Attempt(NO_EPOCH, 0)
_NO_OUTPUT = EpochOutput((), Resources())


class OperatorRunner:
    """``make`` builds the operator without any shard."""

    def __init__(
        self, name: str, make: Callable[[], Operator], staging: Staging, outputs: Outputs, clock: Clock
    ) -> None:
        self.name = name
        self.operator = make()
        self.at = _NOWHERE
        self.step = Step.NONE
        self.undoable: list[int] = []
        self.output = _NO_OUTPUT
        self.emitted: OutputInfo | None = None
        self.applied: Applied | None = None
        self._make = make
        self._staging = staging
        self._resources = Resources(folder=staging.folder, transit=staging.transit)
        self._outputs = outputs
        self._clock = clock
        self._committed_attempts: tuple[CommittedAttempt, ...] = ()
        self._stages: list[Stage] = []

    def prepare(self, at: Attempt, committed_attempts: Sequence[CommittedAttempt]) -> None:
        if self.step_of(at) >= Step.PREPARED:
            if tuple(committed_attempts) != self._committed_attempts:
                raise StateServerError(
                    f"{self._at_text(at)} was prepared with other committed attempts; start a new try"
                )
            return
        self._stages = self._staging.select(self.name, at, committed_attempts)
        self._committed_attempts = tuple(committed_attempts)
        self.at, self.step = at, Step.PREPARED

    def apply(self, at: Attempt, now: int = 0, forget_before: int = MIN_MICROS) -> Applied:
        if self.step_of(at) >= Step.APPLIED:
            assert self.applied is not None
            return self.applied
        self._require(at, Step.PREPARED)
        began = self._clock.monotonic()
        rows = sum(stage.receipt.rows for stage in self._stages)
        spilled_bytes = sum(stage.spilled_bytes for stage in self._stages)
        if isinstance(self.operator, Timed):
            self.operator.set_times(now, forget_before)
        try:
            self._merge(at)
        finally:
            self._let_go()
        self.undoable.append(at.epoch)
        self.step = Step.APPLIED
        updated = self.operator.updated(at.epoch)
        self.applied = Applied(rows, updated, spilled_bytes, _ms(self._clock.monotonic() - began))
        return self.applied

    def _merge(self, at: Attempt) -> None:
        # Until the rows are read back whole the operator has seen nothing, and has nothing to undo.
        self.step = Step.NONE
        frames = self._staging.gathered(self.name, self._stages)
        with self._undoing(at):
            self.operator.apply(at.epoch, frames)

    def advance(self, at: Attempt, late_before: int, watermark: int) -> OutputInfo:
        if self.step_of(at) >= Step.ADVANCED:
            assert self.emitted is not None
            return self.emitted
        self._require(at, Step.APPLIED)
        began = self._clock.monotonic()
        self.drop_output()
        with self._undoing(at):
            emitted = self.operator.advance(at.epoch, late_before, watermark)
            output = emitted if isinstance(emitted, EpochOutput) else EpochOutput(emitted, self._resources)
        self.output = output
        self.step = Step.ADVANCED
        self.emitted = OutputInfo(
            epoch=at.epoch,
            try_=at.try_,
            batches=len(output),
            rows=output.rows,
            bytes=output.nbytes,
            advance_ms=_ms(self._clock.monotonic() - began),
        )
        self._outputs.put(self.name, at, output)
        return self.emitted

    def undo(self, epoch: int) -> None:
        """Back to before ``epoch``, and nothing is held of it or of later ones."""
        if self.at.epoch >= epoch:
            self._let_go()
            self.at, self.step = _NOWHERE, Step.NONE
        if self.emitted is not None and self.emitted.epoch >= epoch:
            self.drop_output()
        while self.undoable and self.undoable[-1] >= epoch:
            self._undo(self.undoable.pop())

    def forget(self, epoch: int) -> None:
        self.operator.forget(epoch)
        self.undoable = [kept for kept in self.undoable if kept > epoch]

    def start_over(self) -> None:
        """Hold no shard, no epoch, nothing staged."""
        self._let_go()
        self.drop_output()
        self.at, self.step, self.undoable = _NOWHERE, Step.NONE, []
        self.operator.close()
        self.operator = self._make()

    def status(self) -> OperatorStatus:
        operator, applied, emitted = self.operator, self.applied, self.emitted
        return OperatorStatus(
            name=self.name,
            rows=operator.rows,
            state_bytes=operator.nbytes,
            state_disk_bytes=operator.disk_bytes,
            input_rows=applied.rows if applied else 0,
            updated=applied.updated if applied else 0,
            spilled_bytes=applied.spilled_bytes if applied else 0,
            output_rows=emitted.rows if emitted else 0,
            apply_ms=applied.apply_ms if applied else 0.0,
            advance_ms=emitted.advance_ms if emitted else 0.0,
            metrics=metrics_of(operator),
            wants_hints=isinstance(operator, Hinted) and operator.wants_hints(),
        )

    def step_of(self, at: Attempt) -> Step:
        return self.step if at == self.at else Step.NONE

    def drop_output(self) -> None:
        self.output, self.emitted = _NO_OUTPUT, None
        self._outputs.drop(self.name)

    @contextmanager
    def _undoing(self, at: Attempt) -> Iterator[None]:
        """Undo the epoch where the step fails in a way the operator knows; whatever else fails, the state is lost.

        Memory that runs out, or a defect, can stop an operator between any two changes: then only loading the shards
        anew is sure to be right.
        """
        try:
            yield
        except (SumOverflowError, UserFunctionError, TableError, QueryStopped):
            self.at, self.step = _NOWHERE, Step.NONE
            self.undoable = [epoch for epoch in self.undoable if epoch != at.epoch]
            self._undo(at.epoch)
            raise
        except BaseException as error:
            self.at, self.step = _NOWHERE, Step.NONE
            raise StateLost(f"{self._at_text(at)} failed half-way: {error!r}") from error

    def _undo(self, epoch: int) -> None:
        try:
            self.operator.undo(epoch)
        except Exception as error:
            raise StateLost(f"epoch {epoch} of {self.name!r} could not be undone: {error!r}") from error

    def _let_go(self) -> None:
        self._staging.release(self._stages)
        self._stages = []

    def _require(self, at: Attempt, step: Step) -> None:
        if self.step_of(at) != step:
            raise StateServerError(
                f"{self._at_text(at)} is not {step.name.lower()} but {self.step_of(at).name.lower()}; start a new try"
            )

    def _at_text(self, at: Attempt) -> str:
        return f"epoch {at.epoch} try {at.try_} of {self.name!r}"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
