"""What operators emit: its schema, and the pieces in which it is made."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tailrace.operators.spec import OperatorSpec
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.rows import Rows

OUTPUT_ROWS_MAX = 1 << 16


def output_schema(spec: OperatorSpec) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in spec.emits])


def output_pieces(rows: Rows) -> Iterator[Rows]:
    """Rows cut before Arrow is made of them: the strings of one batch must stay below 2 GiB."""
    for at in range(0, len(rows), OUTPUT_ROWS_MAX):
        yield Rows(rows.words[at : at + OUTPUT_ROWS_MAX], rows.heap)
