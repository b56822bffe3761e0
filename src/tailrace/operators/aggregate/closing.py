"""Which records of a read-modify-write store make windows that close, and reading them back in pieces.

Records of a pane lie in memory, on disk, or in both: a reader of one must read the other too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tailrace.operators.windows import WindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.segments.segment import FINGERPRINTS
from tailrace.state.segments.spilled_records import PIECE_BYTES

_FOREVER = 2**63 - 1


def first_open_pane(window: WindowSpec, watermark: int) -> int:
    """Start of the first pane that some window with an end after ``watermark`` holds."""
    # The first open window starts at the smallest offset + k * slide above watermark - length.
    k = (watermark - window.length - window.offset) // window.slide + 1
    return window.offset + k * window.slide


def windows_of(
    panes: np.ndarray, window: WindowSpec, ends_after: int, ends_by: int = _FOREVER
) -> tuple[np.ndarray, np.ndarray]:
    """(position in ``panes``, window start) for each window that holds the pane and ends in (ends_after, ends_by]."""
    last = window.offset + (panes - window.offset) // window.slide * window.slide
    positions, starts = [], []
    for back in range(-(-window.size // window.slide)):
        start = last - back * window.slide
        end = start + window.length
        at = np.flatnonzero((start + window.size > panes) & (end > ends_after) & (end <= ends_by))
        positions.append(at)
        starts.append(start[at])
    return np.concatenate(positions), np.concatenate(starts)


def closed_records(store: ReadModifyWriteStore, window: WindowSpec, late_before: int, watermark: int) -> Iterator[Rows]:
    """The records of tumbling windows with an end in (late_before, watermark]: those in memory, then those on disk."""
    if watermark <= late_before:
        return iter(())
    return records_in(store, lambda panes: windows_of(panes, window, late_before, watermark)[0], watermark + 1)


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
