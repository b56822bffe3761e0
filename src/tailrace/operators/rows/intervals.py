"""Intervals of keys that touch are one session: the rule of sessions whose rows each have a gap of their own.

As Spark's: of a key's intervals by their starts, one that starts at or before the latest end so far goes on with the
session, and else begins the next.

Threads: pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.operators.rows.interval_kernels import number_sessions
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows.arrange import bits_for, sorted_order
from tailrace.state.rows.groups import key_numbers
from tailrace.state.rows.rows import Rows

_KEY_BITS = 64


@dataclass(frozen=True)
class Grouped:
    """``order``: intervals by key and start; session ``s`` is ``order[offsets[s]:offsets[s + 1]]``."""

    order: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray  # of sessions
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def numbers(self) -> np.ndarray:
        """The session of each interval."""
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return numbers

    @property
    def newest_first(self) -> np.ndarray:
        """As ``order``, but that inside of each session the last interval comes first."""
        first_and_last = self.offsets[:-1] + self.offsets[1:] - 1
        newest: np.ndarray = self.order[np.repeat(first_and_last, np.diff(self.offsets)) - np.arange(len(self.order))]
        return newest


def sessions_of(keys: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Grouped:
    """``keys``: numbers, of each interval that of its key."""
    if not len(keys):
        nothing = np.empty(0, np.int64)
        return Grouped(nothing, np.zeros(1, np.int64), nothing, nothing)
    keys, starts, ends = (np.ascontiguousarray(each, np.int64) for each in (keys, starts, ends))
    order = np.ascontiguousarray(_by_key_and_start(keys, starts), np.int64)  # one kind of array: one compilation
    firsts, latest = np.empty(len(order) + 1, np.int64), np.empty(len(order), np.int64)
    count = int(number_sessions(order, keys, starts, ends, firsts, latest))
    return Grouped(order, firsts[: count + 1], starts[order[firsts[:count]]], latest[:count])


def warm_up_intervals() -> None:
    one = np.zeros(1, np.int64)
    sessions_of(one, one, one + 1)


def _by_key_and_start(keys: np.ndarray, starts: np.ndarray) -> np.ndarray:
    first, last = int(starts.min()), int(starts.max())
    time_bits, bits = bits_for(last - first + 1), bits_for(int(keys.max()) + 1)
    if time_bits + bits > _KEY_BITS:
        return np.lexsort((starts, keys))
    packed = keys.astype(np.uint64) << np.uint64(time_bits % _KEY_BITS) if bits else np.zeros(len(keys), np.uint64)
    return sorted_order(packed | (starts - first).astype(np.uint64), high_bit=max(1, time_bits + bits))[0]


def numbers_of_keys(rows: Rows, layout: RecordLayout) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the number of its key, whatever its pane, and of each key the first row."""
    words = rows.words[:, : layout.of_keys.words].copy(order="C")
    words[:, PANE] = 0
    return key_numbers(Rows(words, rows.heap), layout)
