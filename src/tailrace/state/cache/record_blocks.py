"""Rows as they came, a block at a time: records that are kept for a short while are not copied again.

Invariants
- A block's rows never change, and have the numbers under which they came. A block whose rows are all dropped is freed;
  others keep their memory until the owner compacts them (``add`` the rows of ``taken``, then ``free``).
- There are few blocks: beyond ``BLOCKS_MOST`` the owner joins the smallest.

Threads: one at a time, but for ``Taken.rows``, which reads only what does not change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tailrace.state.cache import block_kernels as bk
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.rows import Rows

BLOCKS_MOST = 32
_FIRST_ROOM = 2 * BLOCKS_MOST


@dataclass(frozen=True)
class Taken:
    """Rows of blocks, still to be copied: of each the block and its number there."""

    _layout: RecordLayout
    _blocks: Collection[Rows]  # all of them: they stay where they are for as long
    _addresses: np.ndarray
    _which: np.ndarray
    _numbers: np.ndarray

    def rows(self) -> Rows:
        """Copies, in the order in which they were asked for, with their strings only."""
        strings = self._layout.bytes_words
        words = np.empty((len(self._which), self._layout.words), np.int64)
        bytes_ = words.reshape(-1).view(np.uint8)
        needed = bk.copy_words(self._addresses, self._which, self._numbers, strings, words, bytes_)
        heap = np.empty(int(needed), np.uint8)
        bk.copy_strings(self._addresses, self._which, strings, words, heap)
        return Rows(words, heap)


class RecordBlocks:
    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._blocks: dict[int, Rows] = {}
        self._live = np.zeros(_FIRST_ROOM, np.int64)  # rows, by block
        self._addresses = np.zeros((_FIRST_ROOM, 2), np.int64)  # of words and heap, by block
        self.nbytes = 0
        self.rows = 0  # with those that are gone

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, rows: Rows) -> int:
        """Keep these as they are, at least one, row by row in memory: gives the block's number."""
        if rows.words.shape[1] != self._layout.words:
            raise ValueError(f"rows of {rows.words.shape[1]} words, where records have {self._layout.words}")
        number = next(number for number in range(len(self._blocks) + 1) if number not in self._blocks)
        if number == len(self._live):
            self._live = np.concatenate([self._live, np.zeros_like(self._live)])
            self._addresses = np.concatenate([self._addresses, np.zeros_like(self._addresses)])
        self._blocks[number] = rows
        self._live[number] = len(rows)
        self._addresses[number] = rows.words.ctypes.data, rows.heap.ctypes.data
        self.nbytes += _bytes(rows)
        self.rows += len(rows)
        return number

    def release(self, which: np.ndarray) -> None:
        """Rows of these blocks, a number for each row, are gone."""
        counts = np.bincount(which)
        self._live[: len(counts)] -= counts
        self.free([number for number in np.flatnonzero(counts).tolist() if not self._live[number]])

    def free(self, blocks: Collection[int]) -> None:
        """Free these blocks, whatever rows they still have."""
        for number in blocks:
            rows = self._blocks.pop(number)
            self.nbytes -= _bytes(rows)
            self.rows -= len(rows)

    def taken(self, which: np.ndarray, numbers: np.ndarray) -> Taken:
        """Rows by their blocks and numbers there."""
        return Taken(self._layout, list(self._blocks.values()), self._addresses.copy(), which, numbers)

    @property
    def live_bytes(self) -> float:
        """About what the rows take that are not gone."""
        return float(sum([self._live[number] / len(rows) * _bytes(rows) for number, rows in self._blocks.items()]))

    def sparsest(self, bytes_: int) -> list[int]:
        """Blocks with rows that are gone, those with the most first, that give back so many bytes, or all of them."""
        gone = {number: 1 - self._live[number] / len(rows) for number, rows in self._blocks.items()}
        chosen, found = [], 0.0
        for number in sorted((number for number, share in gone.items() if share), key=lambda number: -gone[number]):
            if found >= bytes_:
                break
            chosen.append(number)
            found += gone[number] * _bytes(self._blocks[number])
        return chosen

    def smallest(self) -> list[int]:
        """Some that are worth joining: two at least, and more while none is larger than twice all before it."""
        chosen: list[int] = []
        total = 0
        for number in sorted(self._blocks, key=lambda number: _bytes(self._blocks[number])):
            size = _bytes(self._blocks[number])
            if len(chosen) > 1 and size > 2 * total:
                break
            chosen.append(number)
            total += size
        return chosen


def _bytes(rows: Rows) -> int:
    return int(rows.words.nbytes + rows.heap.nbytes)
