"""The servers' part of one epoch: every operator on every server, each behind those whose rows it gets.

Order: all servers prepare an operator's rows, then all apply and advance. No server changes its state before all have
every committed attempt's rows. A single server prepares in the same call, since a small epoch mostly pays for round
trips. Between two operators servers exchange rows, or tasks of Spark read them, change them and ingest them again.

Threads: one epoch at a time, in whatever thread runs it; where rows go by way of Spark, in the epoch's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.server.transport.stage_messages import CommittedAttempt, StageReceipt
from tailrace.spark.epoch.endless import reporting_endless_functions
from tailrace.spark.epoch.time.epoch_times import QueryTime
from tailrace.spark.hints.control import HintControl
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.tasks.ingest import Receipt

_Sent = list[tuple[int, int, tuple[StageReceipt, ...]]]
"""Of every sender its partition, its attempt, and what it has staged on each server."""


@dataclass(frozen=True)
class EpochTry:
    """One try of an epoch. ``before``, ``after``: the query's time at the end of the epoch before, and of this one."""

    epoch: int
    try_: int
    before: QueryTime
    after: QueryTime


@dataclass
class ServersDone:
    """By operator, the answers of all servers, and how many rows of exchanges came too late for it. ``receipts``: of
    tasks through which rows went by way of Spark.
    """

    results: dict[str, list[EpochResult]] = field(default_factory=dict)
    late_rows: dict[str, int] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def last(self) -> list[EpochResult]:
        """Of the operator that ran last: they say how all of them are."""
        return list(self.results.values())[-1]


ThroughSpark = Callable[[Stage, ServersDone], list[Receipt]]
"""Brings a stage the rows of those before it, by a job of Spark's, whose receipts it gives."""


def state_rows(done: ServersDone) -> dict[str, int]:
    """By operator, the rows of its state on all servers."""
    rows: dict[str, int] = defaultdict(int)
    for answer in done.last:
        for status in answer.status.operators:
            rows[status.name] += status.rows
    return rows


class OperatorChain:
    def __init__(self, plan: PhysicalPlan, fleet: Fleet, hints: HintControl | None) -> None:
        self._plan = plan
        self._fleet = fleet
        self._hints = hints

    def run(
        self, this: EpochTry, receipts: Sequence[Receipt], commit: bool, through_spark: ThroughSpark
    ) -> ServersDone:
        """``commit``: the servers of a single operator write their deltas in the same call."""
        stages = self._plan.stages
        done = ServersDone()
        for stage in stages:
            name = stage.operator.name
            ingested = [receipt for receipt in receipts if receipt.operator == name]
            sent, late = _sent(ingested), 0
            if stage.by_spark:
                receipts_between = through_spark(stage, done)
                done.receipts += receipts_between
                sent += _sent(receipts_between)
            elif stage.before:
                (number,) = stage.before
                exchanged, late = self._exchange(this, stages[number], stage)
                sent += exchanged
            done.late_rows[name] = late
            done.results[name] = self._run_operator(this, stage, sent, commit and len(stages) == 1)
        return done

    def _run_operator(self, this: EpochTry, stage: Stage, sent: _Sent, commit: bool) -> list[EpochResult]:
        operator = stage.operator
        committed = [
            [
                CommittedAttempt(partition, attempt, staged[number].rows, staged[number].checksum)
                for partition, attempt, staged in sent
                if staged[number].frames
            ]
            for number in range(len(self._fleet.servers))
        ]
        alone = len(committed) == 1
        if not alone:
            self._fleet.each(
                lambda client, number: client.prepare(this.epoch, this.try_, committed[number], operator.name)
            )
        limit_s = self._plan.options.function_timeout / 1e6
        with reporting_endless_functions(operator, this.epoch, limit_s, self._fleet.access) as timeout_s:
            done = self._fleet.each(
                lambda client, number: client.run_epoch(
                    this.epoch,
                    this.try_,
                    committed[number] if alone else None,
                    this.before.late_before(stage),
                    this.after.watermark_of(stage),
                    commit=commit,
                    operator=operator.name,
                    now=this.after.times.now,
                    forget_before=this.after.times.expired_by(stage),
                    timeout_s=timeout_s,
                )
            )
        if self._hints is not None:
            self._hints.ran(operator.name, done)
        return done

    def _exchange(self, this: EpochTry, before: Stage, stage: Stage) -> tuple[_Sent, int]:
        """Every server sends one operator's output to the servers that own the next operator's keys."""
        source, target, routes = before.operator.name, stage.operator.name, self._fleet.routes
        late_before = this.before.late_before(stage)
        exchanged = self._fleet.each(
            lambda client, number: client.exchange(this.epoch, this.try_, source, target, late_before, number, routes)
        )
        late = sum(each.late_rows for each in exchanged)
        assert not late or not before.operator.watermarked, f"{late} rows of {source} came too late for {target}"
        return [(each.number, each.number, each.staged) for each in exchanged], late


def _sent(receipts: Sequence[Receipt]) -> _Sent:
    """In the order in which servers are to apply them, which is the same in a replay.

    It decides how doubles are added, and which of equal rows comes first. Tasks that may get other numbers in a replay
    have checksums.
    """
    ordered = sorted(receipts, key=lambda receipt: (receipt.checksum, receipt.partition))
    return [(receipt.partition, receipt.attempt, receipt.staged) for receipt in ordered]
