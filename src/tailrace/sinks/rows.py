"""Rows on their way into a table: columns without structs, and the last row of each key.

Pure functions over Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.errors import AnalysisError


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that ``flattened`` gives."""
    flat = flattened(pa.RecordBatch.from_pylist([], schema=schema)).schema
    names = [name.lower() for name in flat.names]
    twice = next((name for name in flat.names if names.count(name.lower()) > 1), None)
    if twice is not None:
        raise AnalysisError(f"two columns of the rows are named {twice!r} in the table: rename one of them")
    return flat


def flattened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A struct as a column for each of its fields, ``<struct>_<field>``: databases have no structs."""
    while any(pa.types.is_struct(field.type) for field in batch.schema):
        columns: list[pa.Array] = []
        fields: list[pa.Field] = []
        for field, column in zip(batch.schema, batch.columns):
            if pa.types.is_struct(field.type):
                columns += column.flatten()
                fields += [pa.field(f"{field.name}_{each.name}", each.type) for each in field.type]
            else:
                columns.append(column)
                fields.append(field)
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return batch


def without_empty(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in rows if batch.num_rows)


def last_of_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Of rows with equal keys the last one, in the order of the rows that stay. Nulls are equal to each other."""
    numbered = table.select(list(keys)).append_column("tailrace_row", pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(list(keys)).aggregate([("tailrace_row", "max")])["tailrace_row_max"]
    if len(last) == table.num_rows:
        return table
    return table.take(np.sort(last.to_numpy()))
