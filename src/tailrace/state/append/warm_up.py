"""Run every kernel of the append stores once, on next to nothing (see ``operators.warm_up``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.arrange import sorted_order
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.groups import group_by_key
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DataType, Field

_TEXT = DataType("string")
_LAYOUT = record_layout([Field("k", _TEXT)], [(Merge.ROW, BIGINT), (Merge.ROW, _TEXT)], ansi=False)


def _rows(count: int) -> tuple[Rows, np.ndarray]:
    """Of one shard and one hash, but not of one key."""
    builder = RowsBuilder(count, _LAYOUT)
    text, numbers = pa.array([str((7 * i) % 5) for i in range(count)]), pa.array(range(count), pa.int64())
    key, (number, other) = _LAYOUT.keys[0], _LAYOUT.accumulators
    builder.put(text, key.type, key.word, key.bit)
    builder.put(numbers, number.type, number.word, number.bit)
    builder.put(text, other.type, other.word, other.bit)
    return builder.finish(), np.array([0, count], np.int64)


def warm_up_rows() -> None:
    frame = _rows(8)
    group_by_key(frame[0], _LAYOUT)
    sorted_order(np.arange(4000, dtype=np.uint64))
    with temporary_folder() as folder:
        # No memory at all: every row goes through a segment.
        aligned = AppendAlignedStore(_LAYOUT, [0], shard_count=1, memory_bytes=0, folder=folder, undo_epochs=1)
        _fill(aligned, frame)
        list(aligned.read(0, 1, piece_bytes=1))
        aligned.delta()
        lists = AppendUnalignedStore(_LAYOUT, [0], shard_count=1, memory_bytes=0, folder=folder, undo_epochs=1)
        _fill(lists, frame)
        lists.read(frame[0], remove=False)
        lists.delta()
        aligned.close()
        lists.close()


def _fill(store: AppendAlignedStore | AppendUnalignedStore, frame: tuple[Rows, np.ndarray]) -> None:
    for epoch in range(3):
        store.append(epoch, [frame])
