"""WiredTiger: a B-tree with a page cache of its own (PyPI ``wiredtiger``), without a log.

It has no call for many keys, so a micro-batch is combined and its keys are gone through in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tailrace.lab.gadget.stores.combine.combined import CombinedStore
from tailrace.lab.gadget.stores.contract import BUILT, Settings, package


class WiredTigerStore(CombinedStore):
    name: ClassVar[str] = "wiredtiger"
    batch_note: ClassVar[str] = "combined; one call a key"

    def __init__(self, settings: Settings) -> None:
        wiredtiger = package("wiredtiger", BUILT)
        self._memory_bytes = settings.memory_bytes
        self._connection: Any = wiredtiger.wiredtiger_open(
            str(settings.folder), f"create,cache_size={settings.memory_bytes},log=(enabled=false)"
        )
        self._session = self._connection.open_session()
        self._session.create("table:held", "key_format=u,value_format=u")
        self._cursor = self._session.open_cursor("table:held", None, "overwrite=true")

    @property
    def memory(self) -> dict[str, int]:
        return {"cache": self._memory_bytes}

    def get(self, key: bytes) -> bytes | None:
        cursor = self._cursor
        cursor.set_key(key)
        if cursor.search() != 0:
            return None
        found: bytes = cursor.get_value()
        cursor.reset()
        return found

    def put(self, key: bytes, value: bytes) -> None:
        cursor = self._cursor
        cursor.set_key(key)
        cursor.set_value(value)
        cursor.insert()

    def merge(self, key: bytes, value: bytes) -> None:
        self.put(key, (self.get(key) or b"") + value)

    def delete(self, key: bytes) -> None:
        self._cursor.set_key(key)
        self._cursor.remove()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def write_many(
        self, puts: Sequence[tuple[bytes, bytes]], merges: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]
    ) -> None:
        for key, value in sorted(puts):
            self.put(key, value)
        for key in deletes:
            self.delete(key)

    def close(self) -> None:
        self._connection.close()
