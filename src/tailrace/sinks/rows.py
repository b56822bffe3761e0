"""Rows on their way into a table: whether they fit, columns without structs, the last row of each key, and changes.

*Changes* are rows with a column ``_change_type`` (the option ``changelog``), for a table where rows replace others:
those of type ``delete`` take the row with their key away, ``update_preimage`` says nothing, all others replace it.

Pure functions over Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.table_options import KeyedOptions, WriteMode, default_mode
from tailrace.errors import AnalysisError

CHANGE_TYPE, DELETE, PREIMAGE = "_change_type", "delete", "update_preimage"


@dataclass(frozen=True)
class Form:
    """What rows are to a table. ``given``: as they come; ``schema``: the columns that the table gets of them."""

    mode: WriteMode
    given: pa.Schema
    schema: pa.Schema
    changes: bool

    @classmethod
    def of(cls, schema: pa.Schema, options: KeyedOptions) -> Form:
        """To a table that adds rows the type of a change is a column like any other."""
        mode = options.write_mode or default_mode(options.key_columns)
        changes = mode is not WriteMode.APPEND and CHANGE_TYPE in schema.names
        return cls(mode, schema, without_change_type(schema) if changes else schema, changes)


def without_change_type(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index(CHANGE_TYPE))


def without_preimages(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.not_equal(batch[CHANGE_TYPE], PREIMAGE))


def deletions(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows that take others away, and those that replace them."""
    deleted = pc.equal(rows[CHANGE_TYPE], DELETE)
    return rows.filter(deleted).drop_columns(CHANGE_TYPE), rows.filter(pc.invert(deleted)).drop_columns(CHANGE_TYPE)


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


def check_key_columns(shown: str, schema: pa.Schema, mode: WriteMode, keys: Sequence[str]) -> None:
    """Refuses keys that rows do not have, and modes that need some."""
    unknown = [key for key in keys if key not in schema.names]
    if unknown or (mode is not WriteMode.APPEND and not keys):
        raise AnalysisError(
            f"{shown}: writeMode {mode.value!r} needs keyColumns among the columns of the rows"
            f"{f', and {unknown[0]!r} is none' if unknown else ''}: {', '.join(schema.names)}"
        )


def check_columns(shown: str, rows: pa.Schema, table: pa.Schema) -> None:
    """Refuses rows that have not just the columns of the table, in any order."""
    for field in rows:
        if field.name not in table.names:
            raise AnalysisError(f"{shown} has no column {field.name!r}; it has: {', '.join(table.names)}")
        found = plain_type(table.field(field.name).type)
        if found != field.type:
            raise AnalysisError(
                f"{shown}: its column {field.name!r} is {found}, and the rows have {field.type} there: cast one of them"
            )
    missing = [name for name in table.names if name not in rows.names]
    if missing:
        raise AnalysisError(f"{shown} has a column {missing[0]!r}, which is no column of the rows")


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type by its values, however they lie in memory: texts and lists have several forms in Arrow."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(plain_type(type_.value_type))
    return type_
