"""Stores of small records that do not fit into their memory: rows for them, and what is in them as a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.state.layout import HASH, PANE, Merge, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import to_section
from tailrace.types import BIGINT, DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", STRING)], [(Merge.ADD, BIGINT), (Merge.MAX, STRING)], ansi=False)
SHARDS = 3
FOREVER = 2**63 - 1
Key = tuple[int, int]  # number of the key, pane
Value = tuple[int, str | None]


def text_of(number: int) -> str | None:
    return None if number == 7 else "k" * (number % 5) + str(number)


def frame(rows: list[tuple], hashes: int) -> tuple[Rows, np.ndarray]:
    """Rows by shard. With few ``hashes`` only the keys themselves can tell records apart."""
    rows = sorted(rows, key=lambda row: row[0] % SHARDS)
    builder = RowsBuilder(len(rows), LAYOUT)
    spread = [(row[0] % hashes - hashes // 2) * (2**63 // hashes) for row in rows]
    builder.words[:, HASH] = spread
    builder.words[:, PANE] = [row[1] for row in rows]
    key, total, largest = LAYOUT.keys[0], *LAYOUT.accumulators
    builder.put(pa.array([text_of(row[0]) for row in rows], pa.string()), STRING, key.word, key.bit)
    builder.put(pa.array([row[2] for row in rows], pa.int64()), BIGINT, total.word, total.bit)
    builder.put(pa.array([row[3] for row in rows], pa.string()), STRING, largest.word, largest.bit)
    shards = [row[0] % SHARDS for row in rows]
    return builder.finish(), np.searchsorted(shards, np.arange(SHARDS + 1)).astype(np.int64)


NUMBERS = {text_of(number): number for number in range(200)}


def as_dict(batch: pa.RecordBatch) -> dict[Key, Value]:
    found: dict[Key, Value] = {}
    for row in batch.to_pylist():
        key = (NUMBERS[row["k0"]], row["__pane"])
        assert key not in found, f"{key} twice"
        found[key] = (row["a0"], row["a1"])
    return found


def content(store: ReadModifyWriteStore) -> dict[Key, Value]:
    parts = []
    for shard, table in store.tables():
        hot = table.copy(table.rows_of(table.panes(FOREVER)))
        panes = store.spilled.panes(shard, store.horizon, FOREVER)
        parts += [hot, store.spilled.rows_of(shard, panes)]
    return as_dict(to_section(concat_rows(parts, LAYOUT), LAYOUT))


@contextmanager
def store_of(budget: int, **options: Any) -> Iterator[ReadModifyWriteStore]:
    with temporary_folder() as folder:
        store = ReadModifyWriteStore(LAYOUT, range(SHARDS), 1, memory_bytes=budget, folder=folder, **options)
        yield store
        store.close()


def fill(store: ReadModifyWriteStore, numbers: range, epoch: int, pane: int = 0) -> None:
    store.merge(epoch, [frame([(number, pane, 1, "x" * 20) for number in numbers], 1 << 20)])
    store.forget(epoch)
