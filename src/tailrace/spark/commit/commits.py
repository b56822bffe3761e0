"""The commits of one run: epochs become durable in order, and the gate says when an epoch's rows may reach its sink.

| mode | before an epoch's sink | after it |
|---|---|---|
| ``sync`` | the epoch is durable | cleaning |
| ``async-checkpoint`` | its deltas are saved, the epoch before is durable | uploads, the log entry, cleaning |
| ``async`` | the epoch before is durable | saving, uploads, the log entry, cleaning |

So of the epochs in Spark's log at most one is not durable: the newest. A start after a crash has Spark replay it, and
its sink gets the same rows again. An epoch that is replayed is durable before its sink in every mode: only then does
Spark plan the next one, which no later crash can then take back. So a query that dies in one epoch again and again
plans it afresh once at most, and it does not grow with every start.

Servers acknowledge twice: their deltas are *saved* (synced, on their machines where the store is far), then *uploaded*.
Where a server is lost in between, the one that follows it on that machine uploads what it had saved, and the commit
goes on; where it is lost before, the epoch is done again.

Threads: the epoch's thread calls; one thread of our own runs the commits, one after the other; another one cleans up
behind each, so that no commit waits for deletions. Both call the servers, so the epoch's thread must call
``wait_idle`` before it replaces servers. A third one records the epochs' configs, and Spark's logs of them. Every wait
for them has an end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tailrace.api.options import CommitMode
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.commit.row_counts import RowCount
from tailrace.env import clock, tasks
from tailrace.env.tasks import Call
from tailrace.errors import CheckpointError, FencedError, QueryStopped, RewindNeeded, StateServerError
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.epoch_messages import CommitResult, Span

_log = logging.getLogger("tailrace")
_LOOK_S = 0.1
NOTICE_S = 5.0
TIMEOUT_S = 600.0
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class CommitRequest:
    """What the log entry of an epoch needs from the driver."""

    epoch: int
    try_: int
    tasks: int
    """So many have read its rows."""
    watermarks: Mapping[str, Any]
    """As of the end of the epoch."""
    rows: Mapping[str, Any]
    """How many came, and how many of them late."""
    epoch_config: Mapping[str, Any]
    """What a replay has to repeat."""


@dataclass(frozen=True)
class Commit:
    """A finished commit. ``behind_ms``: how long it took, whoever waited for it. ``spans``: its steps."""

    manifest: Manifest
    behind_ms: float
    spans: tuple[Span, ...] = ()


class Servers(Protocol):
    """Those whose deltas are committed: a ``Fleet``, or none."""

    @property
    def servers(self) -> Sequence[object]: ...

    def each(self, call: Callable[[StateClient, int], _Answer]) -> list[_Answer]: ...

    def replace_lost(self) -> object: ...


class Commits:
    """``clean``: functions that clean up after a durable epoch, beside our own cleaning.

    ``notice_s``: after this a wait is logged, with what it waits for. ``timeout_s``: after this it ends the query.
    """

    def __init__(
        self,
        controller: Controller,
        fleet: Servers,
        mode: CommitMode,
        clean: Sequence[Callable[[int], object]] = (),
        notice_s: float = NOTICE_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._controller = controller
        self._fleet = fleet
        self._mode = mode
        self._clean_too = clean
        self._durable = {
            controller.recovery_point.epoch: controller.recovery_point.manifest
        }  # newest two that were waited for
        # An epoch begins when the one before the last is durable: so far can an earlier run have come, at most.
        self._begun_before = controller.recovery_point.epoch + 2
        self._replayed = controller.recovery_point.planned  # up to here, epochs are replayed
        self._begun: list[tuple[int, Call[Commit]]] = []  # not yet seen to be durable, ascending
        self._worker = tasks.worker("tailrace-commit")
        self._cleaner = tasks.worker("tailrace-clean")
        self._recorder = tasks.worker("tailrace-record")
        self._recorded: Call[Mapping[str, Any]] | None = None
        self._logged: dict[int, Call[None]] = {}  # records of Spark's logs, of the newest two epochs
        self._stopping = tasks.event()
        self._newest: Call[Commit] | None = None
        self._notice_s, self._timeout_s = notice_s, timeout_s
        self._saved: tuple[CommitRequest, Sequence[CommitResult]] | None = None  # of the newest commit that got so far
        self._doing = "nothing"
        self.last: Commit | None = None

    @property
    def sink_before_durable(self) -> bool:
        """Whether a sink may see an epoch before its manifest is durable."""
        return self._mode is not CommitMode.SYNC

    @property
    def sink_before_saved(self) -> bool:
        """Whether a sink may see an epoch before its deltas are saved."""
        return self._mode is CommitMode.ASYNC

    def recorded_config(self, epoch: int) -> Mapping[str, Any] | None:
        """The config that an earlier run has recorded for the epoch, if it did.

        Also for an epoch that Spark plans afresh: an earlier run may have begun it, and the next run would take that
        record for this run's.
        """
        return self._controller.recorded_epoch_config(epoch) if epoch <= self._begun_before else None

    def record_config(self, epoch: int, epoch_config: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Record the epoch's config, where its sink may see it before its manifest is durable. The gate waits for it.

        ``before``: the config of the epoch before. The same one needs no record, unless an earlier run may have
        recorded another.
        """
        if self.sink_before_durable:
            known = {} if epoch <= self._begun_before else dict(before)
            self._recorded = self._recorder.submit(self._record, epoch, dict(epoch_config), known)

    def _record(self, epoch: int, epoch_config: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
        found = self._controller.record_epoch_config(epoch, epoch_config, before)
        if found != epoch_config:  # an earlier run's would have been read before the epoch began
            raise FencedError(
                f"Another run has begun epoch {epoch} with config {dict(found)}, this one with {dict(epoch_config)}. "
                "This query stops; only one query may use a state location."
            )
        return found

    def record_spark_logs(self, epoch: int) -> None:
        """Record what Spark's logs say of the epoch, where they may be lost. The gate and the commit wait for it."""
        self._controller.refuse_fresh_plan(epoch)
        self._logged = {each: call for each, call in self._logged.items() if each == epoch - 1}
        self._logged[epoch] = self._recorder.submit(self._controller.record_spark_logs, epoch)

    def _count(self, request: CommitRequest) -> None:
        """Behind the record of Spark's logs, and only where that is there: a start may find another run's plan of the
        epoch, with other rows, where this one's is not recorded."""
        logged = self._logged.get(request.epoch)
        if logged is not None and not (logged.done() and logged.exception() is None):
            return
        if "input" not in request.rows:  # nobody counts them
            return
        try:
            self._controller.record_count(request.epoch, RowCount(request.rows["input"], request.tasks))
        except Exception as error:  # without the count, a replay is not compared with it: no other harm is done
            _log.warning("the number of rows of epoch %d could not be recorded: %s", request.epoch, error)

    def begin(self, request: CommitRequest, written: Sequence[CommitResult] | None = None) -> None:
        """The epoch's steps are done; ``written`` where the servers have written their deltas in the same call."""
        # An earlier try of this epoch is given up: the outcome of its commit does not matter any more.
        self._begun = [each for each in self._begun if each[0] < request.epoch]
        self._raise_failed()
        try:
            self._controller.begin(request.epoch, request.try_)
        except RuntimeError:
            self._raise_failed()  # a commit that has failed a moment ago is the reason
            raise
        if written is None and self._mode is CommitMode.ASYNC_CHECKPOINT:
            written = self._save(request)
        if self.sink_before_durable:
            self._recorder.submit(self._count, request)
        commit = self._worker.submit(self._commit, request, written)
        self._begun.append((request.epoch, commit))
        self._newest = commit

    def epoch_finished(self) -> None:
        """The newest epoch's sink is done: once the epoch is durable too, nothing of it will be read again."""
        if self._newest is not None:
            self._cleaner.submit(self._clean, self._newest)

    def gate(self, epoch: int) -> None:
        """Return when the sink may have the epoch's rows; raise where it never may."""
        self.await_records(epoch)
        self._await(epoch if self._mode is CommitMode.SYNC or epoch <= self._replayed else epoch - 1)

    def await_records(self, epoch: int) -> None:
        """Return when the epoch's config and Spark's logs of it are recorded; raise why they are not."""
        for call, what in ((self._recorded, "config"), (self._logged.get(epoch), "part of Spark's logs")):
            if call is not None and (error := self._ended(call, f"The epoch's {what} was not recorded")):
                raise error

    def check_newest(self) -> None:
        """Raise ``FencedError`` where a newer run has taken over."""
        self._controller.check_newest()

    def base_of_retry(self, epoch: int) -> Manifest:
        """The durable manifest that another try of ``epoch`` starts from. No commit is running when this returns."""
        self.wait_idle()
        try:
            self._await(epoch - 1)
        except StateServerError as error:
            self._finish_from_saved(epoch - 1, error)
        return self._durable[epoch - 1]

    def _finish_from_saved(self, epoch: int, error: StateServerError) -> None:
        """The epoch's commit has lost a server: finish it from what that one had saved, if it had."""
        saved = self._saved
        if saved is not None and saved[0].epoch == epoch:
            self._fleet.replace_lost()  # where this fails, what was saved is there for the next try
            self._saved = None
            self._begun[0] = (epoch, self._worker.submit(self._commit, *saved))
            try:
                self._await(epoch)
                _log.warning("epoch %d is durable from what its lost server had saved", epoch)
                return
            except StateServerError as again:
                error = again
        raise RewindNeeded(
            f"epoch {epoch} was not durable when a state server was lost with it, so epoch {epoch + 1} cannot be "
            f"tried again on top of it: the query starts again from the epoch before ({error})"
        ) from error

    def durable_later(self, epoch: int) -> Callable[[], Manifest]:
        """A function that waits until the epoch, which has begun its commit, is durable; for any thread."""
        known = self._durable.get(epoch)
        if known is not None:
            return lambda: known
        commit = next(commit for begun, commit in self._begun if begun == epoch)

        def wait() -> Manifest:
            error = self._ended(commit, f"Epoch {epoch} did not become durable")
            if error is not None:
                raise error
            return commit.result().manifest

        return wait

    def durable_manifest(self, epoch: int) -> Manifest | None:
        """The manifest of the epoch's newest try, where it is durable by now."""
        for begun, commit in self._begun:
            if begun == epoch and commit.done() and commit.exception() is None:
                return commit.result().manifest
        return self._durable.get(epoch)

    def wait_idle(self) -> None:
        """Wait until no commit and no cleaning is running, whatever their outcome."""
        for worker in (self._worker, self._cleaner):  # the second one waits for the first
            self._ended(worker.submit(lambda: None), "The commits under way did not end")

    def stop(self) -> None:
        """The gate waits no longer: an epoch whose rows were not released yet is left to the next start."""
        self._stopping.set()

    def close(self) -> BaseException | None:
        """Finish the commits that have begun. Gives the reason why some epoch did not become durable, or None."""
        stopped = self._stopping.is_set()
        self._stopping.set()
        until = clock.monotonic() + self._timeout_s
        for worker in (self._recorder, self._worker, self._cleaner):
            last = worker.submit(lambda: None)
            worker.shutdown(wait=False)
            try:
                last.exception(max(0.0, until - clock.monotonic()))
            except TimeoutError:
                return CheckpointError(self._too_long("The commits under way did not end", self._timeout_s))
        if self._newest is None and not stopped and self._controller.was_skipped():
            return RewindNeeded(
                f"Spark has ended without epoch {self._replayed}, which is not durable: a driver that this one has "
                "replaced has committed it in Spark's logs meanwhile"
            )
        return next((error for _, commit in self._begun if (error := commit.exception()) is not None), None)

    def _raise_failed(self) -> None:
        """Raise the reason why an epoch that has begun its commit will not be durable, where one will not."""
        for _, commit in self._begun:
            if commit.done() and (error := commit.exception()) is not None:
                raise error

    def _await(self, epoch: int) -> None:
        while self._begun and self._begun[0][0] <= epoch:
            number, commit = self._begun[0]
            error = self._ended(commit, f"Epoch {number} did not become durable")
            if error is not None:
                raise error
            self.last = commit.result()
            self._durable[self.last.manifest.epoch] = self.last.manifest
            self._durable = {each: self._durable[each] for each in sorted(self._durable)[-2:]}
            self._begun.pop(0)

    def _ended(self, call: Call[Any], what: str) -> BaseException | None:
        """Wait for the end of a call: its error, or None. Raises where the query is stopped, or waits for too long.

        ``what`` is then the case.
        """
        began = clock.monotonic()
        logged = False
        while True:
            try:
                return call.exception(_LOOK_S)  # and not ``result``: a TimeoutError of the call would look like ours
            except TimeoutError:
                pass
            if self._stopping.is_set():
                raise QueryStopped(f"{what} before the query was stopped")
            waited_s = clock.monotonic() - began
            if waited_s > self._timeout_s:
                raise CheckpointError(self._too_long(what, waited_s))
            if waited_s > self._notice_s and not logged:
                logged = True
                _log.warning("%s within %.0f s: still %s", what, waited_s, self._doing)

    def _too_long(self, what: str, waited_s: float) -> str:
        return (
            f"{what} within {waited_s:.0f} s: it is still {self._doing}. Look after the state location, then start the "
            "query again: it continues from the last durable epoch."
        )

    # The worker ------------------------------------------------------------------------------------------------------

    def _commit(self, request: CommitRequest, saved: Sequence[CommitResult] | None) -> Commit:
        began = clock.monotonic()
        controller, epoch, try_ = self._controller, request.epoch, request.try_
        try:
            if controller.durable < epoch - 1:
                raise StateServerError(f"epoch {epoch} follows one that did not become durable")
            if (logged := self._logged.get(epoch)) is not None:
                logged.result()
            if saved is None:
                self._doing = f"saving the deltas of epoch {epoch}"
                saved = self._save(request)
            if not all(each.uploaded for each in saved):
                controller.saved(epoch, try_)
                self._saved = request, saved
            self._doing = f"uploading the deltas of epoch {epoch}"
            uploads = self._upload(saved)
            horizons: dict[str, int] = {}
            for each in saved:
                for operator, horizon in each.horizons.items():
                    horizons[operator] = max(horizon, horizons.get(operator, horizon))
            self._doing = f"writing the log entry of epoch {epoch}"
            logging_began = clock.now()
            manifest = controller.commit(
                epoch,
                try_,
                deltas=[each.delta for each in saved if each.delta is not None],
                compactions=[compact for each in saved for compact in each.compactions],
                watermarks=request.watermarks,
                rows=request.rows,
                epoch_config=request.epoch_config,
                horizons=horizons,
            )
        except StateServerError:
            if self._saved is None or self._saved[0] != request:
                controller.give_up(epoch, try_)
            raise
        except BaseException:
            controller.give_up(epoch, try_)
            raise
        steps = [span for each in saved for span in each.spans]
        spans = _joined([*steps, *uploads, ("log", logging_began, clock.now())])
        return Commit(manifest, (clock.monotonic() - began) * 1e3, spans)

    def _save(self, request: CommitRequest) -> list[CommitResult]:
        """The first acknowledgement. In mode sync the second comes with it: nobody waits for the first alone."""
        at_once = self._mode is CommitMode.SYNC
        return self._fleet.each(lambda client, _: client.commit(request.epoch, request.try_, upload=at_once))

    def _upload(self, saved: Sequence[CommitResult]) -> list[Span]:
        """The second acknowledgement: each server uploads its own delta, or another one on its machine does."""
        left = {each.delta.name: each.delta for each in saved if each.delta is not None and not each.uploaded}
        if not left:
            return []
        spans: list[Span] = []
        if len(saved) == len(self._fleet.servers):
            own = [[each.delta] if each.delta is not None and each.delta.name in left else [] for each in saved]
            answers = self._fleet.each(lambda client, number: client.upload(own[number]) if own[number] else None)
        else:
            answers = []
        for answer in answers:
            if answer is not None:
                spans.append(answer.span)
                for name in answer.names:
                    left.pop(name, None)
        for found in self._fleet.each(lambda client, _: client.upload(tuple(left.values()))) if left else ():
            spans.append(found.span)
            for name in found.names:
                left.pop(name, None)
        if left:
            raise StateServerError(f"deltas were saved, and no server has them any more: {', '.join(sorted(left))}")
        return spans

    def _clean(self, commit: Call[Commit]) -> None:
        """Nothing here may fail an epoch: the next epoch, or the next start, cleans what this one could not.

        What others keep for an epoch goes after its entry: while that is in the log, a start may go back to it.
        """
        if commit.exception() is not None:
            return
        manifest = commit.result().manifest
        steps: list[Callable[[], object]] = [
            lambda: self._fleet.each(lambda client, _: client.compact(manifest)),
            lambda: self._fleet.each(lambda client, _: client.forget(manifest.epoch)),
            self._controller.clean,
            *(lambda each=each: each(manifest.epoch) for each in self._clean_too),
        ]
        for step in steps:
            try:
                step()
            except Exception as error:
                # A lost server has a line of its own, from whoever replaces it.
                level = logging.INFO if isinstance(error, StateServerError) else logging.WARNING
                _log.log(level, "cleaning after epoch %d has failed: %s", manifest.epoch, error)
                if step == self._controller.clean:
                    return


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Steps of several servers as one: from the first begin to the last end."""
    joined: dict[str, tuple[float, float]] = {}
    for name, began, ended in spans:
        first, last = joined.get(name, (began, ended))
        joined[name] = min(first, began), max(last, ended)
    return tuple((name, began, ended) for name, (began, ended) in joined.items())
