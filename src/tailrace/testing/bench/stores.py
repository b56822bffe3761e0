"""The three state stores by themselves: Arrow batches in, Arrow batches out, without Spark, servers or checkpoints.

For measuring and comparing them; a query never needs this. A store lives in files without a name in a folder of the
caller's and is gone when it is closed. Every batch is an epoch of its own, and none can be undone once the next one is
there. What is no work of a store, packing and hashing rows, is done ahead by ``prepared`` and is in none of its costs.

>>> rows = pa.record_batch({"bidder": pa.array([7, 7]), "price": pa.array([30, 10])})
>>> with AppendUnaligned(rows.schema, ["bidder"], folder="/tmp", memory_bytes=1 << 20) as store:
...     store.append(store.prepared(rows, windows=np.array([0, 0]), expected=np.array([50, 60])))
...     taken = store.take(store.lists(rows.slice(0, 1), windows=np.array([0])))
...     table_of([taken])["price"].to_pylist()
[30, 10]

Threads: one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.frame import shard_order
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import PANE, Merge, RecordLayout, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows, plain
from tailrace.state.sections.sections import to_section
from tailrace.state.tuning import DEFAULT_TUNING, Tuning
from tailrace.types import BIGINT, DataType, Field

SHARDS = 64
_TYPES = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


@dataclass(frozen=True)
class Costs:
    """What a store has done since it was made. Processor time is that of all threads."""

    write_cpu_s: float = 0.0
    read_cpu_s: float = 0.0
    """Of reading and removing."""
    compaction_cpu_s: float = 0.0
    """In neither of the other two."""
    compactions: int = 0
    hits: int = 0
    """Lists with rows on disk that were in memory before they were asked for."""
    misses: int = 0
    """Those that were not."""
    index_scans: int = 0
    """Readings of an index on disk, to find lists."""
    bytes_read: int = 0
    bytes_written: int = 0

    def __sub__(self, other: Costs) -> Costs:
        return Costs(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Prepared:
    """Rows of one epoch, packed and sorted by shard."""

    rows: Rows
    bounds: np.ndarray
    expected: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Lists:
    """Names of lists: keys and windows. ``lists[2:5]`` are some of them."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Lists:
        return Lists(Rows(self.rows.words[part], self.rows.heap))


@dataclass(frozen=True)
class Taken:
    """Rows, or records, that a store has handed out."""

    rows: Rows
    layout: RecordLayout
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)


def table_of(taken: Sequence[Taken]) -> pa.Table:
    """All of it as one table; ``window`` is where a row's window begins."""
    layout, names = taken[0].layout, taken[0].names
    section = to_section(concat_rows([one.rows for one in taken], layout), layout)
    return pa.Table.from_batches([section]).drop_columns(["__hash"]).rename_columns(["window", *names])


_AnyStore = TypeVar("_AnyStore", AppendUnalignedStore, AppendAlignedStore, ReadModifyWriteStore)


class _Store(Generic[_AnyStore]):
    _store: _AnyStore

    def __init__(self, schema: pa.Schema, keys: Sequence[str], kept: Sequence[tuple[Merge, DataType]]) -> None:
        self._keys = [Field(name, _type(schema, name)) for name in keys]
        self._values = [Field(name, _type(schema, name)) for name in schema.names if name not in keys]
        self.layout = record_layout(self._keys, kept, ansi=False)
        self._hashes = hash_program(self.layout)
        self._epoch = -1
        self._write_cpu_s = self._read_cpu_s = 0.0

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in (*self._keys, *self._values))

    def _packed(self, rows: pa.RecordBatch, windows: np.ndarray, values: bool) -> Rows:
        builder = RowsBuilder(len(rows), self.layout)
        builder.words[:, PANE] = windows
        for key, place in zip(self._keys, self.layout.keys, strict=True):
            builder.put(rows.column(key.name), key.type, place.word, place.bit)
        if values:
            self._put_values(builder, rows)
        packed = builder.finish()
        put_hashes(packed, self._hashes)
        return packed

    def _put_values(self, builder: RowsBuilder, rows: pa.RecordBatch) -> None:
        for value, place in zip(self._values, self.layout.accumulators, strict=True):
            builder.put(rows.column(value.name), value.type, place.word, place.bit)

    def prepared(self, rows: pa.RecordBatch, windows: np.ndarray, expected: np.ndarray | None = None) -> Prepared:
        """``expected``, for AUR: for each row, when its list will be asked for, as far as it can be foreseen."""
        packed = self._packed(rows, windows, values=True)
        order, bounds = shard_order(packed.words, SHARDS)
        return Prepared(Rows(packed.words[order], packed.heap), bounds, None if expected is None else expected[order])

    def _taken(self, rows: Rows) -> Taken:
        return Taken(rows, self.layout, self._names)

    @contextmanager
    def _writing(self) -> Iterator[int]:
        self._epoch += 1
        started, inner = time.process_time(), self._compaction_cpu_s
        yield self._epoch
        self._write_cpu_s += time.process_time() - started - (self._compaction_cpu_s - inner)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        started, inner = time.process_time(), self._compaction_cpu_s
        yield
        self._read_cpu_s += time.process_time() - started - (self._compaction_cpu_s - inner)

    @property
    def _compaction_cpu_s(self) -> float:
        return 0.0

    @property
    def costs(self) -> Costs:
        return Costs(self._write_cpu_s, self._read_cpu_s, self._compaction_cpu_s)

    @property
    def rows(self) -> int:
        return self._store.rows

    @property
    def disk_bytes(self) -> int:
        return self._store.disk_bytes

    @property
    def memory_bytes(self) -> int:
        return self._store.nbytes

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _row_values(schema: pa.Schema, keys: Sequence[str]) -> list[tuple[Merge, DataType]]:
    """What is kept of a row beside its key, as it is."""
    return [(Merge.ROW, _type(schema, name)) for name in schema.names if name not in keys]


