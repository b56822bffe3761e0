"""One epoch, as the driver runs it inside ``foreachBatch``. The batch that it gets is the receipts of the ingest tasks.

Order, and why it is exactly once:
1. Spark's logs of the epoch are recorded wherever we can write to them; the epoch's config is fixed, and recorded where
   the manifest becomes durable only after the sink;
2. ingest: tasks stage rows; the job's end is a barrier, and only committed attempts have receipts;
   where shards move to other servers, they do so meanwhile (``shard_moves``);
3. prepare on every server, then apply: no server changes before all have every committed attempt's rows;
4. advance; 5. commit begins (``spark.commit.commits``): every server's delta is stored, then a log entry makes it
   durable;
6. at the gate, this epoch (mode sync) or the one before it (asynchronous modes) is durable; 7. the sink gets the rows.

A lost server gives the epoch a new try (``tries``), on top of the epoch before, once that is durable. Where the server
was lost before that, the query starts again (``RewindNeeded``).

Threads: Spark calls one epoch at a time. Commits have a thread of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.env import clock
from tailrace.errors import ReplayError, RewindNeeded
from tailrace.ids import Attempt
from tailrace.plan.physical import PhysicalPlan
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.spark.commit.commits import CommitRequest, Commits
from tailrace.spark.epoch.epoch_config import EpochConfig, first_combine, next_combine
from tailrace.spark.epoch.operator_chain import EpochTry, OperatorChain, ServersDone, state_rows
from tailrace.spark.epoch.pipelined_sink import run_pipelined_sink
from tailrace.spark.epoch.progress import EpochProgress, QueryIdentity
from tailrace.spark.epoch.query_output import QueryOutput
from tailrace.spark.epoch.receipts import receipts_of
from tailrace.spark.epoch.report import Outcome, Stopwatch, progress_of
from tailrace.spark.epoch.shard_moves import ShardMoves
from tailrace.spark.epoch.through_spark import ThroughSpark
from tailrace.spark.epoch.time.epoch_clock import EpochClock
from tailrace.spark.epoch.time.epoch_times import EpochTimes, QueryTime
from tailrace.spark.epoch.time.idle_epochs import IdleEpochs
from tailrace.spark.epoch.time.watermark import Watermark, times_seen
from tailrace.spark.epoch.tries import EpochTries
from tailrace.spark.hints.control import HintControl
from tailrace.spark.hints.framing import Cut
from tailrace.spark.hints.lookahead import Lookahead, LookaheadProgress
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.sinks.contract import EpochSink, SinkEpoch, release
from tailrace.spark.sinks.epoch_output import (
    EpochOutput,
)
from tailrace.spark.sinks.late_rows import LateOutput
from tailrace.spark.sources.splits import InputSplits
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX, Receipt, TaskInstructions, instructions_property

_log = logging.getLogger("tailrace")

PROGRESS_KEPT = 100
_EPOCHS_LOOKED_AT = 20
_PIPELINED_MS_MAX = 500.0
"""No sink is pipelined where servers take longer: its tasks would keep cores from others while they wait."""


@dataclass(frozen=True)
class _Running:
    """The try of an epoch that is running. ``again``: the sink may have seen the epoch before."""

    batch: DataFrame
    epoch: int
    try_: int
    config: EpochConfig
    replay: Manifest | None
    again: bool
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def spark(self) -> SparkSession:
        return self.batch.sparkSession

    @property
    def at(self) -> Attempt:
        return Attempt(self.epoch, self.try_)


class EpochRunner:
    """Runs the epochs of one run of a query, from the recovery point on."""

    def __init__(
        self,
        plan: PhysicalPlan,
        controller: Controller,
        fleet: Fleet,
        sink: EpochSink,
        identity: QueryIdentity,
        splits: InputSplits,
        budget: RetryBudget,
        late: LateOutput | None = None,
        hints: HintControl | None = None,
        idle: IdleEpochs | None = None,
    ) -> None:
        self._plan = plan
        self._controller = controller
        self._fleet = fleet
        self._sink = sink
        self._splits = splits
        self._late = late
        self._hints = hints
        self._idle = idle
        self.identity = identity
        self._chain = OperatorChain(plan, fleet, hints)
        self._output = QueryOutput(plan, fleet, shared=sink.pipelined)
        self._through_spark = ThroughSpark(plan, fleet, splits.shuffled)
        recovery_point = controller.recovery_point
        recorded = recovery_point.manifest
        self._last = recovery_point.epoch  # the newest epoch that is done
        self._planned = recovery_point.planned
        self._replay = recovery_point.replay
        self._time = QueryTime(
            Watermark.from_json(recorded.watermarks, plan.options.watermark, len(plan.inputs)),
            EpochTimes.from_json(recorded.epoch_config),
        )
        self._clock = EpochClock()
        self._combine = first_combine(plan, recorded.epoch_config)
        self._last_config: Mapping[str, Any] = recorded.epoch_config  # of the epoch before
        self._commits = Commits(
            controller,
            fleet,
            plan.options.commit,
            [sink.clean, *([late.clean] if late is not None else [])],
            notice_s=plan.options.heartbeat_timeout / 1e6,
            timeout_s=plan.options.commit_timeout / 1e6,
        )
        self._budget = budget
        self._tries = EpochTries(fleet, self._commits, budget)
        self._moves = ShardMoves(fleet, self._commits)
        self._quick_servers = False  # in the last epoch
        self._large_outputs = 0  # so many of the last epochs had an output too large for the servers' answers
        self.progress: list[EpochProgress] = []

    def run(self, batch: DataFrame, epoch: int) -> EpochProgress:
        """Spark's batch function."""
        if epoch != self._last + 1:
            # The JVM of a driver that was killed has written to the logs after this start has looked at them.
            raise RewindNeeded(
                f"Spark gives epoch {epoch} and the state is at epoch {self._last}: Spark's checkpoint was changed by "
                "someone else, such as the JVM of a driver that was killed. The query starts again, and puts it right"
            )
        if self._idle is not None:
            self._idle.began()
        self._commits.record_spark_logs(epoch)
        self._splits.release(batch.sparkSession)  # Spark has planned the epoch's tasks before it came here
        began = clock.monotonic()
        started = clock.now()
        config = self._config(epoch)

        def try_once(try_: int) -> EpochProgress:
            if try_:  # where the epoch is durable by now, this try must repeat it
                self._replay = self._commits.durable_manifest(epoch) or self._replay
            failed_ms = (clock.monotonic() - began) * 1e3 if try_ else 0.0
            return self._try(self._running(batch, epoch, try_, config), started, failed_ms)

        return self._tries.run(epoch, try_once)

    def _running(self, batch: DataFrame, epoch: int, try_: int, config: EpochConfig) -> _Running:
        replay = self._replay if self._replay is not None and self._replay.epoch == epoch else None
        return _Running(batch, epoch, try_, config, replay, replay is not None or try_ > 0 or epoch <= self._planned)

    def _config(self, epoch: int) -> EpochConfig:
        """The epoch's config: of one that a sink may have seen before, the recorded one."""
        cut = Cut() if self._hints is None else self._hints.cut
        before = self._time.times.now
        now = self._clock.next(before)
        config = EpochConfig.of(
            self._plan,
            self._combine,
            now,
            passed=now - before if self.progress else 0,
            frame_rows=cut.rows,
            first_frame=cut.first,
            splits=self._splits.now(),
            shuffled=self._splits.shuffled,
        )
        if self._replay is not None and self._replay.epoch == epoch:
            return config.as_recorded(self._replay.epoch_config)
        recorded = self._commits.recorded_config(epoch)
        if recorded is None and epoch <= self._planned:
            recorded = {name: each for name, each in self._last_config.items() if name != "now"}
        if recorded is not None:
            config = config.as_recorded(recorded)
        record = config.record(self._plan)
        self._commits.record_config(epoch, record, {name: self._last_config.get(name) for name in record})
        return config

    # The steps of a try ----------------------------------------------------------------------------------------------

    def _try(self, this: _Running, started: float, failed_ms: float) -> EpochProgress:
        with self._moves.during(this.epoch, this.try_, self._epoch_s):
            self._instruct_tasks(this)
            receipts = self._ingest(this)
        after = self._time_after(this, receipts)
        # Where rows go by way of Spark between operators, the epoch's thread is needed for that.
        expected = self._output.expected(this.spark, this.at) if self._large_outputs and self._plan.linear else None
        pipelined = expected is not None and self._pipelines_sink(this)
        done = self._run_servers(this, receipts, after, expected, pipelined)
        request = self._begin_commit(this, receipts, after, done)
        if not pipelined:
            self._release(this, receipts, self._output.of(this.spark, this.at, done, expected))
        this.stopwatch.lap("sink")
        self._commits.epoch_finished()
        self._last, self._time, self._replay, self._last_config = this.epoch, after, None, request.epoch_config
        if self._idle is not None:
            self._idle.ended(this.epoch, after.watermark, state_rows(done))
        self._combine = next_combine(self._plan, this.config.combine, receipts)
        self._large_outputs = 0 if self._output.is_local(done) else self._large_outputs + 1
        outcome = Outcome(
            epoch=this.epoch,
            tries=this.try_ + 1,
            started=started,
            since_last_s=max(0.0, started - self.progress[-1].started) if self.progress else 0.0,
            failed_ms=failed_ms,
            combined=this.config.combine,
            replayed=this.replay is not None,
            receipts=receipts,
            servers=done,
            time=after,
            lookaheads=self._choose_lookaheads(this, receipts, done.last),
            commit=self._commits.last,
            move=self._moves.last,
        )
        return self._report(outcome, this.stopwatch)

    @property
    def _epoch_s(self) -> float:
        """How long epochs take in which no shards move; 0 where none was done yet."""
        took = [each.duration_ms.add_batch / 1e3 for each in self.progress[-_EPOCHS_LOOKED_AT:] if not each.move.shards]
        return median(took) if took else 0.0

    def _instruct_tasks(self, this: _Running) -> None:
        """The batch's tasks read these when its job starts, which is after this."""
        late_before = {
            stage.operator.name: self._time.late_before(stage)
            for stage in self._plan.stages
            if stage.ingests or stage.by_spark
        }
        config, routes, access = this.config, self._fleet.routes, self._fleet.access
        instructions = TaskInstructions(
            this.epoch,
            this.try_,
            late_before,
            config.combine,
            config.frame_rows,
            config.first_frame,
            eager=config.frame_rows < FRAME_ROWS_MAX,
            servers=routes,
        )
        context = this.spark.sparkContext
        context.setLocalProperty(instructions_property(access.run), instructions.to_json())
        if self._hints is not None:
            self._hints.instruct(context, access, this.epoch, this.try_, routes)
        this.stopwatch.lap("plan")

    def _ingest(self, this: _Running) -> list[Receipt]:
        receipts = receipts_of(this.batch)
        this.stopwatch.lap("ingest")
        recorded, tasks = self._before(this)
        rows = sum(receipt.rows for receipt in receipts)
        if recorded is not None and recorded != rows:
            self._commits.await_records(this.epoch)  # other offsets than recorded cost a start, not the query
            raise ReplayError(
                f"epoch {this.epoch} is replayed after a crash and has {rows} rows now, but had {recorded} rows: the "
                "source does not give the same rows again. Restore the source's data, or start with new locations."
            )
        if tasks is not None and tasks != len(receipts):
            _log.warning(
                "epoch %d is replayed in %d tasks and was run in %d: sums of doubles may differ in their last digits. "
                "Start with the options of then (Kafka's minPartitions, maxRecordsPerPartition) to have them equal",
                this.epoch,
                len(receipts),
                tasks,
            )
        return receipts

    def _before(self, this: _Running) -> tuple[int | None, int | None]:
        """Rows and tasks of the epoch when it was run before, where that is known."""
        if this.replay is not None:
            return this.replay.rows.get("input"), this.replay.epoch_config.get("partitions")
        return self._controller.recorded_count(this.epoch) or (None, None)

    def _time_after(self, this: _Running, receipts: Sequence[Receipt]) -> QueryTime:
        """The time that the epoch ends with: of a replay the recorded one."""
        plan, replay, watermark = self._plan, this.replay, self._time.watermark
        if replay is not None:
            watermark = Watermark.from_json(replay.watermarks, plan.options.watermark, len(plan.inputs))
        elif (delays := this.config.delays) is not None:
            seen, rule, config = times_seen(plan, receipts), plan.options.watermark, this.config
            watermark = watermark.after(seen, delays, rule, config.policy, config.idle_rule)
        if replay is not None and "now" in replay.epoch_config:  # the same records must expire as then
            return QueryTime(watermark, EpochTimes.from_json(replay.epoch_config))
        times = self._time.times.after(plan, watermark, this.config.now, this.config.ttls)
        return QueryTime(watermark, times)

    def _pipelines_sink(self, this: _Running) -> bool:
        """Whether the sink's job starts while the servers still work on the epoch."""
        steady = self._large_outputs > 1 and self._quick_servers
        return steady and self._sink.pipelined and self._commits.sink_before_saved and not this.again

    def _run_servers(
        self,
        this: _Running,
        receipts: Sequence[Receipt],
        after: QueryTime,
        expected: EpochOutput | None,
        pipelined: bool,
    ) -> ServersDone:
        """Servers' steps. Spark plans the sink's job meanwhile, or runs it, where a large output is ``expected``."""
        at = EpochTry(this.epoch, this.try_, self._time, after)
        at_once = not self._commits.sink_before_durable
        through_spark = partial(self._through_spark.ingest, this.spark, this.at)
        run = partial(self._chain.run, at, receipts, at_once, through_spark)
        if expected is None:
            done = run()
            this.stopwatch.lap("servers")
            return done
        spark_work = partial(self._release, this, receipts, expected) if pipelined else expected.prepare
        tag = f"tailrace-sink-{self._fleet.access.run}"
        done, done_at = run_pipelined_sink(this.spark.sparkContext, tag, run, spark_work)
        this.stopwatch.lap("servers", done_at)
        return done

    def _begin_commit(
        self, this: _Running, receipts: Sequence[Receipt], after: QueryTime, done: ServersDone
    ) -> CommitRequest:
        request = CommitRequest(
            this.epoch,
            this.try_,
            len(receipts),
            watermarks=after.watermark.to_json(),
            rows={"input": sum(r.rows for r in receipts), "late": sum(r.late_rows for r in receipts)},
            epoch_config={**this.config.to_json(), "partitions": len(receipts), **after.times.to_json()},
        )
        written = [each.committed for each in done.last if each.committed is not None]
        self._commits.begin(request, written if len(written) == len(done.last) else None)
        return request

    def _release(self, this: _Running, receipts: Sequence[Receipt], output: EpochOutput) -> None:
        """Wait at the gate, then give the epoch's rows to the sinks: late rows first."""
        self._commits.gate(this.epoch)
        this.stopwatch.lap("gate")
        at = SinkEpoch(this.epoch, this.try_, this.again)
        if self._late is not None:
            refs = [ref for receipt in receipts for ref in receipt.late]
            self._late.write(this.spark, refs, at)
        release(self._sink, output, at)

    def _choose_lookaheads(
        self, this: _Running, receipts: Sequence[Receipt], done: Sequence[EpochResult]
    ) -> list[LookaheadProgress]:
        """Choose which points send hints in the next epoch."""
        if self._hints is None:
            return []
        rows = max((receipt.rows for receipt in receipts), default=0)
        chosen = self._hints.after([each.status.operators for each in done], this.spark, rows)
        self._hints.instruct(this.spark.sparkContext, self._fleet.access, this.epoch + 1, 0, self._fleet.routes)
        return chosen

    def _report(self, outcome: Outcome, stopwatch: Stopwatch) -> EpochProgress:
        progress = progress_of(self._plan, self.identity, outcome, stopwatch)
        durations = progress.duration_ms
        self._quick_servers = durations.apply + durations.advance <= _PIPELINED_MS_MAX
        self.progress.append(progress)
        del self.progress[:-PROGRESS_KEPT]
        return progress

    # The run ---------------------------------------------------------------------------------------------------------

    def lookaheads(self) -> Mapping[str, Lookahead]:
        """By operator, what is known and decided now."""
        return {} if self._hints is None else self._hints.lookaheads

    def stop(self) -> None:
        """The query is being stopped: let no epoch wait."""
        self._budget.stop()
        self._commits.stop()
        self._sink.stop()
        if any(stage.operator.waits_outside for stage in self._plan.stages):
            self._fleet.give_up()

    def close(self) -> None:
        """Finish the commits that have begun. Raises where an epoch that its sink has got did not become durable."""
        failed = self._commits.close()
        self._moves.close()
        if self._late is not None:
            self._late.close()
        if failed is not None:
            raise failed
