"""Rows: records or partials as a matrix of words (see ``layout``), and the byte strings that they point to.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state.layout import VALID, RecordLayout


@dataclass(frozen=True)
class Rows:
    """Copied-out records, or partials: a matrix of words and the byte strings they point to."""

    words: np.ndarray
    heap: np.ndarray

    def __len__(self) -> int:
        return len(self.words)


def no_rows(layout: RecordLayout) -> Rows:
    return Rows(np.empty((0, layout.words), np.int64), np.empty(0, np.uint8))


def plain(rows: Rows) -> Rows:
    """Row by row in memory, as the kernels are compiled for."""
    return Rows(np.ascontiguousarray(rows.words), np.ascontiguousarray(rows.heap))


def concat_rows(parts: Sequence[Rows], layout: RecordLayout) -> Rows:
    """Several row sets as one. The parts are used up: their words may be changed."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Rows(np.empty((0, layout.words), np.int64), np.empty(0, np.uint8))
    heap_start = 0
    for part in parts:
        for word, bit in layout.bytes_words:
            there = (part.words[:, VALID] >> bit & 1).astype(bool)
            part.words[there, word] += heap_start
        heap_start += len(part.heap)
    return Rows(np.concatenate([part.words for part in parts]), np.concatenate([part.heap for part in parts]))
