"""The engines of a comparison: Tailrace, with its own queries or Spark's; Spark's stores; two floors without state.

An engine is a name, a set of confs and a heap; what it runs is a workload's query for it (``registry``).
"""

from __future__ import annotations

from tailrace.lab.registry import OURS, Engine, register

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
_COUNTS_ROWS = f"{_ROCKSDB}.trackTotalNumberOfRows"

ROCKSDB_CONFS = {
    _PROVIDER: f"{_STATE}.RocksDBStateStoreProvider",
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    _COUNTS_ROWS: "false",
    f"{_ROCKSDB}.blockCacheSizeMB": "1024",
    f"{_ROCKSDB}.writeBufferSizeMB": "64",
}
"""Changelogs instead of whole files, no lookup before each write, and a large cache and write buffers.

The cache and the buffers are of each task's store, outside the heap: they make large states about an eighth faster.
"""

MEMORY_CONFS = {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider"}


def counts_state_rows(engine: Engine) -> bool:
    """Whether the number of state rows that the engine reports means anything."""
    return engine.confs.get(_COUNTS_ROWS) != "false"


register(
    Engine(OURS, "Tailrace's state servers"),
    Engine("tailrace-plain", "the queries that are written for Spark, as they are, on Tailrace", ports="spark-rocksdb"),
    # The peers keep their state in or beside the JVM's heap: they get more of it than they need.
    Engine("spark-rocksdb", "Spark's RocksDB state store, with changelogs", ROCKSDB_CONFS, heap="4g"),
    Engine("spark-memory", "Spark's in-memory state store", MEMORY_CONFS, heap="6g"),
    Engine("shuffle-floor", "the rows shuffled by key to Python and back, without state", exact=False),
    Engine("transfer-floor", "the rows counted in Python, without shuffle or state", exact=False),
)
