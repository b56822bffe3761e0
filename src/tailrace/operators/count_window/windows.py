"""Windows by count: the order in which the rows of an epoch count, and the windows that they fall into.

The rows of a key count epoch by epoch; inside an epoch by event time where there is one, then by every other column,
null first. So the order depends on the rows alone, and rows that are equal in all of these are interchangeable.

Pure functions over whole epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.rows.row_order import ranks_with_null
from tailrace.state.layout import PANE, VALID, AccumulatorWords, RecordLayout
from tailrace.state.rows.columns import decode
from tailrace.state.rows.groups import group_by_key, key_offsets
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import to_section, value_words
from tailrace.types import Kind


@dataclass(frozen=True)
class Arrivals:
    """An epoch's rows as they count: shard by shard, key by key, in order; key ``k`` begins at ``offsets[k]``."""

    frame: Frame
    offsets: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each key."""
        return np.diff(self.offsets)

    @property
    def firsts(self) -> tuple[Rows, np.ndarray]:
        """A row of each key, and where each shard begins among them."""
        starts = self.offsets[:-1]
        return Rows(self.frame.rows[starts], self.frame.heap), np.searchsorted(starts, self.frame.bounds)

    def part(self, keys: slice) -> Arrivals:
        """Only some of the keys, which follow each other."""
        offsets = self.offsets[keys.start : keys.stop + 1]
        low, high = int(offsets[0]), int(offsets[-1])
        bounds = np.clip(self.frame.bounds, low, high) - low
        return Arrivals(Frame(self.frame.rows[low:high], self.frame.heap, bounds), offsets - low)

    def latest(self, word: int) -> np.ndarray:
        """Of each key the largest value of a word of its rows."""
        if not self.frame.n:
            return np.empty(0, np.int64)
        largest: np.ndarray = np.maximum.reduceat(self.frame.rows[:, word], self.offsets[:-1])
        return largest

    def numbers(self, before: np.ndarray, size: int) -> np.ndarray:
        """The number of each row's window, given how many rows of each key came in earlier epochs."""
        place: np.ndarray = np.arange(self.frame.n) + np.repeat(before - self.offsets[:-1], self.sizes)
        return place // size


def in_sequence(frames: Sequence[Frame], spec: AggregateSpec, layout: RecordLayout) -> Arrivals:
    rows = concat_rows([Rows(frame.rows.copy(), frame.heap) for frame in frames], layout)
    grouped, offsets = group_by_key(rows, layout)
    order = _Order(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    columns = list(zip(spec.rows, layout.accumulators, strict=True))
    columns.sort(key=lambda column: column[0] != spec.time_column)  # stable: the others stay as they are
    for _, place in columns:
        for part in (_there, _values):
            order.refine(partial(part, grouped, place))
    frame = by_shard(Rows(grouped.words[order.places], grouped.heap), spec.shards)
    return Arrivals(frame, key_offsets(Rows(frame.rows, frame.heap), layout))


class _Order:
    """Rows in order, column by column: a column is only looked at in rows that all columns before it leave equal."""

    def __init__(self, groups: np.ndarray) -> None:
        self.places = np.arange(len(groups))
        self._ties = groups  # a number for each place, ascending; rows with the same one are equal so far

    def refine(self, values_of: Callable[[np.ndarray], np.ndarray]) -> None:
        new = np.append(True, self._ties[1:] != self._ties[:-1])[: len(self._ties)]
        tied = np.flatnonzero(~new | ~np.append(new[1:], True)[: len(new)])
        if not len(tied):
            return
        values = values_of(self.places[tied])
        if (values == values[0]).all():
            return
        ties = self._ties[tied]
        order = np.lexsort((values, ties))
        values = values[order]
        self.places[tied] = self.places[tied][order]
        # Ties are in order already, so that sorting inside them leaves them where they are.
        new[tied[1:]] |= values[1:] != values[:-1]
        self._ties = np.cumsum(new)


def _there(rows: Rows, place: AccumulatorWords, at: np.ndarray) -> np.ndarray:
    there: np.ndarray = rows.words[at, VALID] >> place.bit & 1
    return there


def _values(rows: Rows, place: AccumulatorWords, at: np.ndarray) -> np.ndarray:
    """Numbers in the order of the values; what null has does not matter."""
    if place.kind is Kind.INT64:
        words: np.ndarray = rows.words[at, place.word]
        return words
    there = _there(rows, place, at) > 0
    words = value_words(Rows(rows.words[at], rows.heap), place.word, place.kind)
    return ranks_with_null(decode(words, there, rows.heap, place.type, large=True))


def named_columns(rows: Rows, spec: AggregateSpec, layout: RecordLayout) -> dict[str, pa.Array]:
    """Keys and values of rows as they were sent."""
    names = [field.name for field in (*spec.keys, *spec.rows)]
    return dict(zip(names, to_section(rows, layout).columns[2:], strict=True))


@dataclass(frozen=True)
class Shape:
    """Window ``i`` of a key has ``size`` rows from its row ``i * slide`` on. No window's edge cuts a pane."""

    size: int
    slide: int

    @property
    def pane(self) -> int:
        return math.gcd(self.size, self.slide)

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide

    def full(self, rows: np.ndarray) -> np.ndarray:
        """How many windows of keys are full that have so many rows: the number of the first one that is not."""
        full: np.ndarray = np.maximum(0, (rows - self.size) // self.slide + 1)
        return full

    def panes_from(self, rows: np.ndarray) -> np.ndarray:
        """The first pane that an open window of such keys has."""
        return self.full(rows) * (self.slide // self.pane)

    def panes_to(self, rows: np.ndarray) -> np.ndarray:
        """The pane after the last one that has rows."""
        return -(-rows // self.pane)


@dataclass(frozen=True)
class Windows:
    """Windows of keys, key by key and by number: ``keys[i]`` is whose, ``filled[i]`` how many rows it has now."""

    keys: np.ndarray
    numbers: np.ndarray
    filled: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, chosen: np.ndarray | slice) -> Windows:
        return Windows(self.keys[chosen], self.numbers[chosen], self.filled[chosen])


NO_WINDOWS = Windows(*(np.empty(0, np.int64) for _ in range(3)))


def windows_of(before: np.ndarray, sizes: np.ndarray, shape: Shape) -> Windows:
    """The windows that rows of keys have come for."""
    after = before + sizes
    keys, numbers = ranges(shape.full(before), (after - 1) // shape.slide + 1)
    return Windows(keys, numbers, np.minimum(shape.size, after[keys] - numbers * shape.slide))


def ranges(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(which range, number) of all numbers of these ranges, one after the other; some may be empty."""
    lengths = np.maximum(0, end - first)
    which = np.repeat(np.arange(len(first)), lengths)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + first[which]


def named(keys: Rows, which: np.ndarray, panes: np.ndarray) -> Rows:
    """Rows that name lists: of the keys ``which``, in these panes."""
    words = keys.words[which]
    words[:, PANE] = panes
    return Rows(words, keys.heap)
