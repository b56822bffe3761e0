"""Rows made of Arrow columns, one column after the other.

Threads: a builder is used by one thread.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows
from tailrace.types import DataType, Kind


class RowsBuilder:
    """Fills a matrix of words column by column; strings go to one heap."""

    def __init__(self, count: int, layout: RecordLayout) -> None:
        self.words = np.zeros((count, layout.words), np.int64)
        self._bits = 0  # of every row, set at the end
        self._heap: list[np.ndarray] = []
        self._heap_end = 0

    def set_bit(self, bit: int, valid: np.ndarray | None) -> None:
        if valid is None:
            self._bits |= 1 << bit
        else:
            self.words[:, VALID] |= valid.astype(np.int64) << bit

    def put(self, array: pa.Array, type_: DataType, word: int, bit: int) -> None:
        """A column and its valid bit."""
        valid = columns.valid_mask(array)
        self.set_bit(bit, valid)
        if type_.kind is Kind.BYTES:
            positions, heap = columns.string_heap(array, valid, self._heap_end)
            self.words[:, word] = positions
            self._heap.append(heap)
            self._heap_end += len(heap)
        elif type_.kind is Kind.INT128:
            self.words[:, word : word + 2] = columns.fixed_words(array, type_, valid)
        else:
            self.words[:, word] = columns.fixed_words(array, type_, valid)

    def finish(self) -> Rows:
        heap = np.concatenate(self._heap) if self._heap else np.empty(0, np.uint8)
        if self._bits:
            self.words[:, VALID] |= self._bits
        return Rows(self.words, heap)
