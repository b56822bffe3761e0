"""What operators emit: its schema, and the pieces in which it is made."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tailrace.operators.spec import OperatorSpec
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.rows import Rows

OUTPUT_ROWS_MAX = 1 << 16
OUTPUT_BYTES_MAX = 1 << 30
"""Of the strings and states of one batch, about."""


def output_schema(spec: OperatorSpec) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in spec.emits])


def output_pieces(rows: Rows) -> Iterator[Rows]:
    """Rows cut before Arrow is made of them: the strings of one batch must stay below 2 GiB, and so must its lists.

    A key's set or sketch may have millions of bytes, so rows are counted by what they have on average.
    """
    step = OUTPUT_ROWS_MAX
    if len(rows.heap) > OUTPUT_BYTES_MAX:
        step = max(1, min(step, len(rows) * OUTPUT_BYTES_MAX // len(rows.heap)))
    for at in range(0, len(rows), step):
        yield Rows(rows.words[at : at + step], rows.heap)
