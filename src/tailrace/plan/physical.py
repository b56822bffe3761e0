"""The physical plan: what the driver, the tasks and the servers do for one query. Frozen; made once a run."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.api.definition import Aggregation, OutputMode, QueryDefinition
from tailrace.api.options import Combine, CommitMode, Options, Route, Transport, WatermarkRule
from tailrace.ids import Micros
from tailrace.operators.spec import OperatorSpec
from tailrace.plan.aggregation import OPERATOR, plan_operator
from tailrace.plan.store_choice import StoreChoice, choose_store
from tailrace.types import Field


@dataclass(frozen=True)
class Stage:
    """One operator of a chain and the store it is kept in."""

    operator: OperatorSpec
    store: StoreChoice


@dataclass(frozen=True)
class PhysicalPlan:
    """A chain of operators and how it is run. The first takes the source's rows, the last gives the sink its own."""

    stages: tuple[Stage, ...]
    delay: Micros | None  # how far the watermark trails the largest event time; None: there is no watermark
    watermark_rule: WatermarkRule
    columns: tuple[Field, ...]  # all that is read of the source, in the source's order
    route: Route
    combine: Combine
    transport: Transport
    commit: CommitMode
    memory_bytes: int  # of each state server
    retain: int
    epoch_tries: int

    @property
    def operator(self) -> OperatorSpec:
        """The first one, which ingests."""
        return self.stages[0].operator

    @property
    def last(self) -> OperatorSpec:
        """The one whose rows the sink gets."""
        return self.stages[-1].operator

    @property
    def shards(self) -> int:
        return self.operator.shards

    @property
    def output_mode(self) -> OutputMode:
        return OutputMode.UPDATE if self.last.emit_changed else OutputMode.APPEND


def plan_query(query: QueryDefinition) -> PhysicalPlan:
    """The plan of a query that is to be started."""
    return plan_aggregation(query.stream, query.output_mode, query.options)


def plan_aggregation(stream: Aggregation, output_mode: OutputMode, options: Options) -> PhysicalPlan:
    """The plan of an aggregation, before a sink and a checkpoint are chosen."""
    first = stream.chain[0]
    stages = tuple(
        _stage(each, number, each is stream, output_mode, options) for number, each in enumerate(stream.chain)
    )
    return PhysicalPlan(
        stages=stages,
        delay=None if first.watermark is None else first.watermark.delay,
        watermark_rule=options.watermark,
        columns=_needed(first.schema, stages[0].operator),
        route=options.route,
        combine=options.combine,
        transport=options.transport,
        commit=options.commit,
        memory_bytes=options.memory_bytes,
        retain=options.retain,
        epoch_tries=options.epoch_tries,
    )


def _stage(each: Aggregation, number: int, last: bool, output_mode: OutputMode, options: Options) -> Stage:
    """Operators before the last give rows that are final."""
    name = OPERATOR if not number else f"{OPERATOR}-{number + 1}"
    operator = plan_operator(each, output_mode if last else OutputMode.APPEND, options.shards, name)
    return Stage(operator, choose_store(operator))


def _needed(schema: tuple[Field, ...], operator: OperatorSpec) -> tuple[Field, ...]:
    names = {key.name for key in operator.keys}
    names.update(accumulator.column for accumulator in operator.accumulators if accumulator.column is not None)
    names.update(row.name for row in operator.rows)
    if operator.time_column is not None:
        names.add(operator.time_column.name)
    return tuple(field for field in schema if field.name in names)
