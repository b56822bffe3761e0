"""Structs, arrays and maps on their way into operators, which keep them as byte strings, and out of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from tailrace.state.nested.pack import pack_nested
from tailrace.state.nested.unpack import unpack_nested
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType


def packed_batch(batch: pa.RecordBatch, types: Sequence[DataType]) -> pa.RecordBatch:
    """Of the types that ``kept_fields`` names."""
    if all(type_.packed is None for type_ in types):
        return batch
    columns = [
        column if type_.packed is None else pack_nested(column)
        for column, type_ in zip(batch.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def unpacked_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of an operator with nested values where the schema has them."""
    columns = [_unpacked(column, type_) for column, type_ in zip(batch.columns, schema.types, strict=True)]
    if all(new is old for new, old in zip(columns, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _unpacked(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if _is_bytes(column.type) and pa.types.is_nested(type_):
        return unpack_nested(column, type_)
    if pa.types.is_list(column.type) and _is_bytes(column.type.value_type) and pa.types.is_nested(type_.value_type):
        values = unpack_nested(column.values, type_.value_type)
        buffers = column.buffers()[:2]
        return pa.Array.from_buffers(type_, len(column), buffers, offset=column.offset, children=[values])
    return column


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def nested_values(column: pa.Array, type_: DataType) -> pa.Array:
    """What is kept as byte strings of a type."""
    assert type_.packed is not None
    return unpack_nested(column, _arrow_type(json.loads(type_.packed)))


def _arrow_type(described: object) -> pa.DataType:
    """As ``spark.sources.nested`` describes it."""
    if isinstance(described, str):
        return arrow_type(DataType(described))
    assert isinstance(described, dict)
    ((kind, parts),) = described.items()
    if kind == "array":
        return pa.list_(_arrow_type(parts))
    if kind == "map":
        return pa.map_(_arrow_type(parts[0]), _arrow_type(parts[1]))
    return pa.struct([(name, _arrow_type(part)) for name, part in parts])


def warm_up_nested() -> None:
    """Run every kernel of nested values once (see ``operators.warm_up``)."""
    array = pa.array([{"a": [["x"]]}], pa.struct([("a", pa.list_(pa.list_(pa.string())))]))
    unpack_nested(pack_nested(array), array.type)