def _placement(folder: str, memory_bytes: int, threads: int) -> dict[str, Any]:
    """What the stores of rows share: one holder of all shards, one epoch to undo."""
    return {
        "shard_count": SHARDS,
        "memory_bytes": memory_bytes,
        "folder": folder,
        "threads": threads,
        "undo_epochs": 1,
    }


class AppendUnaligned(_Store[AppendUnalignedStore]):
    """AUR: rows are appended to the list of their key and window, and lists are taken one by one."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        folder: str,
        memory_bytes: int,
        read_batch_ratio: float = DEFAULT_TUNING.read_batch_ratio,
        max_space_amplification: float = DEFAULT_TUNING.max_space_amplification,
        instances: int = 2,
        threads: int = 2,
    ) -> None:
        super().__init__(schema, keys, _row_values(schema, keys))
        self._store = AppendUnalignedStore(
            self.layout,
            range(SHARDS),
            **_placement(folder, memory_bytes, threads),
            tuning=Tuning(read_batch_ratio, max_space_amplification),
            instances=instances,
        )

    def lists(self, keys: pa.RecordBatch, windows: np.ndarray) -> Lists:
        return Lists(self._packed(keys, windows, values=False))

    def append(self, rows: Prepared) -> None:
        assert rows.expected is not None
        with self._writing() as epoch:
            self._store.append(epoch, [(rows.rows, rows.bounds)], [rows.expected])

    def take(self, lists: Lists) -> Taken:
        """The rows of these lists, list by list, which are gone then."""
        with self._reading():
            return self._taken(self._store.read(lists.rows, remove=True)[0])

    @property
    def _compaction_cpu_s(self) -> float:
        return self._store.compaction_cpu_s

    @property
    def costs(self) -> Costs:
        stats = self._store.stats()
        return Costs(
            self._write_cpu_s,
            self._read_cpu_s,
            stats.compaction_cpu_s,
            stats.compactions,
            stats.hits,
            stats.misses,
            stats.index_scans,
            stats.bytes_read,
            stats.bytes_written,
        )


class AppendAligned(_Store[AppendAlignedStore]):
    """AAR: rows are appended to their window, and a window is taken whole."""

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], *, folder: str, memory_bytes: int, threads: int = 2
    ) -> None:
        super().__init__(schema, keys, _row_values(schema, keys))
        self._store = AppendAlignedStore(self.layout, range(SHARDS), **_placement(folder, memory_bytes, threads))

    def append(self, rows: Prepared) -> None:
        with self._writing() as epoch:
            self._store.append(epoch, [(rows.rows, rows.bounds)])

    def take_window(self, start: int) -> list[Taken]:
        """Its rows in pieces that hold whole keys; it and every earlier window are gone then."""
        with self._reading():
            taken = [self._taken(piece) for piece in self._store.read(start, start + 1)]
            self._store.expire(start + 1)
        return taken

    @property
    def _compaction_cpu_s(self) -> float:
        return self._store.compaction_cpu_s


class ReadModifyWrite(_Store[ReadModifyWriteStore]):
    """RMW: of each key and window, one record with the number of rows and the sum of every other column."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        folder: str,
        memory_bytes: int,
        max_space_amplification: float = DEFAULT_TUNING.max_space_amplification,
        threads: int = 2,
    ) -> None:
        sums = [(Merge.ADD, _type(schema, name)) for name in schema.names if name not in keys]
        super().__init__(schema, keys, [(Merge.ADD, BIGINT), *sums])
        self._store = ReadModifyWriteStore(
            self.layout,
            range(SHARDS),
            threads,
            1,
            memory_bytes=memory_bytes,
            folder=folder,
            tuning=replace(DEFAULT_TUNING, max_space_amplification=max_space_amplification),
        )

    @property
    def _names(self) -> tuple[str, ...]:
        keys, sums = ([field.name for field in some] for some in (self._keys, self._values))
        return (*keys, "count", *sums)

    def _put_values(self, builder: RowsBuilder, rows: pa.RecordBatch) -> None:
        count, *sums = self.layout.accumulators
        builder.words[:, count.word] = 1
        builder.set_bit(count.bit, None)
        for value, place in zip(self._values, sums, strict=True):
            builder.put(rows.column(value.name), value.type, place.word, place.bit)

    def merge(self, rows: Prepared) -> None:
        with self._writing() as epoch:
            self._store.merge(epoch, [(rows.rows, rows.bounds)])

    def take_window(self, start: int) -> list[Taken]:
        """Its records; it and every earlier window are gone then."""
        with self._reading():
            hot = []
            for _, table in self._store.tables():
                panes = table.panes(start + 1)
                hot.append((table, table.rows_of(panes[panes[:, 0] == start])))
            taken = [self._taken(plain(self._store.gather(hot)))]
            wanted = np.array([start], np.int64)
            for shard in sorted(self._store.shards if self._store.spilled else ()):
                taken.append(self._taken(self._store.spilled.rows_of(shard, wanted)))
            self._store.expire(start + 1)
        return [one for one in taken if len(one)]

    @property
    def _compaction_cpu_s(self) -> float:
        return self._store.spilled.compaction_cpu_s

    @property
    def costs(self) -> Costs:
        return Costs(self._write_cpu_s, self._read_cpu_s, self._compaction_cpu_s, self._store.spilled.compactions)


def _type(schema: pa.Schema, name: str) -> DataType:
    found = _TYPES.get(schema.field(name).type)
    if found is None:
        known = ", ".join(map(str, _TYPES))
        raise ValueError(f"column {name!r} is {schema.field(name).type}; a store under test takes {known}")
    return DataType(found)
