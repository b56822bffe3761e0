"""The physical plan: what the driver, the tasks and the servers do for one query. Frozen; made once a run."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.api.definition import Aggregation, OutputMode, QueryDefinition
from tailrace.api.options import Combine, CommitMode, Options, Route, Transport, WatermarkRule
from tailrace.ids import Micros
from tailrace.operators.spec import OperatorSpec
from tailrace.plan.aggregation import plan_operator
from tailrace.plan.store_choice import StoreChoice, choose_store
from tailrace.types import Field


@dataclass(frozen=True)
class PhysicalPlan:
    """One operator and how it is run."""

    operator: OperatorSpec
    delay: Micros | None  # how far the watermark trails the largest event time; None: there is no watermark
    watermark_rule: WatermarkRule
    columns: tuple[Field, ...]  # all that is read of the source, in the source's order
    store: StoreChoice
    route: Route
    combine: Combine
    transport: Transport
    commit: CommitMode
    memory_bytes: int  # of each state server
    retain: int
    epoch_tries: int

    @property
    def shards(self) -> int:
        return self.operator.shards

    @property
    def output_mode(self) -> OutputMode:
        return OutputMode.UPDATE if self.operator.emit_changed else OutputMode.APPEND


def plan_query(query: QueryDefinition) -> PhysicalPlan:
    """The plan of a query that is to be started."""
    return plan_aggregation(query.stream, query.output_mode, query.options)


def plan_aggregation(stream: Aggregation, output_mode: OutputMode, options: Options) -> PhysicalPlan:
    """The plan of an aggregation, before a sink and a checkpoint are chosen."""
    operator = plan_operator(stream, output_mode, options.shards)
    return PhysicalPlan(
        operator=operator,
        delay=None if stream.watermark is None else stream.watermark.delay,
        watermark_rule=options.watermark,
        columns=_needed(stream.schema, operator),
        store=choose_store(operator),
        route=options.route,
        combine=options.combine,
        transport=options.transport,
        commit=options.commit,
        memory_bytes=options.memory_bytes,
        retain=options.retain,
        epoch_tries=options.epoch_tries,
    )


def _needed(schema: tuple[Field, ...], operator: OperatorSpec) -> tuple[Field, ...]:
    names = {key.name for key in operator.keys}
    names.update(accumulator.column for accumulator in operator.accumulators if accumulator.column is not None)
    names.update(row.name for row in operator.rows)
    if operator.time_column is not None:
        names.add(operator.time_column.name)
    return tuple(field for field in schema if field.name in names)
