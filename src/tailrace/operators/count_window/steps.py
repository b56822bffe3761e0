"""One epoch of overlapping windows by count: the rows that came, the records that they are merged with, and windows.

All lie in one matrix, with one heap: first the rows, then for each key its head, its former head, those of its panes
that the epoch needs, and its windows. ``sliding`` says what these records are and why; the kernels, what is merged.

Invariants
- Records of panes are only read where a window of theirs is wanted, where the pane goes on, and where a block gets
  full: so that an epoch costs what its rows and its windows do, not what is open.

Threads: a ``Steps`` belongs to one call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.operators.count_window import pane_kernels as ck
from tailrace.operators.count_window.windows import Arrivals, Shape, ranges, windows_of
from tailrace.state.hash_table.kernels import ARENA_END, COUNTERS, STATUS_AT
from tailrace.state.layout import PANE, VALID, AccumulatorWords, RecordLayout
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows, concat_rows, plain

FORMER_PANE, FIRST_PANE = 1, 2
"""Where records lie; heads in pane 0."""
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Blocks(Shape):
    """Panes of ``slide`` rows, and blocks of as many whole panes as a window has room for."""

    @property
    def panes(self) -> int:
        return self.size // self.slide

    @property
    def block(self) -> int:
        return self.panes * self.slide

    @property
    def rest(self) -> int:
        """What a window has more than a block."""
        return self.size - self.block

    def slots(self, numbers: np.ndarray) -> np.ndarray:
        """The places of panes among those of their key: a pane's was that of one whose window was full before."""
        slots: np.ndarray = (numbers % self.panes - numbers // self.panes) % self.panes
        return slots

    def inner(self, first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which key, number) of the panes in these ranges that have a record: all but the first of a block."""
        which, numbers = ranges(first, end)
        kept = numbers % self.panes > 0
        return which[kept], numbers[kept]

    def begun(self, rows: np.ndarray) -> np.ndarray:
        """The number of the pane after the last that has a row."""
        begun: np.ndarray = -(-rows // self.slide)
        return begun

    def needed(self, before: np.ndarray, after: np.ndarray, unfinished: bool) -> np.ndarray:
        """How many records and windows of each key an epoch has to do with, beside its rows, or few more."""
        every = unfinished | (after // self.block > before // self.block)
        old, new = self.full(after) - self.full(before), self.begun(after) - before // self.slide
        open_ = np.where(every, self.panes, old + new) if self.panes > 1 else np.zeros(len(before), np.int64)
        needed: np.ndarray = open_ + 2 + (self.begun(after) - self.full(before) if unfinished else old)
        return needed

    def lasting(self, rows: np.ndarray) -> np.ndarray:
        """Of which keys, with so many rows, the window of the former head is not full."""
        lasting: np.ndarray = (rows >= self.block) & (rows % self.block < self.rest)
        return lasting

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which key, where it lies): every record beside the heads that keys may have which have so many rows."""
        # Two blocks have been in every place.
        end = self.begun(rows)
        which, numbers = self.inner(np.maximum(0, end - 2 * self.panes), end)
        former = np.flatnonzero(rows >= self.block) if self.rest else _NONE
        panes = [FIRST_PANE + self.slots(numbers), np.full(len(former), FORMER_PANE)]
        return np.concatenate([which, former]), np.concatenate(panes)


class Steps:
    def __init__(self, shape: Blocks, came: Arrivals, before: np.ndarray, layout: RecordLayout, unfinished: bool):
        """``before``: how many rows of each key came in earlier epochs. ``unfinished``: windows are wanted that are not
        full too.
        """
        self._shape, self._came, self._layout, self._unfinished = shape, came, layout, unfinished
        self._before, self._after = before, before + came.sizes
        self._full = shape.full(self._after)
        self._filled = self._after // shape.block > before // shape.block
        windows = windows_of(before, came.sizes, shape)
        self._windows = windows if unfinished else windows.where(windows.filled == shape.size)
        self._places, self._end = self._laid_out()

    def _laid_out(self) -> tuple[np.ndarray, int]:
        """Where everything lies in the matrix, and how many rows it has."""
        shape, before, keys = self._shape, self._before, len(self._before)
        places = np.zeros((keys, ck.PLACES), np.int64)
        end = self._came.frame.n
        for column in (ck.HEAD, ck.FORMER):
            places[:, column] = end + np.arange(keys)
            end += keys
        # Where all open panes matter they lie as in the state, else only those of two ranges.
        ring = self._filled | self._unfinished
        old = self._full - shape.full(before)
        new = shape.begun(self._after) - before // shape.slide
        rooms = np.where(ring, shape.panes, old + new) if shape.panes > 1 else np.zeros(keys, np.int64)
        slots = end + np.cumsum(rooms) - rooms
        end += int(rooms.sum())
        places[:, ck.RING], places[:, ck.SLOTS] = ring, slots
        places[:, ck.BORDER] = before // shape.slide
        places[:, ck.OLD] = slots - shape.full(before)
        places[:, ck.NEW] = slots + old - before // shape.slide
        counts = np.bincount(self._windows.keys, minlength=keys)
        places[:, ck.WINDOWS] = end + np.cumsum(counts) - counts
        return places, end + len(self._windows)

    def needed(self) -> tuple[np.ndarray, np.ndarray]:
        """(which key, where it lies): the records beside the heads that the epoch needs, key by key."""
        shape, before = self._shape, self._before
        ring = self._places[:, ck.RING] > 0
        there, current = shape.begun(before), before // shape.slide
        old = shape.inner(shape.full(before), np.where(ring, there, self._full))
        new = shape.inner(current, np.where(ring, current, there))
        former = np.flatnonzero(shape.lasting(before))
        which = np.concatenate([old[0], new[0], former])
        numbers = np.concatenate([old[1], new[1]])
        order = np.argsort(which, kind="stable")
        panes = np.concatenate([FIRST_PANE + shape.slots(numbers), np.full(len(former), FORMER_PANE)])
        rows = np.concatenate([self._rows_of(which[: len(numbers)], numbers), self._places[former, ck.FORMER]])
        self._needed_rows = rows[order]
        return which[order], panes[order]

    def _rows_of(self, keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The rows of the matrix for these panes of keys."""
        places = self._places[keys]
        straight = numbers + np.where(numbers >= places[:, ck.BORDER], places[:, ck.NEW], places[:, ck.OLD])
        rows: np.ndarray = np.where(places[:, ck.RING], places[:, ck.SLOTS] + self._shape.slots(numbers), straight)
        return rows

    def merge(self, partials: Rows, heads: Rows, keys: np.ndarray, others: Rows, numbers: np.ndarray) -> int:
        """Merge it all. ``heads``: of ``keys``. ``others``: what was needed, of these ``numbers``. -1, or the
        accumulator that overflowed.
        """
        assert len(others) == len(self._needed_rows), "a record of an open window is missing"
        count, layout = self._layout.accumulators[0].word, self._layout
        heads.words[:, count] %= self._shape.block
        rows = len(partials)
        every = plain(concat_rows([partials, heads, others], layout))
        words = np.empty((self._end, layout.words), np.int64)
        words[:rows] = every.words[:rows]
        words[self._places[keys, ck.HEAD]] = every.words[rows : rows + len(keys)]
        words[self._needed_rows[numbers]] = every.words[rows + len(keys) :]
        shape = self._shape
        first = shape.full(self._before)
        blocks = int((self._after // shape.block - self._before // shape.block).sum())
        steps = np.empty((3 * rows + 2 * len(self._windows) + blocks * shape.panes, 2), np.int64)
        offsets = np.ascontiguousarray(self._came.offsets, np.int64)
        end = ck.plan_steps(
            self._before, offsets, first, shape.size, shape.slide, self._unfinished, self._places, steps
        )
        return self._merged(words, every.heap, steps, int(end))

    def _merged(self, words: np.ndarray, heap: np.ndarray, steps: np.ndarray, end: int) -> int:
        layout, counters = self._layout, np.zeros(COUNTERS, np.int64)
        counters[ARENA_END] = len(heap)
        at = 0
        while at < end:
            at = int(ck.merge_steps(steps, at, end, words, heap, layout.program, layout.bytes_words, counters))
            if at < 0:
                return int(counters[STATUS_AT])
            if at < end:
                heap = np.concatenate([heap, np.empty(len(heap) // 2 + 1024, np.uint8)])
        self._words, self._heap = words, heap
        return -1

    # What comes of it ------------------------------------------------------------------------------------------------

    def windows(self) -> Rows:
        """Windows that are wanted; their numbers are their panes."""
        # A copy, since they outlive the matrix and its heap.
        numbers = np.arange(self._end - len(self._windows), self._end)
        windows = take(Rows(self._words, self._heap), numbers, self._layout)
        windows.words[:, PANE] = self._windows.numbers
        return windows

    def panes(self) -> Rows:
        """What the epoch changed of open windows, beside the heads."""
        shape = self._shape
        changed = np.where(self._filled, self._full, self._before // shape.slide)
        which, numbers = shape.inner(changed, shape.begun(self._after))
        former = np.flatnonzero(shape.lasting(self._after))
        rows = np.concatenate([self._rows_of(which, numbers), self._places[former, ck.FORMER]])
        words = self._words[rows]
        words[: len(numbers), PANE] = FIRST_PANE + shape.slots(numbers)
        words[len(numbers) :, PANE] = FORMER_PANE
        return Rows(words, self._heap)

    def heads(self, updated: AccumulatorWords | None, times: np.ndarray | None) -> Rows:
        """The heads of all keys; with a time-to-live, ``times`` are when they were last updated."""
        layout, count = self._layout, self._layout.accumulators[0]
        words = self._words[self._places[:, ck.HEAD]]
        empty = self._after % self._shape.block == 0
        words[empty, count.word :] = 0
        words[empty, VALID] &= layout.key_mask
        words[:, PANE] = 0
        words[:, VALID] |= 1 << count.bit
        words[:, count.word] = self._after
        if updated is not None:
            words[:, VALID] |= 1 << updated.bit
            words[:, updated.word] = times
        return Rows(words, self._heap)
