"""One epoch, as the driver runs it inside ``foreachBatch``. The batch that it gets is the receipts of the ingest tasks.

Order, and why it is exactly once:
1. what the epoch goes by is fixed, and recorded where its manifest comes after its sink;
2. ingest: tasks stage rows; the job's end is a barrier, and only winning attempts have receipts;
3. prepare on every server, then apply: no server changes before all have every winner's rows;
4. advance; 5. commit begins: every server's delta is stored, then the log entry makes the epoch durable (``commits``);
6. at the gate, this epoch (mode sync) or the one before it (asynchronous modes) is durable; 7. the sink gets the rows.

A lost server gives the epoch a new try: every server returns to the end of the epoch before, once that is durable, and
nothing of the old try is kept. Where it was lost before it was durable, the query starts again (``RewindNeeded``).

Threads: Spark calls one epoch at a time. Commits have a thread of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.api.options import Combine
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.env import clock
from tailrace.errors import (
    CheckpointError,
    QueryStopped,
    ReplayError,
    RewindNeeded,
    StateServerError,
    TableError,
    UserFunctionError,
)
from tailrace.ids import Attempt
from tailrace.operators.output import output_schema as arrow_output_schema
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.server.transport.stage_messages import CommittedAttempt, Exchanged, StageReceipt
from tailrace.spark.commit.commits import Commits, Order
from tailrace.spark.epoch.endless import telling_endless
from tailrace.spark.epoch.epoch_config import FRAME_ROWS_MAX, EpochConfig
from tailrace.spark.epoch.epoch_times import EpochTimes, mark
from tailrace.spark.epoch.framing import Cut
from tailrace.spark.epoch.ingest import Receipt, TaskInstructions, instructions_property
from tailrace.spark.epoch.output import LOCAL_ROWS_MAX, EpochOutput, SharedFrame, local_output, remote_output
from tailrace.spark.epoch.pipelined_sink import run_pipelined_sink
from tailrace.spark.epoch.receipts import receipts_of
from tailrace.spark.epoch.stopwatch import Stopwatch, durations_of
from tailrace.spark.epoch.task_errors import telling_task_errors
from tailrace.spark.epoch.watermark import Watermark
from tailrace.spark.hints.control import HintControl
from tailrace.spark.hints.lookahead import Lookahead, LookaheadProgress
from tailrace.spark.query.progress import Durations, EpochProgress, OperatorProgress, QueryIdentity
from tailrace.spark.query.timeline import Step, commit_steps, epoch_steps
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.sinks.late_rows import LateOutput
from tailrace.spark.sinks.sinks import EpochSink
from tailrace.spark.sources.schema import output_schema

_log = logging.getLogger("tailrace")

PROGRESS_KEPT = 100
_AHEAD_MS_MAX = 500.0
"""No sink is begun ahead where servers take longer: its tasks would keep cores from others while they wait."""
_COMBINE_BELOW = 0.6
"""Tasks combine while they leave fewer partials per row than this."""


class Epochs:
    """Runs the epochs of one run of a query, from the landing on."""

    def __init__(
        self,
        plan: PhysicalPlan,
        controller: Controller,
        fleet: Fleet,
        sink: EpochSink,
        identity: QueryIdentity,
        late: LateOutput | None = None,
        hints: HintControl | None = None,
    ) -> None:
        self._plan = plan
        self._controller = controller
        self._fleet = fleet
        self._sink = sink
        self._late = late
        self._hints = hints
        self.identity = identity
        self._arrow_schema = arrow_output_schema(plan.last)
        self._spark_schema = output_schema(plan.last)
        self._emitted = SharedFrame() if sink.ahead else None
        recovery_point = controller.recovery_point
        self._last = recovery_point.epoch  # the newest epoch that is done
        self._planned = recovery_point.planned
        self._replay = recovery_point.replay
        self._watermark = Watermark.from_json(
            recovery_point.manifest.watermarks, plan.options.watermark, len(plan.inputs)
        )
        self._times = EpochTimes.from_json(recovery_point.manifest.epoch_config)
        self._combine = self._first_combine(recovery_point.manifest)
        self._last_config: Mapping[str, Any] = recovery_point.manifest.epoch_config  # the epoch before
        self._commits = Commits(
            controller,
            fleet,
            plan.options.commit,
            [late.clean] if late is not None else [],
            notice_s=plan.options.heartbeat_timeout / 1e6,
            timeout_s=plan.options.commit_timeout / 1e6,
        )
        self._quick = False  # whether the servers' steps of the last epoch were
        self._much = 0  # of the last epochs, so many have emitted more than comes along with the servers' answers
        self.progress: list[EpochProgress] = []

    def run(self, batch: DataFrame, epoch: int) -> EpochProgress:
        """Spark's batch function."""
        if epoch != self._last + 1:
            raise CheckpointError(
                f"Spark gives epoch {epoch} and the state is at epoch {self._last}: the checkpoint was changed "
                "while the query ran. Restart the query."
            )
        began = clock.monotonic()
        started = clock.now()
        epoch_config = self._epoch_config(epoch, started)
        for try_ in range(self._plan.options.epoch_tries):
            given_up = self._fleet.given_up
            try:
                if try_:
                    self._fleet.recover(self._commits.base(epoch), try_)
                    self._replay = self._commits.made(epoch) or self._replay  # durable: this try must repeat it
                failed_ms = (clock.monotonic() - began) * 1e3 if try_ else 0.0
                return self._try(batch, epoch, try_, epoch_config, started, failed_ms)
            except Exception as error:
                lost = isinstance(error, StateServerError) or self._fleet.given_up > given_up
                lost = lost or not self._fleet.all_alive()
                # A function of the user that fails, or never ends, would do so again; a table was waited for already.
                final = isinstance(error, UserFunctionError | TableError | RewindNeeded | QueryStopped)
                if not lost or final or try_ + 1 == self._plan.options.epoch_tries:
                    raise
                _log.warning("epoch %d: try %d has lost a state server, trying again: %s", epoch, try_, error)
        raise AssertionError("an epoch has at least one try")

    def _epoch_config(self, epoch: int, started: float) -> EpochConfig:
        """What the epoch goes by: of one that a sink may have seen before, what it went by then."""
        cut = Cut() if self._hints is None else self._hints.cut
        now = max(int(started * 1e6), self._times.now)
        epoch_config = EpochConfig.of(self._plan, self._combine, now, cut.rows, cut.first)
        if self._replay is not None and self._replay.epoch == epoch:
            return epoch_config.as_recorded(self._replay.epoch_config)
        recorded = self._commits.recorded(epoch)
        if recorded is None and epoch <= self._planned:
            recorded = {name: each for name, each in self._last_config.items() if name != "now"}
        if recorded is not None:
            epoch_config = epoch_config.as_recorded(recorded)
        told = epoch_config.record(self._plan)
        self._commits.record(epoch, told, {name: self._last_config.get(name) for name in told})
        return epoch_config

    def _try(
        self, batch: DataFrame, epoch: int, try_: int, epoch_config: EpochConfig, started: float, failed_ms: float
    ) -> EpochProgress:
        plan, stopwatch = self._plan, Stopwatch()
        replay = self._replay if self._replay is not None and self._replay.epoch == epoch else None
        late_before = self._times.late_before(plan.stages[0], self._watermark)
        eager = epoch_config.frame_rows < FRAME_ROWS_MAX
        cut = epoch_config.frame_rows, epoch_config.first_frame, eager
        instructions = TaskInstructions(epoch, try_, late_before, epoch_config.combine, *cut, self._fleet.routes)
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(instructions_property(self._fleet.access.run), instructions.to_json())
        if self._hints is not None:
            self._hints.order(context, self._fleet.access, epoch, try_, self._fleet.routes)
        stopwatch.lap("plan")
        with telling_task_errors():
            receipts = receipts_of(batch)
        stopwatch.lap("ingest")
        recorded = self._controller.recorded_rows(epoch) if replay is None else replay.rows.get("input")
        self._check_replay(epoch, recorded, receipts)
        watermark, times = self._after(epoch_config, receipts, replay)
        again = replay is not None or try_ > 0 or epoch <= self._planned

        def serve() -> tuple[list[EpochResult], list[int]]:
            return self._step(epoch, try_, receipts, watermark, times)

        def give(output: EpochOutput) -> None:
            self._commits.gate(epoch)
            stopwatch.lap("gate")
            if self._late is not None:
                left_out = [ref for receipt in receipts for ref in receipt.late]
                self._late.write(batch.sparkSession, left_out, epoch, again)
            self._sink.write(output, epoch, again)

        given = self._much > 1 and self._quick and self._sink.ahead and self._commits.leads and not again
        if self._much:
            coming = self._coming(batch.sparkSession, epoch, try_)
            (done, late), served = run_pipelined_sink(
                context,
                f"tailrace-sink-{self._fleet.access.run}",
                serve,
                partial(give, coming) if given else coming.prepare,
            )
        else:
            coming, (done, late), served = None, serve(), None
        stopwatch.lap("servers", served)
        order = Order(
            epoch,
            try_,
            watermarks=watermark.to_json(),
            rows={"input": sum(r.rows for r in receipts), "late": sum(r.late_rows for r in receipts)},
            epoch_config={**epoch_config.to_json(), "partitions": len(receipts), **times.to_json()},
        )
        written = [each.committed for each in done if each.committed is not None]
        self._commits.begin(order, written if len(written) == len(done) else None)
        if not given:
            give(self._output(batch.sparkSession, epoch, try_, done, coming))
        stopwatch.lap("sink")
        self._commits.finished()
        self._last, self._watermark, self._times, self._replay = epoch, watermark, times, None
        self._last_config = order.epoch_config
        self._combine = self._next_combine(epoch_config.combine, receipts)
        self._much = 0 if _comes_along(done) else self._much + 1
        ahead = self._decide(done, receipts, batch.sparkSession, epoch + 1)
        outcome = _Outcome(
            order, receipts, done, watermark, epoch_config.combine, replay is not None, _rows(done), late, ahead
        )
        durations = durations_of(stopwatch.laps, receipts, done, failed_ms, self._commits.last)
        self._quick = durations.apply + durations.advance <= _AHEAD_MS_MAX
        steps = epoch_steps(epoch, stopwatch.began, stopwatch.laps, durations.apply, durations.advance)
        if self._commits.last is not None:
            steps += commit_steps(self._commits.last.manifest.epoch, self._commits.last.spans)
        return self._report(outcome, try_ + 1, started, durations, tuple(steps))

    def _after(
        self, epoch_config: EpochConfig, receipts: Sequence[Receipt], replay: Manifest | None
    ) -> tuple[Watermark, EpochTimes]:
        """The watermark and the times that the epoch ends with: of a replay those that were recorded."""
        plan, watermark = self._plan, self._watermark
        if replay is not None:
            watermark = Watermark.from_json(replay.watermarks, plan.options.watermark, len(plan.inputs))
        elif epoch_config.delays is not None:
            seen = (receipt.times_max for receipt in receipts)
            times_max = tuple(map(max, zip(watermark.times_max, *seen, strict=True)))
            watermark = watermark.after(times_max, epoch_config.delays, plan.options.watermark)
        if replay is not None and "now" in replay.epoch_config:  # what it forgets must be what was forgotten then
            return watermark, EpochTimes.from_json(replay.epoch_config)
        return watermark, self._times.after(plan, watermark, epoch_config.now, epoch_config.ttls)

    # Steps -----------------------------------------------------------------------------------------------------------

    def _step(
        self, epoch: int, try_: int, receipts: list[Receipt], after: Watermark, times: EpochTimes
    ) -> tuple[list[EpochResult], list[int]]:
        """Prepare everywhere, then apply and advance everywhere; operator after operator.

        One operator's epoch is one call, since what a small epoch pays is round trips. In mode sync it writes its
        delta too. Also gives, for each operator behind the first, how many rows one without a watermark has handed
        to it too late.
        """
        stages = self._plan.stages
        sent = [(r.partition, r.attempt, r.staged) for r in sorted(receipts, key=lambda receipt: receipt.partition)]
        at_once = len(stages) == 1 and not self._commits.after_sink
        done = self._run_operator(stages[0], epoch, try_, sent, after, times, commit=at_once)
        late: list[int] = []
        for before, stage in pairwise(stages):
            late_before = self._times.late_before(stage, self._watermark)
            exchanged = self._exchange(before.operator.name, stage.operator.name, epoch, try_, late_before)
            missed = sum(each.late_rows for each in exchanged)
            names = f"{before.operator.name} came too late for {stage.operator.name}"
            assert not missed or not before.operator.watermarked, f"{missed} rows of {names}"
            late.append(missed)
            sent = [(each.number, each.number, each.staged) for each in exchanged]
            done = self._run_operator(stage, epoch, try_, sent, after, times, commit=False)
        return done, late

    def _run_operator(
        self,
        stage: Stage,
        epoch: int,
        try_: int,
        sent: Sequence[tuple[int, int, tuple[StageReceipt, ...]]],
        after: Watermark,
        times: EpochTimes,
        *,
        commit: bool,
    ) -> list[EpochResult]:
        """``sent``: of every sender its partition, its attempt, and what it has staged on each server."""
        operator = stage.operator
        committed_attempts = [
            [
                CommittedAttempt(partition, attempt, staged[number].rows, staged[number].checksum)
                for partition, attempt, staged in sent
                if staged[number].frames
            ]
            for number in range(len(self._fleet.servers))
        ]
        alone = len(committed_attempts) == 1
        if not alone:
            self._fleet.each(
                lambda client, number: client.prepare(epoch, try_, committed_attempts[number], operator.name)
            )
        limit_s = self._plan.options.function_timeout / 1e6
        with telling_endless(operator, epoch, limit_s, self._fleet.access) as timeout_s:
            done = self._fleet.each(
                lambda client, number: client.run_epoch(
                    epoch,
                    try_,
                    committed_attempts[number] if alone else None,
                    self._times.late_before(stage, self._watermark),
                    mark(stage, after),
                    commit=commit,
                    operator=operator.name,
                    now=times.now,
                    forget_before=times.forgotten_by(stage),
                    timeout_s=timeout_s,
                )
            )
        if self._hints is not None:
            self._hints.ran(operator.name, done, sum(each.bytes for _, _, staged in sent for each in staged))
        return done

    def _decide(
        self, done: list[EpochResult], receipts: Sequence[Receipt], session: SparkSession, epoch: int
    ) -> list[LookaheadProgress]:
        """Where the hints of the epoch that comes next are from."""
        if self._hints is None:
            return []
        rows = max((receipt.rows for receipt in receipts), default=0)
        told = self._hints.after([each.status.operators for each in done], session, rows)
        self._hints.order(session.sparkContext, self._fleet.access, epoch, 0, self._fleet.routes)
        return told

    def lookaheads(self) -> Mapping[str, Lookahead]:
        """By operator, what is known and decided now."""
        return {} if self._hints is None else self._hints.lookaheads

    def _exchange(self, operator: str, target: str, epoch: int, try_: int, late_before: int) -> list[Exchanged]:
        """Every server hands what ``operator`` emitted to the owners of ``target``'s keys."""
        routes = self._fleet.routes
        return self._fleet.each(
            lambda client, number: client.exchange(epoch, try_, operator, target, late_before, number, routes)
        )

    def _coming(self, spark: SparkSession, epoch: int, try_: int) -> EpochOutput:
        """What the servers will have emitted."""
        return remote_output(
            spark,
            self._fleet.servers,
            Attempt(epoch, try_),
            self._plan.last.name,
            self._fleet.access,
            self._spark_schema,
            self._emitted,
        )

    def _output(
        self, spark: SparkSession, epoch: int, try_: int, done: list[EpochResult], coming: EpochOutput | None
    ) -> EpochOutput:
        """What the servers have emitted. ``coming``: as it was expected, where it was."""
        if _comes_along(done):
            batches = [batch for each in done for batch in each.batches or ()]
            return local_output(spark, batches, self._arrow_schema, self._spark_schema)
        return replace(coming or self._coming(spark, epoch, try_), rows=_rows(done))

    def _check_replay(self, epoch: int, recorded: int | None, receipts: list[Receipt]) -> None:
        now = sum(receipt.rows for receipt in receipts)
        if recorded is not None and recorded != now:
            raise ReplayError(
                f"epoch {epoch} is replayed after a crash and has {now} rows now, but had {recorded} rows: the "
                "source does not give the same rows again. Restore the source's data, or start with new locations."
            )

    # Combining -------------------------------------------------------------------------------------------------------

    def _first_combine(self, manifest: Manifest) -> bool:
        if self._plan.options.combine is Combine.AUTO:
            return bool(manifest.epoch_config.get("combine", True))
        return self._plan.options.combine is Combine.ON

    def _next_combine(self, combine: bool, receipts: list[Receipt]) -> bool:
        """Whether it pays, from what this epoch's tasks saw."""
        if self._plan.options.combine is not Combine.AUTO:
            return self._plan.options.combine is Combine.ON  # also after a replay that went by something else
        rows = sum(receipt.sampled_rows for receipt in receipts)
        keys = sum(receipt.sampled_keys for receipt in receipts)
        return combine if not rows else keys < _COMBINE_BELOW * rows

    def stop(self) -> None:
        """The query is being stopped: let no epoch wait."""
        self._commits.stop()
        if any(stage.operator.waits_outside for stage in self._plan.stages):
            self._fleet.give_up()

    def close(self) -> None:
        """Work off the commits that have begun. Raises where an epoch that its sink has got did not become durable."""
        failed = self._commits.close()
        if self._late is not None:
            self._late.close()
        if failed is not None:
            raise failed

    # Report ----------------------------------------------------------------------------------------------------------

    def _report(
        self, outcome: _Outcome, tries: int, started: float, durations: Durations, timeline: tuple[Step, ...]
    ) -> EpochProgress:
        receipts, done = outcome.receipts, outcome.done
        statuses = [each.status for each in done]
        progress = EpochProgress(
            query=self.identity,
            operators=tuple(
                OperatorProgress.of(stage, [status.operators[number] for status in statuses], *dropped)
                for number, (stage, dropped) in enumerate(zip(self._plan.stages, outcome.dropped, strict=True))
            ),
            epoch=outcome.order.epoch,
            tries=tries,
            started=started,
            input_rows=sum(receipt.rows for receipt in receipts),
            partials=sum(receipt.partials for receipt in receipts),
            output_rows=outcome.rows,
            watermark=outcome.watermark.closed,
            time_max=max(outcome.watermark.times_max),
            memory_bytes_max=self._plan.options.memory_bytes * len(statuses),
            staged_bytes=sum(staged.bytes for receipt in receipts for staged in receipt.staged),
            servers=len(statuses),
            combined=outcome.combined,
            replayed=outcome.replayed,
            duration_ms=durations,
            timeline=timeline,
            lookaheads=tuple(outcome.ahead),
        )
        self.progress.append(progress)
        del self.progress[:-PROGRESS_KEPT]
        return progress


def _comes_along(done: Sequence[EpochResult]) -> bool:
    """Whether the servers' answers hold what the epoch emits, and it is little enough for the driver."""
    return all(each.batches is not None for each in done) and _rows(done) <= LOCAL_ROWS_MAX


def _rows(done: Sequence[EpochResult]) -> int:
    return sum(each.output.rows for each in done)


@dataclass(frozen=True)
class _Outcome:
    """What a try that succeeded has brought."""

    order: Order
    receipts: list[Receipt]
    done: list[EpochResult]
    watermark: Watermark
    combined: bool
    replayed: bool
    rows: int
    late: list[int]  # rows, by operator behind the first
    ahead: list[LookaheadProgress]

    @property
    def dropped(self) -> list[tuple[int, int]]:
        """By operator, rows that were late for it, and rows without an event time."""
        first = (sum(each.late_rows for each in self.receipts), sum(each.null_time_rows for each in self.receipts))
        return [first, *((rows, 0) for rows in self.late)]
