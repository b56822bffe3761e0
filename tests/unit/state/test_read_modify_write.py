"""The store over its shards: a failure in one of them must leave none changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, Merge, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
SHARDS = 4


def frame(rows: int) -> tuple[Rows, np.ndarray]:
    words = np.zeros((rows * SHARDS, LAYOUT.words), np.int64)
    words[:, HASH] = np.arange(rows * SHARDS)
    words[:, 2] = 3
    words[:, 3] = np.arange(rows * SHARDS)
    words[:, 4] = 1
    return Rows(words, np.empty(0, np.uint8)), np.arange(0, rows * SHARDS + 1, rows)


def totals(store: ReadModifyWriteStore) -> dict[int, int]:
    found: dict[int, int] = {}
    for shard, table in store.tables():
        spilled = store.spilled.rows_of(shard, store.spilled.panes(shard, -1, 1))
        for rows in (table.copy(table.rows_of(table.panes(2**62))), spilled):
            assert found.keys().isdisjoint(rows.words[:, 3].tolist())
            found.update(zip(rows.words[:, 3].tolist(), rows.words[:, 4].tolist(), strict=True))
    return found


@pytest.mark.parametrize("failing", range(SHARDS))
@pytest.mark.parametrize("method", ["begin", "merge"])
@pytest.mark.parametrize("rows", [3, 30_000])  # one thread, and several
@pytest.mark.parametrize("memory", [None, 0])  # all records in memory before the failing epoch, and all on disk
def test_an_epoch_that_fails_in_one_shard_is_undone_in_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: int, method: str, rows: int, memory: int | None
) -> None:
    store = ReadModifyWriteStore(LAYOUT, range(SHARDS), memory_bytes=memory, folder=str(tmp_path))
    store.merge(0, [frame(rows)])
    store.forget(0)
    assert (store.disk_bytes > 0) == (memory == 0)
    before = totals(store)
    victim = dict(store.tables())[failing]
    real = getattr(Table, method)

    def fail(self: Table, *arguments: object, **options: object) -> None:
        if self is victim:
            raise MemoryError("no room")
        real(self, *arguments, **options)

    monkeypatch.setattr(Table, method, fail)
    with pytest.raises(MemoryError):
        store.merge(1, [frame(rows)])
    monkeypatch.undo()
    store.undo(1)
    assert totals(store) == before
    store.merge(1, [frame(rows)])
    assert set(totals(store).values()) == {2}


def test_rows_of_shards_kept_elsewhere_are_refused() -> None:
    store = ReadModifyWriteStore(LAYOUT, [0, 1])
    with pytest.raises(ValueError, match="not kept here"):
        store.merge(0, [frame(2)])
