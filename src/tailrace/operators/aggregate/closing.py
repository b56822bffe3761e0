"""Which records of a read-modify-write store make windows that close, and reading them back in pieces.

Records of a pane lie in memory, on disk, or in both: a reader of one must read the other too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.segments.segment import FINGERPRINTS
from tailrace.state.segments.spilled_records import PIECE_BYTES

_FOREVER = 2**63 - 1


def closed_records(
    store: ReadModifyWriteStore, window: TimeWindowSpec, late_before: int, watermark: int
) -> Iterator[Rows]:
    """The records of tumbling windows with an end in (late_before, watermark]: those in memory, then those on disk."""
    if watermark <= late_before:
        return iter(())
    return records_in(store, lambda panes: window.holding(panes, late_before, watermark)[0], watermark + 1)


def records_in(
    store: ReadModifyWriteStore, chosen: Callable[[np.ndarray], np.ndarray], below: int = _FOREVER
) -> Iterator[Rows]:
    """The records of panes, those in memory, then those on disk in pieces.

    ``chosen``: of panes that start before ``below``, the positions of those to read.
    """
    parts: list[tuple[Table, np.ndarray]] = []
    for _, table in store.tables():
        panes = table.panes(below)
        panes = panes[chosen(panes[:, 0])] if len(panes) else panes
        if len(panes):
            parts.append((table, table.rows_of(panes)))
    yield store.gather(parts)
    yield from _spilled_records(store, chosen, below)


def _spilled_records(
    store: ReadModifyWriteStore, chosen: Callable[[np.ndarray], np.ndarray], below: int
) -> Iterator[Rows]:
    """Shards together up to a piece, larger ones apart."""
    spilled, held, size = store.spilled, [], 0
    for shard in sorted(store.shards if spilled else ()):
        panes = spilled.panes(shard, store.horizon, below)
        panes = panes[chosen(panes)]
        for first, end in fingerprint_ranges(spilled.bytes_of(shard, panes)):
            held.append(spilled.rows_of(shard, panes, first, end))
            size += held[-1].words.nbytes + held[-1].heap.nbytes
            if size >= PIECE_BYTES:
                yield concat_rows(held, store.layout)
                held, size = [], 0
    if held:
        yield concat_rows(held, store.layout)


def fingerprint_ranges(bytes_: int) -> Iterator[tuple[int, int]]:
    """Ranges of fingerprints that cut so many bytes to pieces."""
    step = -(-FINGERPRINTS // max(1, -(-bytes_ // PIECE_BYTES)))
    for first in range(0, FINGERPRINTS, step):
        yield first, first + step
