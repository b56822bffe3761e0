"""LMDB: a copy-on-write B+ tree in a mapped file (PyPI ``lmdb``).

One write transaction is open all the time and committed after every thousand writes, or at the end of a micro-batch. It
has no cache of its own: pages are the system's, so the memory setting has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tailrace.errors import TailraceError
from tailrace.lab.gadget.stores.combine.combined import CombinedStore
from tailrace.lab.gadget.stores.contract import Settings, package

_WRITES = 1000
_FILE_BYTES = 8 << 30


class LmdbStore(CombinedStore):
    name: ClassVar[str] = "lmdb"
    batch_note: ClassVar[str] = "combined; getmulti, putmulti and deletes in one transaction"

    def __init__(self, settings: Settings) -> None:
        lmdb = package("lmdb", "`pip install tailrace[lab]`")
        self._environment: Any = lmdb.open(
            str(settings.folder), map_size=_FILE_BYTES, sync=False, metasync=False, writemap=True, map_async=True,
            lock=False, max_spare_txns=1,
        )  # fmt: skip
        longest = self._environment.max_key_size()
        if settings.key_bytes > longest:
            self._environment.close()
            raise TailraceError(f"LMDB has keys of at most {longest} bytes, and some here have {settings.key_bytes}")
        self._begin()

    def _begin(self) -> None:
        self._transaction: Any = self._environment.begin(write=True)
        self._left = _WRITES

    @property
    def memory(self) -> dict[str, int]:
        return {}

    def _wrote(self) -> None:
        self._left -= 1
        if not self._left:
            self._transaction.commit()
            self._begin()

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._transaction.get(key)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value)
        self._wrote()

    def merge(self, key: bytes, value: bytes) -> None:
        self._transaction.put(key, self._transaction.get(key, b"") + value)
        self._wrote()

    def delete(self, key: bytes) -> None:
        self._transaction.delete(key)
        self._wrote()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._transaction.cursor() as cursor:
            found = dict(cursor.getmulti(keys))
        return [found.get(key) for key in keys]

    def write_many(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]) -> None:
        with self._transaction.cursor() as cursor:
            cursor.putmulti(sorted(puts))
        for key in deletes:
            self._transaction.delete(key)
        self._transaction.commit()
        self._begin()

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()
