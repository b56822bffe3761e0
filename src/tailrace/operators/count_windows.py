"""Windows by count: the order in which the rows of an epoch count, and the windows that they fall into.

The rows of a key count epoch by epoch; inside an epoch by event time where there is one, then by every other column,
null first. So the order depends on the rows alone, and rows that are equal in all of these are interchangeable.

Pure functions over whole epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.operators.frame import Frame, by_shard
from tailrace.operators.groups import ranks_with_null
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.read_modify_write import ReadModifyWriteStore
from tailrace.state.runs import group_by_key, key_offsets
from tailrace.state.sections import to_section
from tailrace.state.table import Rows, concat_rows


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

    def numbers(self, before: np.ndarray, size: int) -> np.ndarray:
        """The number of each row's window, given how many rows of each key came in earlier epochs."""
        place: np.ndarray = np.arange(self.frame.n) + np.repeat(before - self.offsets[:-1], self.sizes)
        return place // size


def in_sequence(frames: Sequence[Frame], spec: AggregateSpec, layout: RecordLayout) -> Arrivals:
    rows = concat_rows([Rows(frame.rows.copy(), frame.heap) for frame in frames], layout)
    grouped, offsets = group_by_key(rows, layout)
    keys = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    columns = named_columns(grouped, spec, layout)
    time = [] if spec.time_column is None else [spec.time_column.name]
    names = [*time, *(row.name for row in spec.rows if row.name not in time)]
    order = np.lexsort([*(_sortable(columns[name]) for name in reversed(names)), keys])
    frame = by_shard(Rows(grouped.words[order], grouped.heap), spec.shards)
    return Arrivals(frame, key_offsets(Rows(frame.rows, frame.heap), layout))


def named_columns(rows: Rows, spec: AggregateSpec, layout: RecordLayout) -> dict[str, pa.Array]:
    """Keys and values of rows as they were sent."""
    names = [field.name for field in (*spec.keys, *spec.rows)]
    return dict(zip(names, to_section(rows, layout).columns[2:], strict=True))


def _sortable(array: pa.Array) -> np.ndarray:
    plain = pa.types.is_integer(array.type) or pa.types.is_timestamp(array.type)
    if plain and not array.null_count:
        return np.asarray(array.cast(pa.int64()))
    return ranks_with_null(array)


def found(store: ReadModifyWriteStore, firsts: Rows, bounds: np.ndarray) -> tuple[Rows, np.ndarray]:
    """Copies of the records (in pane 0) of these keys, sorted by shard, and the key of each. Brought in before."""
    parts, numbers = [], [np.empty(0, np.int64)]
    for shard, table in store.tables():
        low, high = int(bounds[shard]), int(bounds[shard + 1])
        if low == high:
            continue
        at = table.locate(Rows(firsts.words[low:high], firsts.heap))
        there = np.flatnonzero(at >= 0)
        parts.append(table.copy(at[there]))
        numbers.append(low + there)
    return concat_rows(parts, store.layout), np.concatenate(numbers)


def window_targets(firsts: Rows, before: np.ndarray, sizes: np.ndarray, size: int) -> tuple[Rows, np.ndarray]:
    """The windows that rows of these keys have come for: rows that name them, and how many rows they have now."""
    first, last = before // size, (before + sizes - 1) // size
    windows = last - first + 1
    keys = np.repeat(np.arange(len(before)), windows)
    ends = np.cumsum(windows)
    numbers = np.arange(int(windows.sum())) - np.repeat(ends - windows, windows) + first[keys]
    words = firsts.words[keys]
    words[:, PANE] = numbers
    return Rows(words, firsts.heap), np.minimum(size, (before + sizes)[keys] - numbers * size)
