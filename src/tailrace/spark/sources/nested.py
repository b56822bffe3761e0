"""Structs, arrays and maps as operators take them: as byte strings (``state.nested``).

What a type holds is described as JSON, without what Spark knows of nulls and of the names' metadata: the same query is
the same plan again.
"""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql import types as spark_types

from tailrace.operators.output import schema_of
from tailrace.types import DataType, Field, packed

_NESTED = (spark_types.StructType, spark_types.ArrayType, spark_types.MapType)


def kept_fields(schema: spark_types.StructType) -> tuple[Field, ...]:
    """The columns as operators take them: nested ones as byte strings."""
    return tuple(Field(field.name, _kept_type(field.dataType)) for field in schema.fields)


def arrow_of(schema: spark_types.StructType) -> pa.Schema:
    """What Arrow has for rows of this schema, nested values as they are."""
    return pa.schema([(field.name, _arrow_type(field.dataType)) for field in schema.fields])


def _kept_type(type_: spark_types.DataType) -> DataType:
    plain = DataType(type_.simpleString())
    if not isinstance(type_, _NESTED):
        return plain
    try:
        return packed(plain.name, json.dumps(_described(type_), separators=(",", ":")))
    except ValueError:
        return plain


def _described(type_: spark_types.DataType) -> object:
    """``ValueError`` where a value cannot be kept."""
    if isinstance(type_, spark_types.StructType):
        return {"struct": [[field.name, _described(field.dataType)] for field in type_.fields]}
    if isinstance(type_, spark_types.ArrayType):
        return {"array": _described(type_.elementType)}
    if isinstance(type_, spark_types.MapType):
        return {"map": [_described(type_.keyType), _described(type_.valueType)]}
    plain = DataType(type_.simpleString())
    if plain.kind is None:
        raise ValueError(plain.name)
    return plain.name


def _arrow_type(type_: spark_types.DataType) -> pa.DataType:
    if isinstance(type_, spark_types.StructType):
        return pa.struct([(field.name, _arrow_type(field.dataType)) for field in type_.fields])
    if isinstance(type_, spark_types.ArrayType):
        return pa.list_(_arrow_type(type_.elementType))
    if isinstance(type_, spark_types.MapType):
        return pa.map_(_arrow_type(type_.keyType), _arrow_type(type_.valueType))
    return schema_of([Field("only", DataType(type_.simpleString()))]).field(0).type
