"""Checks what a user asks of a join with a lookup table."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.api.checks.join import JoinInput
from tailrace.api.columns import CANNOT_BE_PASSED_ON, check_kept, check_key, check_names, resolve, unquoted
from tailrace.api.relations import Lookup
from tailrace.api.tables import LookupTable
from tailrace.api.windows import AnyWindow, CountWindow
from tailrace.errors import AnalysisError
from tailrace.types import DataType, Field

_HOW = {"inner": False, "left": True, "leftouter": True, "left_outer": True}
_NO_TEXT = ("timestamp", "timestamp_ntz")


def lookup_join(
    stream: JoinInput,
    brought_window: AnyWindow | None,
    table: LookupTable,
    columns: tuple[Field, ...],
    on: Sequence[str],
    how: object,
) -> Lookup:
    """``columns``: the table's, by its schema or its files; the keys may be among them."""
    outer = _HOW.get(how.strip().lower()) if isinstance(how, str) else None
    if outer is None:
        raise AnalysisError(f"join: with a lookup table, how must be 'inner' or 'left_outer', but is {how!r}")
    if brought_window is not None and not isinstance(brought_window, CountWindow):
        raise AnalysisError(
            f"join: these rows come with a window, {brought_window.name!r}, which cannot be kept beside a row: join "
            f"the table before you group, or in foreachBatch"
        )
    keys = tuple(resolve(name, stream.schema, "join: on, in the stream") for name in on)
    table_keys = {unquoted(name).lower() for name in table.keys}
    if {key.name.lower() for key in keys} != table_keys or len(keys) != len(table.keys):
        raise AnalysisError(
            f"join: a lookup table is asked by its key, which is {', '.join(table.keys)}, but on is "
            f"{', '.join(on)}: give the columns of the stream these names first"
        )
    by_name = {key.name.lower(): key for key in keys}
    keys = tuple(by_name[unquoted(name).lower()] for name in table.keys)
    for key in keys:
        check_key(key, "join", "a key")
        if table.text_keys and key.type.name in _NO_TEXT:
            raise AnalysisError(
                f"join: key {key.name!r} is a {key.type}, which has no one text to be a key of {table.shown}: make "
                f"it a string first, for example with F.date_format"
            )
    values = _values(table, columns, keys)
    rest = tuple(field for field in stream.schema if field not in keys)
    check_kept((*rest, *values), "join: column", CANNOT_BE_PASSED_ON)
    check_names([field.name for field in (*keys, *rest, *values)])
    return Lookup(stream.source, stream.schema, stream.watermark, keys, rest, values, table, outer)


def _values(table: LookupTable, columns: tuple[Field, ...], keys: tuple[Field, ...]) -> tuple[Field, ...]:
    """The table's columns beside its keys, those that are wanted, in order."""
    by_name = {key.name.lower(): key for key in keys}
    for field in columns:
        key = by_name.get(field.name.lower())
        if key is not None and not _comparable(field.type, key.type):
            raise AnalysisError(
                f"join: key {key.name!r} is a {key.type} in the stream and a {field.type} in the table: cast it first"
            )
    missing = [key.name for key in keys if key.name.lower() not in {field.name.lower() for field in columns}]
    if missing and table.schema is None:
        raise AnalysisError(
            f"join: {table.shown} has no column {missing[0]!r}, which is to be its key; its columns are: "
            f"{', '.join(field.name for field in columns)}"
        )
    values = tuple(field for field in columns if field.name.lower() not in by_name)
    if table.columns is not None:
        wanted = dict.fromkeys(resolve(name, columns, "table.parquet: columns") for name in table.columns)
        values = tuple(field for field in wanted if field in values)
    if not values:
        raise AnalysisError(f"join: {table.shown} has no column beside its key, so there is nothing to look up")
    if table.one_value is not None and len(values) > 1:
        raise AnalysisError(
            f"{table.shown}: a value is the text of one column, and the schema has {len(values)}: {table.one_value}"
        )
    return values


def _comparable(table: DataType, stream: DataType) -> bool:
    """Whether keys of the table can be brought to the stream's type without becoming other ones."""
    return table == stream or (table.is_integer and stream.is_integer)
