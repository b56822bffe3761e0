"""Spark's types to Tailrace's names of them, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import types as spark_types

from tailrace.operators.spec import OperatorSpec
from tailrace.types import DataType, Field

_SPARK = {
    "tinyint": spark_types.ByteType(),
    "smallint": spark_types.ShortType(),
    "int": spark_types.IntegerType(),
    "bigint": spark_types.LongType(),
    "float": spark_types.FloatType(),
    "double": spark_types.DoubleType(),
    "boolean": spark_types.BooleanType(),
    "date": spark_types.DateType(),
    "timestamp": spark_types.TimestampType(),
    "timestamp_ntz": spark_types.TimestampNTZType(),
    "string": spark_types.StringType(),
    "binary": spark_types.BinaryType(),
}


def fields_of(schema: spark_types.StructType) -> tuple[Field, ...]:
    return tuple(Field(field.name, DataType(field.dataType.simpleString())) for field in schema.fields)


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take any name."""
    return "`" + name.replace("`", "``") + "`"


def spark_type(type_: DataType) -> spark_types.DataType:
    if (element := type_.element) is not None:
        return spark_types.ArrayType(spark_type(element))
    if (bounds := type_.bounds) is not None:
        return spark_types.StructType([spark_types.StructField(edge, spark_type(bounds)) for edge in ("start", "end")])
    if type_.packed is not None:
        return _nested_type(json.loads(type_.packed))
    if type_.is_decimal:
        return spark_types.DecimalType(type_.precision, type_.scale)
    return _SPARK[type_.name]


def _nested_type(described: object) -> spark_types.DataType:
    """As ``nested`` describes it."""
    if isinstance(described, str):
        return spark_type(DataType(described))
    assert isinstance(described, dict)
    ((kind, parts),) = described.items()
    if kind == "array":
        return spark_types.ArrayType(_nested_type(parts))
    if kind == "map":
        return spark_types.MapType(_nested_type(parts[0]), _nested_type(parts[1]))
    return spark_types.StructType([spark_types.StructField(name, _nested_type(part)) for name, part in parts])


def schema_of(fields: Iterable[Field]) -> spark_types.StructType:
    return spark_types.StructType([spark_types.StructField(field.name, spark_type(field.type)) for field in fields])


def output_schema(spec: OperatorSpec) -> spark_types.StructType:
    """The schema of the operator's output, as Spark sees it."""
    return schema_of(spec.emits)
