"""Rows as JSON objects, column by column: no Python for each row.

Nulls are written as ``null``, times in UTC as ``2026-01-02T03:04:05.678901Z``, numbers that JSON does not have as texts
(``"NaN"``). Pure functions over Arrow.
"""

from __future__ import annotations

import json
from functools import reduce
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import AnalysisError

_COMMON = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OTHERS = {chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in _COMMON}
_ANY_OTHER = "[\\x00-\\x1f]"


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """An object for each row, with all columns."""
    names = batch.schema.names
    return _objects(names, [_value(column) for column in batch.columns], batch.num_rows)


def check_json(schema: pa.Schema) -> None:
    """Refuses columns that have no form in JSON."""
    for field in schema:
        try:
            _value(pa.array([], field.type))
        except AnalysisError as error:
            raise AnalysisError(f"column {field.name!r} {error}") from None


def _objects(names: list[str], values: list[pa.Array], rows: int) -> pa.Array:
    if not names:
        return pa.array(["{}"] * rows, pa.string())
    keys = [f"{'{' if number == 0 else ','}{json.dumps(name)}:" for number, name in enumerate(names)]
    return pc.binary_join_element_wise(*chain.from_iterable(zip(keys, values, strict=True)), "}", "")


def _value(column: pa.Array) -> pa.Array:
    """The texts of the values, none of them null."""
    return pc.fill_null(_texts(column), "null")


def _texts(column: pa.Array) -> pa.Array:
    type_ = column.type
    if pa.types.is_string(type_):
        return _quoted(_escaped(column))
    if pa.types.is_floating(type_):
        texts = column.cast(pa.string())
        named = pc.case_when(
            pc.make_struct(pc.is_nan(column), pc.is_inf(column)),
            pa.scalar('"NaN"'),
            pc.if_else(pc.less(column, 0), '"-Infinity"', '"Infinity"'),
            texts,
        )
        return pc.if_else(pc.is_valid(column), named, pa.scalar(None, pa.string()))
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return column.cast(pa.string())
    if pa.types.is_timestamp(type_):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    if pa.types.is_date(type_):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        texts = _objects(names, [_value(each) for each in column.flatten()], len(column))
        return pc.if_else(pc.is_valid(column), texts, pa.scalar(None, pa.string()))
    if pa.types.is_list(type_):
        lists = pa.ListArray.from_arrays(column.offsets, _value(column.values))
        texts = pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
        return pc.if_else(pc.is_valid(column), texts, pa.scalar(None, pa.string()))
    raise AnalysisError(f"is {type_}, which has no form in JSON: make a text or a number of it before")


def _escaped(column: pa.Array) -> pa.Array:
    def replaced(texts: pa.Array, pair: tuple[str, str]) -> pa.Array:
        return pc.replace_substring(texts, *pair)

    made = reduce(replaced, _COMMON.items(), column)
    rare = pc.any(pc.match_substring_regex(made, _ANY_OTHER)).as_py()
    return reduce(replaced, _OTHERS.items(), made) if rare else made


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
