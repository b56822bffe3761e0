"""Schemas of a test's rows, as a user writes them, without the session that reads them elsewhere."""

from __future__ import annotations

import re

from pyspark.sql import types as spark_types

from tailrace.errors import AnalysisError
from tailrace.spark.sources.schema import spark_type
from tailrace.types import DataType

_ALIASES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float"}
_COLUMN = re.compile(r"\s*`?(\w+)`?\s*:?\s+([a-zA-Z_]+)\s*(\(\s*\d+\s*(?:,\s*\d+\s*)?\))?\s*", re.ASCII)


def struct_of(schema: object) -> spark_types.StructType:
    """As the session would read it; a text of plain types needs none."""
    if isinstance(schema, spark_types.StructType):
        return schema
    if not isinstance(schema, str):
        raise AnalysisError(f"a schema is a text ('user string, n bigint') or a StructType, but got {schema!r}")
    made, at = spark_types.StructType(), 0
    while at < len(schema):
        found = _COLUMN.match(schema, at)
        if found is None or schema[found.end() : found.end() + 1] not in ("", ","):
            raise AnalysisError(
                f"schema {schema!r} cannot be read without a Spark session: write plain columns ('user string, n "
                f"bigint'), or give a StructType"
            )
        made.add(found.group(1), _type(found.group(2).lower(), found.group(3) or "", schema))
        at = found.end() + 1
    return made


def _type(name: str, arguments: str, schema: str) -> spark_types.DataType:
    arguments = re.sub(r"\s", "", arguments)
    if name in ("decimal", "dec", "numeric"):
        name, arguments = "decimal", arguments or "(10,0)"
        arguments = arguments if "," in arguments else arguments.replace(")", ",0)")
    plain = DataType(_ALIASES.get(name, name) + arguments)
    if plain.kind is None:
        raise AnalysisError(f"schema {schema!r}: {plain} cannot be read without a Spark session: give a StructType")
    return spark_type(plain)
