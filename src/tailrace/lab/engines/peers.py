"""The engines of a comparison: Tailrace, Spark's own stores, and two floors that keep no state.

An engine is a name, a set of confs and a heap; what it runs is a workload's query for it (``registry``).
"""

from __future__ import annotations

from tailrace.lab.registry import OURS, Engine, register

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
_COUNTS_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"

ROCKSDB_CONFS = {
    _PROVIDER: f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _COUNTS_ROWS: "false",
}
"""Changelogs instead of whole files, and no lookup before each write; cache and write buffers are Spark's defaults.

A block cache of 1 GB and write buffers of 64 MB make it about an eighth faster where states are large.
"""

MEMORY_CONFS = {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider"}


def counts_state_rows(engine: Engine) -> bool:
    """Whether the number of state rows that the engine reports means anything."""
    return engine.confs.get(_COUNTS_ROWS) != "false"


register(
    Engine(OURS, "Tailrace's state servers"),
    # The peers keep their state in or beside the JVM's heap: they get more of it than they need.
    Engine("spark-rocksdb", "Spark's RocksDB state store, with changelogs", ROCKSDB_CONFS, heap="4g"),
    Engine("spark-memory", "Spark's in-memory state store", MEMORY_CONFS, heap="6g"),
    Engine("shuffle-floor", "the rows shuffled by key to Python and back, without state", exact=False),
    Engine("transfer-floor", "the rows counted in Python, without shuffle or state", exact=False),
)
