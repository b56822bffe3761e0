"""From the user's DataFrames to the tasks: the streaming plan of a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.api.options import Route
from tailrace.api.relations import Join, JoinSide, Relation, chain
from tailrace.operators.join.spec import LEFT, RIGHT, SIDE, TIME, JoinSpec
from tailrace.plan.physical import PhysicalPlan
from tailrace.server.transport.server_config import Access
from tailrace.spark.sources.schema import fields_of, quoted, spark_type
from tailrace.spark.sources.transforms import frame_of
from tailrace.spark.tasks.hint_sender import HintPoint
from tailrace.spark.tasks.ingest import RECEIPT_DDL, IngestTask
from tailrace.spark.tasks.late_rows import LatePlace
from tailrace.types import Field


def source_rows(relation: Relation, plan: PhysicalPlan, placed: Callable[[object], DataFrame] = frame_of) -> DataFrame:
    """The needed columns of the source; of a join, both sources united. ``placed``: the rows of a stream's source."""
    first = chain(relation)[0]
    if isinstance(first, Join):
        return _united(first, plan.operator)
    return _read(placed(first.source), plan.inputs[0].columns)


def ingested(
    rows: DataFrame,
    plan: PhysicalPlan,
    access: Access,
    shuffled: int,
    late: LatePlace | None = None,
    point: HintPoint | None = None,
) -> DataFrame:
    """The source's rows, by the chosen route, into the tasks. Gives receipts.

    ``shuffled``: into how many tasks, with route shuffle.
    """
    if plan.options.route is Route.SHUFFLE:
        keys = [F.col(quoted(key.name)) for key in plan.operator.keys]
        shard = F.pmod(F.xxhash64(*keys) if keys else F.lit(0), F.lit(plan.shards))
        rows = rows.repartition(shuffled, shard)
    types = tuple((column.name, column.type.name) for column in fields_of(rows.schema))
    # By number: PySpark looks columns up by name there, and a dot or a backtick in a name would part it.
    rows = rows.toDF(*(f"c{number}" for number in range(len(types))))
    recorded = plan.options.record_folder is not None
    task = IngestTask(plan.operator.for_tasks().to_json(), types, access, late, recorded, point)
    return rows.mapInArrow(task, RECEIPT_DDL)


def _read(source: DataFrame, columns: Sequence[Field]) -> DataFrame:
    # Where no column is needed, one stands for the rows: a batch without columns does not know how many it has.
    read = [_column(column.name) for column in columns] or [F.lit(True).alias("__row")]
    return source.select(*read)


def _united(join: Join, spec: object) -> DataFrame:
    """Rows of both sides in the columns that ``JoinSpec`` names."""
    assert isinstance(spec, JoinSpec)
    left, right = (_side(join, spec, side) for side in (join.left, join.right))
    return left.union(right)


def _side(join: Join, spec: JoinSpec, side: JoinSide) -> DataFrame:
    time = spark_type(spec.time_type)
    columns: list[Column] = [
        _column(key.name).alias(named.name) for key, named in zip(side.keys, spec.keys, strict=True)
    ]
    columns.append(F.lit(side is join.right).alias(SIDE))
    columns.append(
        (F.lit(None).cast(time) if side.watermark is None else _column(side.watermark.column.name)).alias(TIME)
    )
    for one in (join.left, join.right):
        columns += [
            _column(field.name) if one is side else F.lit(None).cast(spark_type(field.type)).alias(field.name)
            for field in spec.columns(RIGHT if one is join.right else LEFT)
        ]
    return frame_of(side.source).select(*columns)


def _column(name: str) -> Column:
    return F.col(quoted(name))
