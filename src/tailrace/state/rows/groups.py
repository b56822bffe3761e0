"""Keys of rows, numbered as they come: equal ones alike.

Threads: pure functions.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.layout import RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows import key_kernels as pk
from tailrace.state.rows.arrange import Slices, by_hash
from tailrace.state.rows.rows import Rows, plain


def key_numbers(rows: Rows, layout: RecordLayout) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the number of its key and pane, and of each of these the first row."""
    count = len(rows)
    index = np.full(1 << max(4, (2 * count - 1).bit_length()), -1, np.int64)
    numbers, firsts = np.empty(count, np.int64), np.empty(count, np.int64)
    found = pk.number_groups(rows.words, rows.heap, layout.key_words, layout.key_mask, index, numbers, firsts)
    return numbers, firsts[:found]


def key_offsets(rows: Rows, layout: RecordLayout, *, with_pane: bool = False) -> np.ndarray:
    """For rows in which equal keys are adjacent: int64[groups + 1], where each key begins.

    Panes are ignored, or with ``with_pane`` part of the key.
    """
    rows = plain(rows)
    edges = np.empty(len(rows) + 1, np.int64)
    starts = np.arange(len(rows), dtype=np.int64)
    count = rk.key_edges(starts, rows.words, rows.heap, layout.key_words, layout.key_mask, with_pane, edges)
    edges[count] = len(rows)
    return edges[: count + 1]


def group_by_key(rows: Rows, layout: RecordLayout) -> tuple[Rows, np.ndarray]:
    """Rows so that equal keys are adjacent, each key's in the order given, and where each begins. Panes are ignored."""
    rows = plain(rows)
    whole = Slices(rows, np.zeros(1, np.int64), np.full(1, len(rows), np.int64))
    arranged = by_hash([whole], [np.zeros(1, np.int64)], 1, layout)
    return arranged.rows, key_offsets(arranged.rows, layout)
