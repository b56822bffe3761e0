"""An epoch of a query without an operator: Spark's batch has the sink's rows, and there are no state servers.

Order: Spark's logs of the epoch are recorded; for a table or a topic, tasks set the rows aside; the commit begins,
whose log entry lists no object; at the gate, this epoch (mode sync) or the one before is durable; the sink gets them.

Why it is exactly once without a state: Spark's log of offsets says which rows an epoch has, and it is recorded before a
sink sees them, so that no start can plan the epoch with other ones. An epoch that comes again finds the sink's own
record of it, as with every other query. So its rows need not even be the same in each try: one try's rows are taken, as
a whole.

Threads: Spark calls one epoch at a time. Commits have a thread of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import DataFrame

from tailrace.commit.controller import Controller
from tailrace.env import clock
from tailrace.errors import RewindNeeded
from tailrace.ids import MIN_MICROS, Attempt
from tailrace.plan.physical import PhysicalPlan
from tailrace.server.transport.client import StateClient
from tailrace.spark.commit.commits import CommitRequest, Commits
from tailrace.spark.epoch.progress import Durations, EpochProgress, QueryIdentity
from tailrace.spark.epoch.report import Stopwatch
from tailrace.spark.epoch.runner import PROGRESS_KEPT
from tailrace.spark.epoch.timeline import commit_steps, epoch_steps
from tailrace.spark.hints.lookahead import Lookahead
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.sinks.contract import EpochSink, SinkEpoch, release
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.sinks.set_aside import RowsSetAside

_Answer = TypeVar("_Answer")


class NoServers:
    """Nobody has a delta to commit."""

    servers = ()

    def each(self, call: Callable[[StateClient, int], _Answer]) -> list[_Answer]:
        return []

    def replace_lost(self) -> None:
        pass


class PassThroughRunner:
    """Runs the epochs of one run of a query. ``aside``: the batch is the receipts of rows that tasks set aside there;
    None: it is the rows.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        controller: Controller,
        sink: EpochSink,
        identity: QueryIdentity,
        budget: RetryBudget,
        aside: RowsSetAside | None,
    ) -> None:
        self._sink = sink
        self._aside = aside
        self._budget = budget
        self.identity = identity
        self._last = controller.recovery_point.epoch
        self._seen = controller.recovery_point.planned  # by a sink, of an earlier run, at most
        self._commits = Commits(
            controller,
            NoServers(),
            plan.options.commit,
            [sink.clean, *([] if aside is None else [aside.clean])],
            notice_s=plan.options.heartbeat_timeout / 1e6,
            timeout_s=plan.options.commit_timeout / 1e6,
        )
        self.progress: list[EpochProgress] = []

    def run(self, batch: DataFrame, epoch: int) -> EpochProgress:
        """Spark's batch function."""
        if epoch != self._last + 1:
            raise RewindNeeded(
                f"Spark gives epoch {epoch} and the log is at epoch {self._last}: Spark's checkpoint was changed by "
                "someone else, such as the JVM of a driver that was killed. The query starts again, and puts it right"
            )
        started, stopwatch = clock.now(), Stopwatch()
        self._commits.record_spark_logs(epoch)
        at = SinkEpoch(epoch, 0, again=epoch <= self._seen)
        stopwatch.lap("plan")
        aside = None if self._aside is None else self._aside.collected(batch, Attempt(epoch, 0))
        stopwatch.lap("ingest")
        try:
            self._commits.begin(CommitRequest(epoch, 0, 0, watermarks={}, rows={}, epoch_config={}), written=())
            self._commits.gate(epoch)
            stopwatch.lap("gate")
            output = EpochOutput(None, False, lambda: batch)
            if aside is not None:  # a table, which takes the batches
                output = replace(output, rows=aside.rows, batches=aside.batches)
            release(self._sink, output, at)
        finally:
            if aside is not None:
                aside.drop()
        stopwatch.lap("sink")
        self._commits.epoch_finished()
        self._budget.progress(epoch)
        self._last = epoch
        progress = self._reported(epoch, started, -1 if aside is None else aside.rows, stopwatch, at.again)
        self.progress.append(progress)
        del self.progress[:-PROGRESS_KEPT]
        return progress

    def _reported(self, epoch: int, started: float, rows: int, stopwatch: Stopwatch, again: bool) -> EpochProgress:
        laps, commit = stopwatch.laps, self._commits.last
        steps = epoch_steps(epoch, stopwatch.began, laps, 0.0, 0.0)
        if commit is not None:
            steps += commit_steps(commit.manifest.epoch, commit.spans)
        return EpochProgress(
            query=self.identity,
            operators=(),
            epoch=epoch,
            tries=1,
            started=started,
            input_rows=-1,  # Spark counts them
            partials=0,
            output_rows=rows,
            watermark=MIN_MICROS,
            time_max=MIN_MICROS,
            memory_bytes_max=0,
            staged_bytes=0,
            servers=0,
            combined=False,
            replayed=again,
            since_last_s=max(0.0, started - self.progress[-1].started) if self.progress else 0.0,
            duration_ms=Durations(
                plan=laps["plan"],
                ingest=laps["ingest"],
                commit=laps["gate"],
                sink=laps["sink"],
                async_commit=0.0 if commit is None else commit.behind_ms,
                add_batch=sum(laps.values()),
            ),
            timeline=tuple(steps),
        )

    def lookaheads(self) -> Mapping[str, Lookahead]:
        """There is no operator that looks ahead."""
        return {}

    def stop(self) -> None:
        """The query is being stopped: let no epoch wait."""
        self._budget.stop()
        self._commits.stop()
        self._sink.stop()

    def close(self) -> None:
        """Finish the commits that have begun. Raises where an epoch that its sink has got did not become durable."""
        failed = self._commits.close()
        if self._aside is not None:
            self._aside.close()
        if failed is not None:
            raise failed
