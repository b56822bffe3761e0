"""Which stores there are, by name, and what can be opened on this machine."""

from __future__ import annotations

from tailrace.errors import TailraceError
from tailrace.lab.gadget.stores.berkeleydb import BerkeleyStore
from tailrace.lab.gadget.stores.contract import Store
from tailrace.lab.gadget.stores.hash_log.store import HashLogStore
from tailrace.lab.gadget.stores.lmdb import LmdbStore
from tailrace.lab.gadget.stores.plain import DictionaryStore
from tailrace.lab.gadget.stores.redis import RedisStore
from tailrace.lab.gadget.stores.rocksdb.store import DeleteTriggeredStore, RocksStore
from tailrace.lab.gadget.stores.spark.stores import SparkMemoryStore, SparkRocksStore
from tailrace.lab.gadget.stores.sqlite import SqliteStore
from tailrace.lab.gadget.stores.tailrace import AlignedConnector, ReadModifyWriteConnector, UnalignedConnector
from tailrace.lab.gadget.stores.wiredtiger import WiredTigerStore

TAILRACE: tuple[type[Store], ...] = (ReadModifyWriteConnector, AlignedConnector, UnalignedConnector)
_ALL: tuple[type[Store], ...] = (
    RocksStore,
    DeleteTriggeredStore,
    BerkeleyStore,
    LmdbStore,
    WiredTigerStore,
    HashLogStore,
    RedisStore,
    SqliteStore,
    SparkRocksStore,
    SparkMemoryStore,
    DictionaryStore,
    *TAILRACE,
)
STORES = {one.name: one for one in _ALL}


def store_class(name: str) -> type[Store]:
    found = STORES.get(name)
    if found is None:
        raise TailraceError(f"no store is called {name!r}; there are {', '.join(STORES)}")
    return found
