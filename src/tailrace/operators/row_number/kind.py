"""Numbering rows, as an operator: its plan, and in a user's words."""

from __future__ import annotations

from tailrace.api.relations import OutputMode
from tailrace.errors import AnalysisError
from tailrace.operators.ingest.rows import PassingIngest
from tailrace.operators.kind import Description, OperatorKind, OperatorRuntime
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import fields_text, row_parts
from tailrace.operators.row_number.relation import RowNumbering
from tailrace.operators.row_number.spec import RowNumberSpec
from tailrace.operators.spec import VALUES_MAX


def _plan(stream: RowNumbering, output_mode: OutputMode, shards: int, name: str) -> RowNumberSpec:
    if len(stream.schema) > VALUES_MAX:
        raise AnalysisError(
            f"row_number: a row has {len(stream.schema)} columns, and at most {VALUES_MAX} can be passed on: select "
            f"those that you need first"
        )
    time = None if stream.watermark is None else stream.watermark.column
    return RowNumberSpec(name, stream.keys, stream.schema, time, stream.name, stream.limit, shards)


def _lines(spec: RowNumberSpec) -> list[str]:
    order = "" if spec.time_column is None else f"by {spec.time_column.name}, then "
    given = "all rows" if spec.limit is None else f"the first {spec.limit:,} rows of each"
    return [
        f"numbers the rows of each {fields_text(spec.keys)}, in column {spec.number}; gives {given}",
        f"rows of an epoch count {order}as they come",
        f"output {fields_text(spec.emits)}",
    ]


def _parts(spec: RowNumberSpec) -> dict[str, str]:
    return row_parts(spec.keys, spec.columns, spec.time_column)


def _runtime() -> OperatorRuntime[RowNumberSpec]:
    from tailrace.operators.row_number.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


ROW_NUMBER = OperatorKind(
    spec=RowNumberSpec,
    relation=RowNumbering,
    name="row_number",
    plan=_plan,
    description=Description(
        title=lambda spec: "Row number",
        lines=_lines,
        parts=_parts,
        store=lambda spec: StoreChoice(Pattern.RMW, "rows of a key are counted: one record a key, changed in place"),
        timeless=lambda spec: "rows pass with the event times they have",
    ),
    ingest=lambda spec, context: PassingIngest(spec),
    runtime=_runtime,
)
