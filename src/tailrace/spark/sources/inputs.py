"""From DataFrames to the tasks that ingest them: those of the user's streams, and those of operators' outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.api.options import Route
from tailrace.api.relations import Join, JoinSide, Relation, SparkHop, sources_of
from tailrace.operators.join.spec import LEFT, RIGHT, JoinSpec
from tailrace.operators.spec import CLOCK, SIDE, TIME, OperatorSpec
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.server.transport.server_config import Access
from tailrace.spark.sources.hops import made_by_hop
from tailrace.spark.sources.nested import kept_fields
from tailrace.spark.sources.schema import fields_of, quoted, spark_type
from tailrace.spark.sources.transforms import frame_of
from tailrace.spark.tasks.hint_sender import HintPoint
from tailrace.spark.tasks.ingest import RECEIPT_DDL, IngestTask
from tailrace.spark.tasks.row_objects import RowsPlace
from tailrace.types import Field

FrameOf = Callable[[object], DataFrame]


def source_rows(stage: Stage, placed: FrameOf = frame_of) -> DataFrame:
    """What a stage reads of the user's streams. ``placed``: the rows of a stream's source."""
    return reduce(DataFrame.union, rows_by_input(stage, placed))


def rows_by_input(stage: Stage, placed: FrameOf = frame_of) -> list[DataFrame]:
    """By stream, but of a join, whose rows say of which side they are."""
    frames = [None if isinstance(each, Relation) else placed(each) for each in sources_of(stage.relation)]
    return [_rows(stage, frames)] if isinstance(stage.relation, Join) else [_rows(stage, [each]) for each in frames]


def rows_through_spark(stage: Stage, output_of: Callable[[Relation], DataFrame]) -> DataFrame:
    """What a stage reads of the outputs of those before it, by way of Spark."""

    def made(source: object) -> DataFrame | None:
        if isinstance(source, SparkHop):
            return made_by_hop(source, *map(output_of, source.inputs))
        return output_of(source) if isinstance(source, Relation) else None

    return _rows(stage, [made(each) for each in sources_of(stage.relation)])


def ingested(
    rows: DataFrame,
    operator: OperatorSpec,
    plan: PhysicalPlan,
    access: Access,
    shuffled: int,
    late: RowsPlace | None = None,
    point: HintPoint | None = None,
    first_partition: int = 0,
    ordered_by_rows: bool = False,
    input_: tuple[int, int] = (0, 1),
    clocks: tuple[tuple[str, ...], ...] = (),
) -> DataFrame:
    """The rows, by the chosen route, into the tasks of an operator. Gives receipts.

    ``shuffled``: into how many tasks, with route shuffle. ``ordered_by_rows``: their order follows from their rows.
    ``input_``: which of how many streams of the operator they are of, where that is one by itself. ``clocks``: by
    stream, the columns by which its watermark goes on; none where that is its event time.
    """
    if plan.options.route is Route.SHUFFLE:
        keys = [F.col(quoted(key.name)) for key in operator.keys]
        shard = F.pmod(F.xxhash64(*keys) if keys else F.lit(0), F.lit(plan.shards))
        rows = rows.repartition(shuffled, shard)
    types = tuple((column.name, column.type.name) for column in kept_fields(rows.schema))
    # By number: PySpark looks columns up by name there, and a dot or a backtick in a name would part it.
    rows = rows.toDF(*(f"c{number}" for number in range(len(types))))
    recorded = plan.options.record_folder is not None
    spec = operator.for_tasks().to_json()
    task = IngestTask(spec, types, access, late, recorded, point, first_partition, ordered_by_rows, input_, clocks)
    return rows.mapInArrow(task, RECEIPT_DDL)


def _rows(stage: Stage, frames: Sequence[DataFrame | None]) -> DataFrame:
    """The columns that a stage reads. ``frames``: by what it reads; None: comes another way."""
    relation, spec = stage.relation, stage.operator
    if not isinstance(relation, Join):
        (frame,) = frames
        assert frame is not None
        (clocks,) = clocks_of(relation)
        return _read(frame, spec, {name: _column(column) for name, column in clocks.items()})
    assert isinstance(spec, JoinSpec)
    sides = zip((relation.left, relation.right), frames, strict=True)
    return reduce(DataFrame.union, [_side(relation, spec, side, frame) for side, frame in sides if frame is not None])


def clocks_of(relation: Relation) -> tuple[dict[str, str], ...]:
    """By stream that an operator reads, the columns by which its watermark goes on, and which of its own these are;
    none where that is its event time.
    """
    if isinstance(relation, Join):
        marks = [side.watermark for side in (relation.left, relation.right)]
    else:
        marks = [getattr(relation, "watermark", None)]
    numbers = count()
    given = [() if mark is None else mark.clocks for mark in marks]
    return tuple({f"{CLOCK}{next(numbers)}": each.column.name for each in clocks} for clocks in given)


def _read(source: DataFrame, spec: OperatorSpec, clocks: Mapping[str, Column]) -> DataFrame:
    # Where no column is needed, one stands for the rows: a batch without columns does not know how many it has.
    read = [_value(field, spec) for field in fields_of(source.schema) if field.name in spec.reads]
    read += [column.alias(name) for name, column in clocks.items()]
    return source.select(*read or [F.lit(True).alias("__row")])


def _value(field: Field, spec: OperatorSpec) -> Column:
    """A column as an operator reads it: of a window that rows come with, the event time that it stands for."""
    column = _column(field.name)
    if field.type.bounds is None or spec.time_column is None or field.name != spec.time_column.name:
        return column
    last = column["end"] - F.expr("INTERVAL '0.000001' SECOND")
    return (column["start"] if spec.takes_window_start else last).alias(field.name)


def _side(join: Join, spec: JoinSpec, side: JoinSide, frame: DataFrame) -> DataFrame:
    """Rows of one side in the columns that ``JoinSpec`` names for both."""
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
    for one, clocks in zip((join.left, join.right), clocks_of(join), strict=True):
        columns += [
            (_column(own) if one is side else F.lit(None).cast(time)).alias(name) for name, own in clocks.items()
        ]
    return frame.select(*columns)


def _column(name: str) -> Column:
    return F.col(quoted(name))
