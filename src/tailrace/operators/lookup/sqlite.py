"""A lookup table in a SQLite file, which all executors can read. It is opened for reading only.

Threads: as for every SQL table, see ``dbapi``.
"""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import quote

from tailrace.operators.lookup.dbapi import SqlTable
from tailrace.operators.lookup.spec import LookupSpec

_PIECE = 400
"""SQLite takes a thousand parameters of a query at least: this leaves room for two key columns."""


class SqliteTable(SqlTable):
    def __init__(self, spec: LookupSpec, options: dict[str, Any], folder: str = "") -> None:
        address = f"file:{quote(options['path'])}?mode=ro"
        keys, values = ([_quoted(field.name) for field in fields] for fields in (spec.keys, spec.values))
        asked = keys[0] if len(keys) == 1 else f"({', '.join(keys)})"
        places = "{keys}" if len(keys) == 1 else "values {keys}"
        columns, table = ", ".join([*keys, *values]), _quoted(options["table"])
        query = f"select {columns} from {table} where {asked} in ({places})"
        piece = max(1, 2 * _PIECE // max(2, len(keys)))
        super().__init__(
            spec, lambda: sqlite3.connect(address, uri=True, check_same_thread=False), query, "qmark", piece
        )


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
