"""The rows of an epoch that the sink gets: those of one operator, or what Spark makes of those of one or several.

Threads: the epoch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.ids import Attempt
from tailrace.operators.output import output_schema as arrow_output_schema
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.spark.epoch.operator_chain import ServersDone
from tailrace.spark.epoch.report import output_rows
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.sinks.epoch_output import LOCAL_ROWS_MAX, EpochOutput, Hop, SharedFrame, local_output, remote_output
from tailrace.spark.sources.hops import made_by_hop, marked
from tailrace.spark.sources.schema import output_schema


class QueryOutput:
    """``shared``: whether one DataFrame may stand for the outputs of all epochs."""

    def __init__(self, plan: PhysicalPlan, fleet: Fleet, shared: bool) -> None:
        self._stages = [plan.stages[number] for number in plan.outputs]
        self._plan = plan
        self._fleet = fleet
        self._shared = SharedFrame() if shared and len(self._stages) == 1 else None

    def is_local(self, done: ServersDone) -> bool:
        """Whether the servers' answers hold all of it, and it is small enough for the driver."""
        return all(_is_local(done.results[stage.operator.name]) for stage in self._stages)

    def expected(self, spark: SparkSession, at: Attempt) -> EpochOutput:
        """The output that stays in the servers, which may still have to make it; of a plan with one output."""
        (stage,) = self._stages
        return self._remote(spark, at, stage, self._hop)

    def of(self, spark: SparkSession, at: Attempt, done: ServersDone, expected: EpochOutput | None) -> EpochOutput:
        """``expected``: the output as it was prepared before it was made, where it was."""
        if len(self._stages) == 1:
            (stage,) = self._stages
            return self._one(spark, at, stage, done, self._hop, expected)
        outputs = [self._one(spark, at, stage, done, None, None) for stage in self._stages]
        hop = self._plan.hop
        assert hop is not None, "several outputs without anything that makes one of them"
        empty = all(output.rows == 0 for output in outputs)
        frame = cache(lambda: made_by_hop(hop, *(output.frame() for output in outputs)))
        return EpochOutput(0 if empty else None, empty, frame)

    @property
    def _hop(self) -> Hop | None:
        return None if self._plan.hop is None else partial(made_by_hop, self._plan.hop)

    def _one(
        self,
        spark: SparkSession,
        at: Attempt,
        stage: Stage,
        done: ServersDone,
        hop: Hop | None,
        expected: EpochOutput | None,
    ) -> EpochOutput:
        results = done.results[stage.operator.name]
        if _is_local(results):
            batches = [batch for each in results for batch in each.batches or ()]
            return local_output(spark, batches, arrow_output_schema(stage.operator), self._schema(stage), hop)
        rows = output_rows(results)
        return replace(expected or self._remote(spark, at, stage, hop), rows=rows if hop is None or not rows else None)

    def _remote(self, spark: SparkSession, at: Attempt, stage: Stage, hop: Hop | None) -> EpochOutput:
        servers, access, name = self._fleet.servers, self._fleet.access, stage.operator.name
        return remote_output(spark, servers, at, name, access, self._schema(stage), self._shared, hop)

    def _schema(self, stage: Stage) -> StructType:
        schema = output_schema(stage.operator)
        return schema if self._plan.hop is None else marked(schema, stage.relation)


def _is_local(results: Sequence[EpochResult]) -> bool:
    return all(each.batches is not None for each in results) and output_rows(results) <= LOCAL_ROWS_MAX
