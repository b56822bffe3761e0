"""BerkeleyDB: a B-tree with a page cache of its own (PyPI ``berkeleydb`` over Debian's library of version 5.3).

No transactions and no locks, as the paper's runs have it. It has no call for many keys that Python reaches, so a
micro-batch is combined and its keys are gone through in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tailrace.lab.gadget.stores.combine.combined import CombinedStore
from tailrace.lab.gadget.stores.contract import BUILT, Settings, package


class BerkeleyStore(CombinedStore):
    name: ClassVar[str] = "berkeleydb"
    batch_note: ClassVar[str] = "combined; one call a key"

    def __init__(self, settings: Settings) -> None:
        db = package("berkeleydb", BUILT).db
        self._memory_bytes = settings.memory_bytes
        self._db: Any = db.DB()
        self._db.set_cachesize(0, settings.memory_bytes, 1)
        self._db.set_pagesize(4096)
        self._db.open(str(settings.folder / "held.db"), dbtype=db.DB_BTREE, flags=db.DB_CREATE)
        self._gone: Any = db.DBNotFoundError

    @property
    def memory(self) -> dict[str, int]:
        return {"cache": self._memory_bytes}

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._db.get(key)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._db.put(key, value)

    def merge(self, key: bytes, value: bytes) -> None:
        self._db.put(key, (self._db.get(key) or b"") + value)

    def delete(self, key: bytes) -> None:
        try:
            self._db.delete(key)
        except self._gone:
            pass

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        get = self._db.get
        return [get(key) for key in keys]

    def write_many(
        self, puts: Sequence[tuple[bytes, bytes]], merges: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]
    ) -> None:
        put = self._db.put
        for key, value in sorted(puts):
            put(key, value)
        for key in deletes:
            self.delete(key)

    def close(self) -> None:
        self._db.close()
