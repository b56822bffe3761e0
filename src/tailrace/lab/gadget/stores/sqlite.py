"""SQLite: a B-tree in a file, from Python's own library, as a table of keys and values without row numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import ClassVar

from tailrace.lab.gadget.stores.combine.combined import CombinedStore
from tailrace.lab.gadget.stores.contract import Settings

_GET = "SELECT value FROM held WHERE key = ?"
_PUT = "INSERT INTO held VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_MERGE = "INSERT INTO held VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = CAST(value || excluded.value AS BLOB)"
_DELETE = "DELETE FROM held WHERE key = ?"
_WRITES = 1000
_NAMES_MAX = 500
"""In one statement."""


class SqliteStore(CombinedStore):
    name: ClassVar[str] = "sqlite"
    batch_note: ClassVar[str] = "combined; SELECT ... IN and executemany in one transaction"
    appends = True

    def __init__(self, settings: Settings) -> None:
        self._memory_bytes = settings.memory_bytes
        self._line = sqlite3.connect(settings.folder / "held.db", isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{settings.memory_bytes >> 10}"):
            self._line.execute(f"PRAGMA {pragma}").fetchall()
        self._line.execute("CREATE TABLE held (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self._begin()

    def _begin(self) -> None:
        self._line.execute("BEGIN")
        self._left = _WRITES

    def _wrote(self) -> None:
        self._left -= 1
        if not self._left:
            self._line.execute("COMMIT")
            self._begin()

    @property
    def memory(self) -> dict[str, int]:
        return {"cache": self._memory_bytes}

    def get(self, key: bytes) -> bytes | None:
        found = self._line.execute(_GET, (key,)).fetchone()
        return None if found is None else found[0]

    def put(self, key: bytes, value: bytes) -> None:
        self._line.execute(_PUT, (key, value))
        self._wrote()

    def merge(self, key: bytes, value: bytes) -> None:
        self._line.execute(_MERGE, (key, value))
        self._wrote()

    def delete(self, key: bytes) -> None:
        self._line.execute(_DELETE, (key,))
        self._wrote()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        for first in range(0, len(keys), _NAMES_MAX):
            part = keys[first : first + _NAMES_MAX]
            marks = ",".join("?" * len(part))
            found.update(self._line.execute(f"SELECT key, value FROM held WHERE key IN ({marks})", part))
        return [found.get(key) for key in keys]

    def write_many(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]) -> None:
        self._line.executemany(_PUT, puts)
        self._line.executemany(_DELETE, [(key,) for key in deletes])
        self._line.execute("COMMIT")
        self._begin()

    def close(self) -> None:
        self._line.close()
