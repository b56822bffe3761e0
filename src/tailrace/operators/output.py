"""The schema of what an operator emits."""

from __future__ import annotations

import pyarrow as pa

from tailrace.operators.spec import OperatorSpec
from tailrace.state.rows.columns import arrow_type


def output_schema(spec: OperatorSpec) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in spec.emits])
