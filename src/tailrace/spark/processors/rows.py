"""Rows of a batch of keys as PySpark's ``Row``, and rows that a user's function gives as Arrow.

Threads: pure but for ``RowOutput``, which belongs to one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row


def values_of(table: pa.Table, timezone: str) -> list[tuple[Any, ...]]:
    """The rows as tuples of Python's values; times are aware of the session's zone, as in Spark."""
    columns = [_zoned(column, timezone).to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


class KeyRows:
    def __init__(self, rows: pa.Table, timezone: str) -> None:
        self._row = Row(*rows.column_names)
        self._values = values_of(rows, timezone)

    def rows(self, low: int, high: int) -> Iterator[Row]:
        for values in self._values[low:high]:
            yield self._row(*values)

    def row(self, number: int) -> Row:
        return self._row(*self._values[number])


class RowOutput:
    """Rows that a function gives, held to a schema by their names. A time without a zone is in UTC, as in Spark."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = list(schema.names)
        self._rows: list[Sequence[Any]] = []

    def add(self, row: object) -> None:
        if not isinstance(row, Row):
            raise TypeError(f"each result must be a pyspark.sql.Row, but one is a {type(row).__name__}: {row!r}")
        if getattr(row, "__fields__", None) == self._names:
            self._rows.append(row)
        else:
            named = row.asDict(True)
            self._rows.append([named.get(name) for name in self._names])

    def table(self) -> pa.Table:
        if not self._rows:
            return self._schema.empty_table()
        columns = zip(*self._rows, strict=True)
        arrays = [_array(values, field) for values, field in zip(columns, self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _array(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TypeError(f"column {field.name!r} of a result has a value that is no {field.type}: {error}") from error


def _zoned(column: pa.ChunkedArray, timezone: str) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp("us", timezone))
    return column
