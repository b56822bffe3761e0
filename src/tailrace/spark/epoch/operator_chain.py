"""The servers' part of one epoch: every operator of the chain on every server, with an exchange between two of them.

Order: all servers prepare an operator's rows, then all apply and advance. No server changes its state before all have
every committed attempt's rows. A single server prepares in the same call, since a small epoch mostly pays for round
trips.

Threads: one epoch at a time, in whatever thread runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.server.transport.stage_messages import CommittedAttempt, Exchanged, StageReceipt
from tailrace.spark.epoch.endless import reporting_endless_functions
from tailrace.spark.epoch.epoch_times import QueryTime
from tailrace.spark.hints.control import HintControl
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.tasks.ingest import Receipt

_Sent = Sequence[tuple[int, int, tuple[StageReceipt, ...]]]
"""Of every sender its partition, its attempt, and what it has staged on each server."""


@dataclass(frozen=True)
class EpochTry:
    """One try of an epoch. ``before``, ``after``: the query's time at the end of the epoch before, and of this one."""

    epoch: int
    try_: int
    before: QueryTime
    after: QueryTime


@dataclass(frozen=True)
class ServersDone:
    """``last``: by server, the last operator's answer. ``late_rows``: by operator, without the first."""

    last: list[EpochResult]
    late_rows: list[int]


class OperatorChain:
    def __init__(self, plan: PhysicalPlan, fleet: Fleet, hints: HintControl | None) -> None:
        self._plan = plan
        self._fleet = fleet
        self._hints = hints

    def run(self, this: EpochTry, receipts: Sequence[Receipt], commit: bool) -> ServersDone:
        """``commit``: the servers of a single operator write their deltas in the same call."""
        stages = self._plan.stages
        sent: _Sent = [
            (each.partition, each.attempt, each.staged)
            for each in sorted(receipts, key=lambda receipt: receipt.partition)
        ]
        done = self._run_operator(this, stages[0], sent, commit and len(stages) == 1)
        late_rows: list[int] = []
        for before, stage in pairwise(stages):
            exchanged = self._exchange(this, before, stage)
            late = sum(each.late_rows for each in exchanged)
            names = f"{before.operator.name} came too late for {stage.operator.name}"
            assert not late or not before.operator.watermarked, f"{late} rows of {names}"
            late_rows.append(late)
            sent = [(each.number, each.number, each.staged) for each in exchanged]
            done = self._run_operator(this, stage, sent, False)
        return ServersDone(done, late_rows)

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

    def _exchange(self, this: EpochTry, before: Stage, stage: Stage) -> list[Exchanged]:
        """Every server sends one operator's output to the servers that own the next operator's keys."""
        source, target, routes = before.operator.name, stage.operator.name, self._fleet.routes
        late_before = this.before.late_before(stage)
        return self._fleet.each(
            lambda client, number: client.exchange(this.epoch, this.try_, source, target, late_before, number, routes)
        )
