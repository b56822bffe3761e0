"""Compare an output with what the oracle expects. Everything exactly, doubles within a tolerance.

A double may differ by rounding, because the order in which rows are added is not fixed. The error of a sum is bounded
by the size of what was added, not by the size of the result, so the caller gives the largest magnitude that went in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

SHOWN_MAX = 8
"""Differences listed in a message: enough to see the pattern, few enough to read."""


def plain(value: Any) -> Any:
    """A value of ``to_pylist`` in a form that can be a dictionary key and that prints itself."""
    if isinstance(value, Mapping):
        return tuple(plain(part) for part in value.values())
    return value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dictionaries, times as integers (Python's own times end at year 9999 and start at year 1)."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns[name] = [plain(value) for value in _integers(column).to_pylist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(_untimed(column.type))


def _untimed(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _untimed(part.type)) for part in type_])
    if pa.types.is_list(type_):
        return pa.list_(_untimed(type_.value_type))
    return type_


def same(left: Any, right: Any, scale: float = 0.0) -> bool:
    """Whether two values are equal; doubles within 1e-9 of their own size or of ``scale``."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        if math.isinf(left) or math.isinf(right):
            return left == right
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9 * scale)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left == right and left.as_tuple().exponent == right.as_tuple().exponent
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b, scale) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)


def differences(
    actual: pa.Table, wanted: pa.Table, group: Sequence[str], scales: Mapping[str, float] | None = None
) -> list[str]:
    """What differs between two outputs, in words; empty where they agree. ``group`` names the columns of the group.

    The order of rows is free. The order, names and types of columns are not.
    """
    found = []
    if actual.column_names != wanted.column_names:
        return [f"columns are {actual.column_names}, expected {wanted.column_names}"]
    for name in wanted.column_names:
        if not _same_type(actual.schema.field(name).type, wanted.schema.field(name).type):
            found.append(f"{name} has type {actual.schema.field(name).type}, expected {wanted.schema.field(name).type}")
    if found:
        return found
    got: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows_of(actual):
        key = tuple(row[name] for name in group)
        if key in got:
            found.append(f"group {key} is output twice: {got[key]} and {row}")
        got[key] = row
    for row in rows_of(wanted):
        key = tuple(row[name] for name in group)
        mine = got.pop(key, None)
        if mine is None:
            found.append(f"group {key} is missing; expected {row}")
            continue
        for name, value in row.items():
            if not same(mine[name], value, (scales or {}).get(name, 0.0)):
                found.append(f"group {key}: {name} is {mine[name]!r}, expected {value!r}")
    found.extend(f"group {key} is not expected: {row}" for key, row in got.items())
    return found


def _same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Spark's Arrow types, where only how a struct's parts may be null is left open."""
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        return [p.name for p in left] == [p.name for p in right] and all(
            _same_type(a.type, b.type) for a, b in zip(left, right, strict=True)
        )
    if pa.types.is_list(left) and pa.types.is_list(right):
        return _same_type(left.value_type, right.value_type)
    return bool(left == right)


def describe(found: Sequence[str]) -> str:
    """A message for an assertion."""
    more = [f"... and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
    return "\n".join([*found[:SHOWN_MAX], *more])
