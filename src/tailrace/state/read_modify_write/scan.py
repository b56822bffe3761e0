"""Scans of a read-modify-write store by pane: records in memory and spilled ones, in pieces of bounded memory.

Callers name panes, or keys and panes, and get copies of records; where a record lies in the store is not theirs to
know. Reads of single records by key are in ``probes``.

Invariants
- A record is in exactly one piece. A scan sees the store as it is when a piece is made: nobody changes it meanwhile.
- Pieces take about ``PIECE_BYTES``; but ``scan_panes`` copies the records in memory as a whole, before the others.

Threads: one scan at a time, and none beside a call that changes the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.segments.segment import FINGERPRINTS, fingerprints_of

PIECE_BYTES = 8 << 20
_FOREVER = 2**63 - 1

Choose = Callable[[np.ndarray], np.ndarray]
"""Of the starts of panes, ascending, the positions of those to read."""

Holding = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Of the starts of panes: positions, one for each window that holds the pane, and the start of that window."""


def scan_panes(store: ReadModifyWriteStore, chosen: Choose, below: int = _FOREVER) -> Iterator[Rows]:
    """The records of the chosen panes that start before ``below``: those in memory, then spilled ones in pieces."""
    parts: list[tuple[Table, np.ndarray]] = []
    for _, table in store.tables():
        rows = _rows_in(table, chosen, below)
        if len(rows):
            parts.append((table, rows))
    yield store.gather(parts)
    held: list[Rows] = []
    size = 0
    for shard, _ in store.tables() if store.spilled else ():
        panes = _spilled_panes(store, shard, chosen, below)
        for first, end in fingerprint_ranges(store.spilled.bytes_of(shard, panes)):
            held.append(store.spilled.rows_of(shard, panes, first, end))
            size += held[-1].words.nbytes + held[-1].heap.nbytes
            if size >= PIECE_BYTES:
                yield concat_rows(held, store.layout)
                held, size = [], 0
    if held:
        yield concat_rows(held, store.layout)


def scan_keys(store: ReadModifyWriteStore, chosen: Choose, below: int = _FOREVER, *, copies: int = 1) -> Iterator[Rows]:
    """As ``scan_panes``, in pieces that hold all records of their keys, shard by shard; none is empty.

    ``copies``: how often the caller will repeat each record, so that its pieces stay small.
    """
    for shard, table in store.tables():
        rows = _rows_in(table, chosen, below)
        panes = _spilled_panes(store, shard, chosen, below) if store.spilled else _NO_PANES
        bytes_ = table.nbytes * len(rows) // max(1, table.rows)
        if len(panes):
            bytes_ += store.spilled.bytes_of(shard, panes)
        fingerprints = fingerprints_of(table.word(rows, HASH))
        order = np.argsort(fingerprints, kind="stable")
        rows, fingerprints = rows[order], fingerprints[order]
        for first, end in fingerprint_ranges(bytes_ * copies):
            low, high = np.searchsorted(fingerprints, [first, end])
            parts = [table.copy(rows[low:high])] if low < high else []
            if len(panes):
                parts.append(store.spilled.rows_of(shard, panes, first, end))
            both = concat_rows(parts, store.layout)
            if len(both):
                yield both


def scan_windows(
    store: ReadModifyWriteStore, holding: Holding, below: int, *, copies: int, in_pieces: bool = False
) -> Iterator[Rows]:
    """The records of panes that start before ``below``, once for each window that holds them, with its start as their
    pane. A piece holds all records of its keys; none is empty.

    ``copies``: how many windows may hold a pane. ``in_pieces``: there may be much to copy in memory, too. Where records
    are in memory and few, those of a shard are copied at once, which is faster.
    """
    if store.in_memory and not in_pieces:
        for _, table in store.tables():
            panes = table.panes(below)
            at, windows = holding(panes[:, 0])
            rows = table.rows_of(panes[at])
            if len(rows):
                yield table.copy(rows, np.repeat(windows, panes[at, 2]))
        return
    for records in scan_keys(store, lambda panes: np.unique(holding(panes)[0]), below, copies=copies):
        starts = records.words[:, PANE].copy()
        at, windows = holding(starts)
        # In the order of the panes they were in: sums of doubles must not depend on where records lie.
        order = np.argsort(starts[at], kind="stable")
        words = records.words[at[order]]
        words[:, PANE] = windows[order]
        yield Rows(words, records.heap)


def scan_panes_from(store: ReadModifyWriteStore, shard: int, keys: Rows, offsets: np.ndarray) -> Rows:
    """Copies of the records of these keys in the panes that start so long after the key's own, ascending.

    A copy has the pane of its key. Those of a key come in the order of the panes they were in, wherever they lie: a sum
    of doubles depends on that order. In memory they are all at once: the caller bounds the number of keys.
    """
    table = dict(store.tables())[shard]
    rows, firsts = table.rows_in_windows(keys, offsets)
    in_memory = table.copy(rows, firsts)
    if not store.spilled:
        return in_memory
    wanted = Rows(np.repeat(keys.words, len(offsets), axis=0), keys.heap)
    firsts = wanted.words[:, PANE].copy()
    wanted.words[:, PANE] += np.tile(offsets, len(keys))
    missing = table.missing(wanted.words, wanted.heap, 0, len(wanted))
    spilled, numbers = store.spilled.lookup(shard, wanted, missing, store.horizon)
    spilled.words[:, PANE] = firsts[numbers]
    both = concat_rows([in_memory, spilled], store.layout)
    lay_in = np.concatenate([table.pane_starts(rows), wanted.words[numbers, PANE]])
    return Rows(both.words[np.argsort(lay_in, kind="stable")], both.heap)


def every_pane(panes: np.ndarray) -> np.ndarray:
    """Chooses all panes."""
    return np.arange(len(panes))


_NO_PANES = np.empty(0, np.int64)


def _rows_in(table: Table, chosen: Choose, below: int) -> np.ndarray:
    panes = table.panes(below)
    return table.rows_of(panes[chosen(panes[:, 0])] if len(panes) else panes)


def _spilled_panes(store: ReadModifyWriteStore, shard: int, chosen: Choose, below: int) -> np.ndarray:
    panes = store.spilled.panes(shard, store.horizon, below)
    return panes[chosen(panes)]


def fingerprint_ranges(bytes_: int) -> Iterator[tuple[int, int]]:
    """Ranges of fingerprints that cut so many bytes to pieces."""
    step = -(-FINGERPRINTS // max(1, -(-bytes_ // PIECE_BYTES)))
    for first in range(0, FINGERPRINTS, step):
        yield first, first + step
