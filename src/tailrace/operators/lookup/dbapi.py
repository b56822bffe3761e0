"""A lookup table behind a database module (PEP 249).

Such a module knows rows only as Python objects: this is the one place of the data path where Python sees single rows,
unless the module's cursors give Arrow tables (``fetch_arrow_table``), as some do.

Threads: any; as many connections as ask at once, kept for the next. A connection is used by one thread at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.errors import TableError
from tailrace.operators.lookup.backend import NOTHING_LOST, Answer, ConnectionLost, converted
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.user_code.code import loaded
from tailrace.state.rows.columns import arrow_type
from tailrace.types import Field

_LOST = ("OperationalError", "InterfaceError")
"""What PEP 249 calls troubles of the connection. The module is not known, so they are known by name."""


class SqlTable:
    """Asks by a query with one ``{keys}``, of which ``piece`` at a time, through connections that ``connect`` makes."""

    mapped = False

    def __init__(self, spec: LookupSpec, connect: Callable[[], Any], query: str, style: str, piece: int) -> None:
        self._spec, self._connect = spec, connect
        self._before, self._after = query.split("{keys}")
        self._style, self.piece = style, piece
        self._lock = threading.Lock()
        self._free: list[Any] = []

    def ask(self, keys: list[pa.Array]) -> Answer:
        asked = list(zip(*(key.to_pylist() for key in keys), strict=True))
        connection = None
        try:
            connection = self._connection()
            table = self._queried(connection, asked)
        except Exception as error:
            _close(connection)
            if _lost(error):
                self.close()
                raise ConnectionLost(f"{type(error).__name__}: {error}") from error
            raise
        with self._lock:
            self._free.append(connection)
        return self._answer(asked, table)

    def _queried(self, connection: Any, asked: list[tuple[Any, ...]]) -> pa.Table:
        cursor = connection.cursor()
        try:
            cursor.execute(self._before + self._places(len(asked)) + self._after, self._parameters(asked))
            names = [column[0] for column in cursor.description or ()]
            fields = [*self._spec.keys, *self._spec.values]
            at = {name.lower(): number for number, name in reversed(list(enumerate(names)))}
            missing = [field.name for field in fields if field.name.lower() not in at]
            if missing:
                raise TableError(
                    f"operator {self._spec.name}: its table's query gives no column {missing[0]!r}, but "
                    f"{', '.join(names) or 'none'}: name it in the query, as in 'select ... as {missing[0]}'. "
                    f"{NOTHING_LOST}"
                )
            if hasattr(cursor, "fetch_arrow_table"):
                whole = cursor.fetch_arrow_table()
                columns = [whole.column(at[field.name.lower()]).combine_chunks() for field in fields]
            else:
                rows = list(zip(*cursor.fetchall(), strict=True))
                columns = [_column(rows[at[field.name.lower()]] if rows else (), field) for field in fields]
        finally:
            cursor.close()
        shown = self._spec.table.shown
        made = [converted(_flat(one), field.type, field.name, shown) for one, field in zip(columns, fields)]
        return pa.table(made, names=[str(number) for number in range(len(made))])

    def _answer(self, asked: list[tuple[Any, ...]], table: pa.Table) -> Answer:
        width = len(self._spec.keys)
        given = list(zip(*(table.column(n).to_pylist() for n in range(width)), strict=True))
        rows = {key: number for number, key in enumerate(given)}
        if len(rows) < len(given):
            twice = next(key for number, key in enumerate(given) if rows[key] != number)
            raise TableError(
                f"operator {self._spec.name}: its table's query gives more than one row for key {twice!r}, and a "
                f"lookup table has one: make the query give one, for example with group by. {NOTHING_LOST}"
            )
        at = [rows.get(key) for key in asked]
        order = pa.array(at, pa.int64())
        values = [table.column(width + n).take(order).combine_chunks() for n in range(len(self._spec.values))]
        return Answer(np.array([number is not None for number in at], bool), values)

    def _places(self, count: int) -> str:
        width = len(self._spec.keys)
        numbers = range(count * width)
        marks = {
            "qmark": lambda n: "?",
            "format": lambda n: "%s",
            "numeric": lambda n: f":{n + 1}",
            "named": lambda n: f":p{n}",
            "pyformat": lambda n: f"%(p{n})s",
        }
        each = [marks[self._style](n) for n in numbers]
        if width == 1:
            return ", ".join(each)
        return ", ".join(f"({', '.join(each[n : n + width])})" for n in range(0, len(each), width))

    def _parameters(self, asked: list[tuple[Any, ...]]) -> Any:
        values = [value for key in asked for value in key]
        return {f"p{n}": value for n, value in enumerate(values)} if self._style in ("named", "pyformat") else values

    def _connection(self) -> Any:
        with self._lock:
            if self._free:
                return self._free.pop()
        return self._connect()

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            _close(connection)


class DbApiTable(SqlTable):
    """One whose module only the user knows."""

    def __init__(self, spec: LookupSpec, options: dict[str, Any], folder: str = "") -> None:
        connect = loaded(spec.table.code, spec.name, "the function connect of its table")
        super().__init__(spec, connect, options["query"], options["paramstyle"], int(options["batch"]))


def _lost(error: Exception) -> bool:
    named = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError) or not named.isdisjoint(_LOST)


def _close(connection: Any) -> None:
    try:
        if connection is not None:
            connection.close()
    except Exception:
        pass  # it is of no use any more, whatever it says


def _column(values: tuple[Any, ...], field: Field) -> pa.Array:
    wanted = arrow_type(field.type)
    try:
        return pa.array(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values)  # of the type that they have: casting says what is wrong


def _flat(column: Any) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.cast(pa.large_string()) if pa.types.is_string(array.type) else array
