"""Rows of an initial state, from a static DataFrame to the description of the operator that begins with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData

from tailrace.api.columns import check_kept
from tailrace.api.processors import StatefulProcessing
from tailrace.errors import AnalysisError
from tailrace.operators.output import schema_of
from tailrace.operators.stateful_processor.initial_state import packed_rows
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.spark.private import grouped_frame
from tailrace.spark.sources.schema import fields_of, quoted
from tailrace.types import Field

BYTES_MAX = 64 << 20
"""Of an initial state, as Arrow: it goes through the driver to every server."""


def initial_of(grouped: object, keys: Sequence[Field], title: str) -> Callable[[], pa.Table]:
    """Reads ``initialState``, a static DataFrame grouped by as many columns of the same types, when it is called."""
    if not isinstance(grouped, GroupedData):
        raise AnalysisError(
            f"{title}: initialState takes a static DataFrame that is grouped by the same keys, df.groupBy('user'), but "
            f"got {grouped!r} ({type(grouped).__name__})"
        )
    frame = grouped_frame(grouped)
    names = grouped.agg(F.count(F.lit(1))).columns[:-1]
    return initial_rows(frame.select(*map(quoted, (*names, *frame.columns))), keys, title)


def initial_rows(frame: DataFrame, keys: Sequence[Field], title: str) -> Callable[[], pa.Table]:
    """Of a DataFrame whose first columns are the keys, and whose others are what the function sees of a row."""
    if frame.isStreaming:
        raise AnalysisError(f"{title}: initialState must be a static DataFrame, and this one is a stream")
    fields = fields_of(frame.schema)
    types = [field.type.name for field in fields[: len(keys)]]
    if types != [key.type.name for key in keys]:
        wanted = ", ".join(f"{key.name} {key.type}" for key in keys)
        raise AnalysisError(
            f"{title}: initialState must be grouped by the types of the stream's keys ({wanted}), but is by "
            f"{', '.join(types)}: cast its columns"
        )
    check_kept(fields, f"{title}: initialState's column", "is not supported: leave it out")

    def read() -> pa.Table:
        try:
            rows = frame.toArrow()
        except PySparkException as error:
            raise AnalysisError(f"{title}: initialState cannot be read: {str(error).splitlines()[0]}") from error
        if rows.nbytes > BYTES_MAX:
            raise AnalysisError(
                f"{title}: initialState has {rows.nbytes:,} bytes, and at most {BYTES_MAX:,} are possible, since it "
                f"goes through the driver: put the rows into the stream's first batch instead, marked by a column"
            )
        schema = schema_of(fields)
        return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)], schema=schema)

    return read


def with_initial_states(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan of a query that has no epoch yet."""
    return replace(plan, stages=tuple(map(_begun, plan.stages)))


def _begun(stage: Stage) -> Stage:
    spec, made = stage.operator, stage.relation
    if not isinstance(made, StatefulProcessing) or made.code.initial is None:
        return stage
    assert isinstance(spec, StatefulProcessorSpec)
    return replace(stage, operator=replace(spec, initial=packed_rows(made.code.initial())))
