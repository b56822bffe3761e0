"""RocksDB with a lazy merge operator, and the same with compaction triggered by deletes.

Merges are operands that RocksDB appends when a value is read or compacted (``StringAppendOperator``, without a
delimiter): writing one reads nothing, which is what makes RocksDB good at holistic windows. `rocksdb_library` is how
it is reached.

Lethe (Sarkar et al., SIGMOD 2020) has no public code. What is here has its aim, that what is deleted does not stay for
long, by RocksDB's own means: a table in which, of 128 neighbouring entries, 64 are deletes is marked for compaction.

A micro-batch is combined: one multi-get, and one write batch, which is filled in a compiled loop. The log is off.

Threads: any number at once; each has a write batch of its own.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_char_p, c_size_t
from typing import Any, ClassVar

import numba
import numpy as np

from tailrace.lab.gadget.stores.combine import kernels as ck
from tailrace.lab.gadget.stores.combine.combine import Combiner, Plan
from tailrace.lab.gadget.stores.contract import Batch, Settings, Store, Values
from tailrace.lab.gadget.stores.rocksdb.library import check, options, rocksdb

_njit: Any = numba.njit


class RocksStore(Store):
    name: ClassVar[str] = "rocksdb"
    batch_note: ClassVar[str] = "combined; one multi-get and one write batch"
    concurrent: ClassVar[bool] = True
    _deletes: ClassVar[tuple[int, int]] = (0, 0)
    """So many deletes among so many neighbours have a table compacted; none where 0."""

    def __init__(self, settings: Settings) -> None:
        self._library = rocksdb()
        self._cache_bytes = settings.memory_bytes // 4
        self._buffer_bytes = (settings.memory_bytes - self._cache_bytes) // 2
        text = (
            "create_if_missing=true;merge_operator={id=stringappend;delimiter=};compression=kNoCompression;"
            f"write_buffer_size={self._buffer_bytes};max_write_buffer_number=2;max_background_jobs=2;"
            f"block_based_table_factory={{block_cache={self._cache_bytes};filter_policy=bloomfilter:10:false}};"
        )
        made = options(self._library, text)
        if self._deletes[0]:
            window, deletes = self._deletes[1], self._deletes[0]
            self._library.rocksdb_options_add_compact_on_deletion_collector_factory(made, window, deletes)
        error = c_char_p()
        self._db = self._library.rocksdb_open(made, str(settings.folder).encode(), byref(error))
        self._library.rocksdb_options_destroy(made)
        check(error)
        self._writing = self._library.rocksdb_writeoptions_create()
        self._library.rocksdb_writeoptions_disable_WAL(self._writing, 1)
        self._reading = self._library.rocksdb_readoptions_create()
        self._own = threading.local()  # what a thread puts its micro-batches together in
        self._batches: list[Any] = []
        self._fill = _filler(self._library)
        self._error = c_char_p()
        self._error_at = byref(self._error)

    @property
    def memory(self) -> dict[str, int]:
        return {"memtables": 2 * self._buffer_bytes, "block cache": self._cache_bytes}

    def get(self, key: bytes) -> bytes | None:
        size = c_size_t()
        found = self._library.rocksdb_get(self._db, self._reading, key, len(key), byref(size), self._error_at)
        if not found:
            check(self._error)
            return None
        value = ctypes.string_at(found, size.value)
        self._library.rocksdb_free(found)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        self._library.rocksdb_put(self._db, self._writing, key, len(key), value, len(value), self._error_at)
        check(self._error)

    def merge(self, key: bytes, value: bytes) -> None:
        self._library.rocksdb_merge(self._db, self._writing, key, len(key), value, len(value), self._error_at)
        check(self._error)

    def delete(self, key: bytes) -> None:
        self._library.rocksdb_delete(self._db, self._writing, key, len(key), self._error_at)
        check(self._error)

    def run(self, batch: Batch) -> Values:
        if not hasattr(self._own, "combiner"):
            self._own.combiner, self._own.batch = Combiner(), self._library.rocksdb_writebatch_create()
            self._batches.append(self._own.batch)
        plan: Plan = self._own.combiner.plan(batch)
        writing = self._own.batch
        names = [batch.names[key] for key in plan.names.tolist()]
        keys = np.frombuffer(b"".join(names), np.uint8)
        sizes = np.fromiter(map(len, names), np.uint64, len(names))
        places = keys.ctypes.data + np.cumsum(sizes) - sizes
        read = plan.to_read()
        answers = plan.answers(read, self._many(places[read], sizes[read]))
        written = np.flatnonzero(plan.writes != ck.NOTHING)
        if len(written):
            values = plan.written(written)
            self._library.rocksdb_writebatch_clear(writing)
            self._fill(
                writing,
                plan.writes[written],
                places[written],
                sizes[written],
                values.sizes,
                values.data.ctypes.data,
            )
            self._library.rocksdb_write(self._db, self._writing, writing, self._error_at)
            check(self._error)
        return answers

    def _many(self, places: np.ndarray, sizes: np.ndarray) -> Values:
        count = len(places)
        found, lengths, errors = (np.zeros(count, np.uint64) for _ in range(3))
        addresses = (array.ctypes.data for array in (places, sizes, found, lengths, errors))
        self._library.rocksdb_multi_get(self._db, self._reading, count, *addresses)
        wrong = errors[errors != 0]
        if len(wrong):
            check(c_char_p(ctypes.string_at(int(wrong[0]))))
        return _copied(found, lengths, self._library)

    def close(self) -> None:
        if self._db:
            for one in self._batches:
                self._library.rocksdb_writebatch_destroy(one)
            self._library.rocksdb_readoptions_destroy(self._reading)
            self._library.rocksdb_writeoptions_destroy(self._writing)
            self._library.rocksdb_close(self._db)
            self._db = None


class DeleteTriggeredStore(RocksStore):
    name: ClassVar[str] = "lethe-like"
    _deletes: ClassVar[tuple[int, int]] = (64, 128)


_compiled: dict[str, Any] = {}


def _filler(library: Any) -> Any:
    """Compiled once a process: it calls the library where that lies in this process's memory."""
    if "fill" not in _compiled:
        put, merge, delete = (getattr(library, f"rocksdb_writebatch_{name}") for name in ("put", "merge", "delete"))

        @_njit(nogil=True)
        def fill(batch, writes, keys, key_sizes, sizes, value):  # type: ignore[no-untyped-def]
            for i in range(len(writes)):
                if writes[i] == ck.PUT:
                    put(batch, keys[i], key_sizes[i], value, sizes[i])
                elif writes[i] == ck.MERGE:
                    merge(batch, keys[i], key_sizes[i], value, sizes[i])
                else:
                    delete(batch, keys[i], key_sizes[i])
                value += sizes[i]

        _compiled["fill"] = fill
    return _compiled["fill"]


def _copied(found: np.ndarray, lengths: np.ndarray, library: Any) -> Values:
    """Values that the library has handed out, which get it back."""
    if "gather" not in _compiled:
        free = library.rocksdb_free
        move = ctypes.CDLL(None).memcpy
        move.argtypes, move.restype = (ctypes.c_void_p, ctypes.c_void_p, c_size_t), ctypes.c_void_p

        @_njit(nogil=True)
        def gather(found, lengths, target):  # type: ignore[no-untyped-def]
            for i in range(len(found)):
                if found[i] != 0:
                    move(target, found[i], lengths[i])
                    target += lengths[i]
                    free(found[i])

        _compiled["gather"] = gather
    there = found != 0
    sizes = np.where(there, lengths.astype(np.int64), -1)
    data = np.empty(int(lengths[there].sum()), np.uint8)
    _compiled["gather"](found, lengths, np.uint64(data.ctypes.data))
    return Values(sizes, data)
