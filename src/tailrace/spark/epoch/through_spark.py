"""Rows on their way from operators to another one, changed by Spark: a job within the epoch.

Its tasks read what the operators have put out from the servers, and ingest what a hop makes of it as the tasks of the
streaming plan ingest streams: staged under the same (run, epoch, try), counted by receipts, with the job's end as the
barrier. So a failed one costs the epoch its try, and nothing else.

Threads: the epoch's.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tailrace.api.relations import Relation
from tailrace.ids import Attempt
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.spark.epoch.operator_chain import ServersDone
from tailrace.spark.epoch.receipts import receipts_of
from tailrace.spark.epoch.report import output_rows
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.sinks.epoch_output import SharedFrame, operator_rows, reading
from tailrace.spark.sources.hops import marked
from tailrace.spark.sources.inputs import clocks_of, ingested, rows_through_spark
from tailrace.spark.sources.schema import output_schema
from tailrace.spark.tasks.ingest import Receipt

_FIRST_PARTITION = 1 << 20
"""Behind those of tasks that ingest streams for the same operator."""


class ThroughSpark:
    """``shuffled``: into how many tasks rows are shuffled, with route shuffle."""

    def __init__(self, plan: PhysicalPlan, fleet: Fleet, shuffled: int) -> None:
        self._plan = plan
        self._fleet = fleet
        self._shuffled = shuffled
        self._rows = {stage.operator.name: SharedFrame() for stage in plan.stages if stage.by_spark}

    def ingest(self, spark: SparkSession, at: Attempt, stage: Stage, done: ServersDone) -> list[Receipt]:
        """Bring a stage the rows of those before it. Without any there is no job, as a hop makes no rows of none."""
        if not any(output_rows(done.results[name]) for name in self._names(stage)):
            return []
        access, spec = self._fleet.access, stage.operator
        rows = self._rows[spec.name].get(self._fleet.servers, lambda: self._frame(spark, stage))
        clocks = tuple(map(tuple, clocks_of(stage.relation)))
        # Anew for each epoch: a DataFrame that was collected keeps the plan, and what a shuffle in it has written.
        receipts = ingested(
            rows, spec, self._plan, access, self._shuffled, first_partition=_FIRST_PARTITION, clocks=clocks
        )
        with reading(spark.sparkContext, access.run, at):
            return receipts_of(receipts)

    def _names(self, stage: Stage) -> list[str]:
        return [self._plan.stages[number].operator.name for number in stage.before]

    def _frame(self, spark: SparkSession, stage: Stage) -> DataFrame:
        servers, access = self._fleet.servers, self._fleet.access

        def output_of(relation: Relation) -> DataFrame:
            spec = self._plan.stage_of(relation).operator
            return operator_rows(spark, servers, None, spec.name, access, marked(output_schema(spec), relation))

        return rows_through_spark(stage, output_of)
