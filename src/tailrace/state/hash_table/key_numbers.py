"""Keys of rows, numbered as they come: equal ones alike.

Threads: pure functions.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.hash_table import probe_kernels as pk
from tailrace.state.hash_table.table import Rows
from tailrace.state.layout import RecordLayout


def key_numbers(rows: Rows, layout: RecordLayout) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the number of its key and pane, and of each of these the first row."""
    count = len(rows)
    index = np.full(1 << max(4, (2 * count - 1).bit_length()), -1, np.int64)
    numbers, firsts = np.empty(count, np.int64), np.empty(count, np.int64)
    found = pk.number_groups(rows.words, rows.heap, layout.key_words, layout.key_mask, index, numbers, firsts)
    return numbers, firsts[:found]
