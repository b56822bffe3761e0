"""Aggregates of different values. Each value is kept once for a key and window, however often it comes; nulls never.

The state is one set, sorted, as one byte string, which all aggregates of a column share. It is merged as rows come, so
what is kept grows with the different values and not with the rows. A merge copies the set of each key that it touches.
Of several columns a member of the set is a row of them, as one byte string: each value as ``packed_values`` packs it,
one after the other, so that two rows are equal exactly where their strings are. This is the form of checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.operators.aggregate.accumulators import Output, StateSpec
from tailrace.operators.aggregate.functions.counts_and_sums import total_type
from tailrace.operators.aggregate.functions.descriptor import Descriptor, numeric
from tailrace.operators.aggregate.functions.groups import grouped_order, lists, sums
from tailrace.operators.aggregate.functions.packed_values import BINARY, pack, unpack
from tailrace.operators.aggregate.functions.states import StateKind, present_rows, run_numbers
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.rows.row_order import sort_ranks
from tailrace.types import BIGINT, DataType, array

__all__ = ["collect_set", "count_distinct", "sum_distinct"]


class DistinctValues:
    """Sets of values, sorted as Spark orders them: NaN is one value and the largest, -0.0 is 0.0."""

    def __init__(self, spec: StateSpec) -> None:
        self._columns, self._type = spec.types, _member_type(spec)

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        present, numbers = present_rows(columns, offsets)
        values = present[0] if len(present) == 1 else self._packed_rows(present)
        return self._sets(values, numbers, len(offsets) - 1)

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        values, counts = unpack(states[0], self._type)
        return self._sets(values, np.repeat(run_numbers(offsets), counts), len(offsets) - 1)

    def _packed_rows(self, columns: Sequence[pa.Array]) -> pa.Array:
        """One byte string for each row."""
        packed = []
        for column, type_ in zip(columns, self._columns, strict=True):
            if type_.is_float:  # values that are equal must have equal bytes, and there are many NaNs
                column = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, column.type), _one_zero(column))
            packed.append(pack(column, np.ones(len(column), np.int64), type_))
        return pc.binary_join_element_wise(*packed, pa.scalar(b"", pa.large_binary()))

    def _sets(self, values: pa.Array, numbers: np.ndarray, groups: int) -> list[pa.Array]:
        if self._type.is_float:
            values = _one_zero(values)
        ranks = sort_ranks(values)
        order = grouped_order(numbers, ranks)
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(numbers[order]) != 0) | (np.diff(ranks[order]) != 0)
        chosen = order[new]
        counts = np.bincount(numbers[chosen], minlength=groups)
        return [pack(values.take(pa.array(chosen)), counts, self._type)]


def _member_type(spec: StateSpec) -> DataType:
    return spec.types[0] if len(spec.types) == 1 else BINARY


def _one_zero(floats: pa.Array) -> pa.Array:
    """-0.0 becomes 0.0."""
    return pc.add(floats, pa.scalar(0.0, floats.type))


_SET = StateKind("distinct_values", lambda spec: (BINARY,), DistinctValues, "the distinct values of {}, each kept once")


def _members(values: Sequence[Values]) -> tuple[pa.Array, np.ndarray, DataType]:
    """The members of all sets, how many each has, and their type."""
    state = values[0].accumulator.state
    assert state is not None
    type_ = _member_type(state)
    return *unpack(values[0].states(), type_), type_


def _count(values: Sequence[Values], output: Output) -> pa.Array:
    _, counts, _ = _members(values)
    return pa.array(counts.astype(np.int64))


def _list(values: Sequence[Values], output: Output) -> pa.Array:
    members, counts, _ = _members(values)
    return lists(members, counts)


def _sum(values: Sequence[Values], output: Output) -> pa.Array:
    members, counts, type_ = _members(values)
    numbers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return sums(members, numbers, len(counts), type_, output.type, ansi=values[0].ansi)


_COUNT_DISTINCT = Descriptor("count_distinct", lambda inputs: BIGINT, keeps=_SET.accumulators, finish=_count)
_COLLECT_SET = Descriptor("collect_set", lambda inputs: array(inputs.type), keeps=_SET.accumulators, finish=_list)
_SUM_DISTINCT = Descriptor(
    "sum_distinct", lambda inputs: total_type(inputs.type), keeps=_SET.accumulators, finish=_sum, takes=numeric
)


def count_distinct(col: ColumnOrName, *cols: ColumnOrName) -> Aggregate:
    """How many different values there are, exactly; nulls are left out.

    Of several columns, how many different rows of them; rows with a null in any of them are left out, as in Spark.

    >>> count_distinct("price").name, count_distinct("bidder", "channel").name
    ('count(DISTINCT price)', 'count(DISTINCT bidder, channel)')
    """
    return _COUNT_DISTINCT(col, *cols, shown="count(DISTINCT {})")


def collect_set(col: ColumnOrName) -> Aggregate:
    """The different values that are not null, smallest first, so that they come in the same order whenever asked.

    >>> collect_set("channel").name
    'collect_set(channel)'
    """
    return _COLLECT_SET(col)


def sum_distinct(col: ColumnOrName) -> Aggregate:
    """The sum of the different values that are not null; null where there is none.

    >>> sum_distinct("price").name
    'sum(DISTINCT price)'
    """
    return _SUM_DISTINCT(col, shown="sum(DISTINCT {})")
