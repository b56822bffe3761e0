"""Arrow schemas as Spark schemas. Spark's own conversion reads a timestamp without a zone as one with a zone."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

_PLAIN: dict[pa.DataType, T.DataType] = {
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.bool_(): T.BooleanType(),
    pa.string(): T.StringType(),
    pa.large_string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.large_binary(): T.BinaryType(),
    pa.date32(): T.DateType(),
}


def spark_type(type_: pa.DataType) -> T.DataType:
    if pa.types.is_timestamp(type_):
        return T.TimestampNTZType() if type_.tz is None else T.TimestampType()
    if pa.types.is_decimal(type_):
        return T.DecimalType(type_.precision, type_.scale)
    if type_ not in _PLAIN:
        known = ", ".join(map(str, _PLAIN))
        raise TypeError(f"a scripted column cannot be {type_}; it can be {known}, decimal, timestamp")
    return _PLAIN[type_]


def spark_schema(schema: pa.Schema) -> T.StructType:
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in schema])
