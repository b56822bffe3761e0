"""Puts an epoch's progress together: laps of the driver, and what tasks and servers report of their part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.env import clock
from tailrace.plan.physical import PhysicalPlan
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.spark.commit.commits import Commit
from tailrace.spark.epoch.operator_chain import ServersDone
from tailrace.spark.epoch.progress import Durations, EpochProgress, OperatorProgress, QueryIdentity
from tailrace.spark.epoch.shard_moves import ShardMove
from tailrace.spark.epoch.time.epoch_times import QueryTime
from tailrace.spark.epoch.timeline import Step, commit_steps, epoch_steps
from tailrace.spark.hints.lookahead import LookaheadProgress
from tailrace.spark.tasks.ingest import Receipt


class Stopwatch:
    """Milliseconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.began = clock.now()
        self._last = clock.monotonic()

    def lap(self, name: str, now: float | None = None) -> float:
        """``now``: when it ended (monotonic), where that is a while ago."""
        now = clock.monotonic() if now is None else max(now, self._last)
        self.laps[name] = (now - self._last) * 1e3
        self._last = now
        return self.laps[name]


@dataclass(frozen=True)
class Outcome:
    """The results of a try that succeeded."""

    epoch: int
    tries: int
    started: float  # when the epoch's first try began
    since_last_s: float  # and since the epoch before began; 0: this is the run's first
    failed_ms: float  # that failed tries took
    combined: bool
    replayed: bool
    receipts: Sequence[Receipt]
    servers: ServersDone
    time: QueryTime  # at the epoch's end
    lookaheads: Sequence[LookaheadProgress]
    commit: Commit | None  # the newest one that is durable
    move: ShardMove  # with which the epoch began

    def dropped(self, operator: str) -> tuple[int, int]:
        """Rows that were late for an operator, and rows without an event time."""
        ingested = [each for each in (*self.receipts, *self.servers.receipts) if each.operator == operator]
        late = sum(each.late_rows for each in ingested) + self.servers.late_rows[operator]
        return late, sum(each.null_time_rows for each in ingested)


def progress_of(plan: PhysicalPlan, identity: QueryIdentity, outcome: Outcome, stopwatch: Stopwatch) -> EpochProgress:
    receipts, watermark = outcome.receipts, outcome.time.watermark
    statuses = [each.status for each in outcome.servers.last]
    durations = durations_of(outcome, stopwatch.laps)
    return EpochProgress(
        query=identity,
        operators=tuple(
            OperatorProgress.of(
                stage, [status.operators[number] for status in statuses], *outcome.dropped(stage.operator.name)
            )
            for number, stage in enumerate(plan.stages)
        ),
        epoch=outcome.epoch,
        tries=outcome.tries,
        started=outcome.started,
        input_rows=sum(receipt.rows for receipt in receipts),
        partials=sum(receipt.partials for receipt in receipts),
        # Nobody counts what Spark makes of them: its own progress says -1 then, too.
        output_rows=output_rows(outcome.servers.results[plan.last.name]) if plan.hop is None else -1,
        watermark=watermark.closed,
        time_max=max(watermark.times_max),
        memory_bytes_max=plan.options.memory_bytes * len(statuses),
        staged_bytes=sum(staged.bytes for receipt in receipts for staged in receipt.staged),
        servers=len(statuses),
        move=outcome.move,
        combined=outcome.combined,
        replayed=outcome.replayed,
        since_last_s=outcome.since_last_s,
        duration_ms=durations,
        timeline=tuple(_timeline(outcome, durations, stopwatch)),
        lookaheads=tuple(outcome.lookaheads),
    )


def durations_of(outcome: Outcome, laps: Mapping[str, float]) -> Durations:
    done, receipts = outcome.servers.last, outcome.receipts
    apply_ms = max(each.status.apply_ms for each in done)
    advance_ms = max(each.status.advance_ms for each in done)
    return Durations(
        plan=laps["plan"],
        ingest=laps["ingest"],
        combine=max((receipt.combine_ms for receipt in receipts), default=0.0),
        transfer=max((receipt.transfer_ms for receipt in receipts), default=0.0),
        apply=apply_ms,
        advance=advance_ms,
        commit=max(0.0, laps["servers"] - apply_ms - advance_ms) + laps["gate"],
        sink=laps["sink"],
        async_commit=outcome.commit.behind_ms if outcome.commit is not None else 0.0,
        retries=outcome.failed_ms,
        add_batch=outcome.failed_ms + sum(laps.values()),
    )


def output_rows(done: Sequence[EpochResult]) -> int:
    return sum(each.output.rows for each in done)


def _timeline(outcome: Outcome, durations: Durations, stopwatch: Stopwatch) -> list[Step]:
    steps = epoch_steps(outcome.epoch, stopwatch.began, stopwatch.laps, durations.apply, durations.advance)
    if outcome.commit is not None:
        steps += commit_steps(outcome.commit.manifest.epoch, outcome.commit.spans)
    return steps
