"""The commits of one run: epochs become durable in order, and the gate says when an epoch's rows may reach its sink.

| mode | before an epoch's sink | behind it |
|---|---|---|
| ``sync`` | the epoch is durable | cleaning |
| ``async-checkpoint`` | its deltas are written, the epoch before is durable | the log entry, cleaning |
| ``async`` | the epoch before is durable | writing, the log entry, cleaning |

So of the epochs in Spark's log at most one is not durable: the newest. A start after a crash has Spark replay it, and
its sink gets the same rows again.

Threads: the epoch's thread calls; one thread of our own works the commits off, one after the other, and cleans behind
each. It calls the servers too, which the epoch's thread must not exchange before ``settle``. Another one records what
an epoch goes by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.api.options import CommitMode
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.env import clock, tasks
from tailrace.env.tasks import Call
from tailrace.errors import FencedError, QueryStopped, RewindNeeded, StateServerError
from tailrace.server.protocol import CommitResult
from tailrace.spark.fleet import Fleet

_log = logging.getLogger("tailrace")
_LOOK_S = 0.1


@dataclass(frozen=True)
class Order:
    """What is to be made durable."""

    epoch: int
    try_: int
    watermarks: Mapping[str, Any]
    rows: Mapping[str, Any]
    decisions: Mapping[str, Any]


@dataclass(frozen=True)
class Commit:
    """One that has been made. ``behind_ms``: how long it took, whoever waited for it."""

    manifest: Manifest
    behind_ms: float


class Commits:
    """``clean``: what else is to be cleaned behind a durable epoch."""

    def __init__(
        self, controller: Controller, fleet: Fleet, mode: CommitMode, clean: Sequence[Callable[[int], object]] = ()
    ) -> None:
        self._controller = controller
        self._fleet = fleet
        self._mode = mode
        self._clean_too = clean
        self._durable = {controller.landing.epoch: controller.landing.manifest}  # newest two that were waited for
        self._begun: list[tuple[int, Call[Commit]]] = []  # not yet seen to be durable, ascending
        self._worker = tasks.worker("tailrace-commit")
        self._recorder = tasks.worker("tailrace-record")
        self._recorded: Call[Mapping[str, Any]] | None = None
        self._stopping = tasks.event()
        self._newest: Call[Commit] | None = None
        self.last: Commit | None = None

    @property
    def after_sink(self) -> bool:
        """Whether a sink may see an epoch before its manifest is durable."""
        return self._mode is not CommitMode.SYNC

    def record(self, epoch: int, decisions: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Record what the epoch goes by, where its sink may see it before its manifest is durable. The gate waits."""
        if self.after_sink:
            self._recorded = self._recorder.submit(self._record, epoch, dict(decisions), dict(before))

    def _record(self, epoch: int, decisions: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
        found = self._controller.decide(epoch, decisions, before)
        if found != decisions:  # an earlier run's would have been read before the epoch began
            raise FencedError(
                f"Another run has begun epoch {epoch}: it goes by {dict(found)}, this one by {dict(decisions)}. This "
                "query stops; only one query may use a state location."
            )
        return found

    def begin(self, order: Order, written: Sequence[CommitResult] | None = None) -> None:
        """The epoch's steps are done; ``written`` where the servers have written their deltas in the same call."""
        # An earlier try of this epoch is given up: what became of its commit does not matter any more.
        self._begun = [each for each in self._begun if each[0] < order.epoch]
        self._raise_failed()
        try:
            self._controller.begin(order.epoch, order.try_)
        except RuntimeError:
            self._raise_failed()  # since a moment ago: that is why
            raise
        if written is None and self._mode is CommitMode.ASYNC_CHECKPOINT:
            written = self._write(order)
        commit = self._worker.submit(self._commit, order, written)
        self._begun.append((order.epoch, commit))
        self._newest = commit

    def finished(self) -> None:
        """The newest epoch's sink is done: once it is durable too, nothing of it will be asked for again."""
        if self._newest is not None:
            self._worker.submit(self._clean, self._newest)

    def gate(self, epoch: int) -> None:
        """Return when the sink may have the epoch's rows; raise where it never may."""
        if self._recorded is not None:
            self._recorded.result()
        self._await(epoch if self._mode is CommitMode.SYNC else epoch - 1)

    def base(self, epoch: int) -> Manifest:
        """The durable manifest that another try of ``epoch`` starts from. Nothing is under way when this returns."""
        self.settle()
        try:
            self._await(epoch - 1)
        except StateServerError as error:
            raise RewindNeeded(
                f"epoch {epoch - 1} was not durable when a state server was lost with it, so epoch {epoch} cannot be "
                f"tried again on top of it: the query starts again from the epoch before ({error})"
            ) from error
        return self._durable[epoch - 1]

    def made(self, epoch: int) -> Manifest | None:
        """The manifest of the epoch's newest try, where it is durable by now."""
        for begun, commit in self._begun:
            if begun == epoch and commit.done() and commit.exception() is None:
                return commit.result().manifest
        return self._durable.get(epoch)

    def settle(self) -> None:
        """Wait until nothing is under way, whatever comes of it."""
        self._worker.submit(lambda: None).result()

    def stop(self) -> None:
        """From now on nobody waits at the gate: an epoch whose rows were not released yet is left to the next start."""
        self._stopping.set()

    def close(self) -> BaseException | None:
        """Work off what has begun; the reason why some epoch did not become durable, if one did not."""
        self._stopping.set()
        self._recorder.shutdown(wait=True)
        self._worker.shutdown(wait=True)
        return next((error for _, commit in self._begun if (error := commit.exception()) is not None), None)

    def _raise_failed(self) -> None:
        """Raise the reason why an epoch that has begun its commit will not be durable, where one will not."""
        for _, commit in self._begun:
            if commit.done() and (error := commit.exception()) is not None:
                raise error

    def _await(self, epoch: int) -> None:
        while self._begun and self._begun[0][0] <= epoch:
            commit = self._begun[0][1]
            try:
                self.last = commit.result(_LOOK_S)
            except TimeoutError:
                if commit.done():
                    raise
                if self._stopping.is_set():
                    raise QueryStopped(f"the query was stopped while epoch {epoch} was not durable yet") from None
                continue
            self._durable[self.last.manifest.epoch] = self.last.manifest
            self._durable = {each: self._durable[each] for each in sorted(self._durable)[-2:]}
            self._begun.pop(0)

    # The worker ------------------------------------------------------------------------------------------------------

    def _commit(self, order: Order, written: Sequence[CommitResult] | None) -> Commit:
        began = clock.monotonic()
        try:
            if self._controller.durable < order.epoch - 1:
                raise StateServerError(f"epoch {order.epoch} follows one that did not become durable")
            results = self._write(order) if written is None else written
            horizons: dict[str, int] = {}
            for each in results:
                for operator, horizon in each.horizons.items():
                    horizons[operator] = max(horizon, horizons.get(operator, horizon))
            manifest = self._controller.commit(
                order.epoch,
                order.try_,
                deltas=[each.delta for each in results if each.delta is not None],
                folds=[fold for each in results for fold in each.folds],
                watermarks=order.watermarks,
                rows=order.rows,
                decisions=order.decisions,
                horizons=horizons,
            )
        except BaseException:
            self._controller.give_up(order.epoch, order.try_)
            raise
        return Commit(manifest, (clock.monotonic() - began) * 1e3)

    def _write(self, order: Order) -> list[CommitResult]:
        return self._fleet.each(lambda client, _: client.commit(order.epoch, order.try_))

    def _clean(self, commit: Call[Commit]) -> None:
        """Nothing here may fail an epoch: what is left undone is done by the next one, or by the next start."""
        if commit.exception() is not None:
            return
        manifest = commit.result().manifest
        steps: list[Callable[[], object]] = [
            lambda: self._fleet.each(
                lambda client, _: client.fold(manifest.objects, manifest.epoch, manifest.horizons)
            ),
            lambda: self._fleet.each(lambda client, _: client.forget(manifest.epoch)),
            self._controller.clean,
            *(lambda each=each: each(manifest.epoch) for each in self._clean_too),
        ]
        for step in steps:
            try:
                step()
            except Exception as error:
                _log.warning("behind epoch %d: %s", manifest.epoch, error)
