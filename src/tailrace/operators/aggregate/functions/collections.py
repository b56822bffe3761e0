"""Aggregates whose output is a list of values: all of them, or the largest. Nulls are left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.errors import AnalysisError
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Output, StateSpec
from tailrace.operators.aggregate.functions.descriptor import Descriptor
from tailrace.operators.aggregate.functions.groups import grouped_order, lists, present_values
from tailrace.operators.aggregate.functions.packed_values import BINARY, pack, unpack
from tailrace.operators.aggregate.functions.states import StateKind, present_rows, run_numbers
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.row_order import LateColumn, row_order, sort_ranks
from tailrace.types import array

__all__ = ["collect_list", "top_k"]


def _collect_list(groups: Groups, output: Output, time: str) -> pa.Array:
    """By event time (none comes first), then by value: rows may come in another order when they come again."""
    values, numbers, times = present_values(groups, output.columns[0], time)
    known = np.asarray(pc.fill_null(times.cast(pa.int64()), MIN_MICROS))  # without windows a row may have no time
    late = LateColumn(lambda rows: values.take(pa.array(rows)))
    order = row_order([pa.array(numbers), pa.array(known), late], len(numbers))
    return lists(values.take(pa.array(order)), np.bincount(numbers, minlength=len(groups)))


_COLLECT_LIST = Descriptor("collect_list", lambda inputs: array(inputs.type), of_rows=_collect_list, needs_time=True)


class TopValues:
    """At most ``k`` values, largest first; equal ones are all there."""

    def __init__(self, spec: StateSpec) -> None:
        (self._type,), (k,) = spec.types, spec.arguments
        assert isinstance(k, int)
        self._k = k

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        (values,), numbers = present_rows(columns, offsets)
        return self._best(values, numbers, len(offsets) - 1)

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        values, counts = unpack(states[0], self._type)
        return self._best(values, np.repeat(run_numbers(offsets), counts), len(offsets) - 1)

    def _best(self, values: pa.Array, numbers: np.ndarray, groups: int) -> list[pa.Array]:
        order = grouped_order(numbers, -sort_ranks(values))
        counts = np.bincount(numbers, minlength=groups)
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        best = values.take(pa.array(order[place < self._k]))
        return [pack(best, np.minimum(counts, self._k), self._type)]


_TOP = StateKind("top_values", lambda spec: (BINARY,), TopValues, "the largest values of {}")


def _finish_top(values: Sequence[Values], output: Output) -> pa.Array:
    state = values[0].accumulator.state
    assert state is not None
    return lists(*unpack(values[0].states(), state.types[0]))


_TOP_K = Descriptor("top_k", lambda inputs: array(inputs.type), keeps=_TOP.accumulators, finish=_finish_top)


def collect_list(col: ColumnOrName) -> Aggregate:
    """All values that are not null, by event time and then by value: in the same order whenever it is asked."""
    return _COLLECT_LIST(col)


def top_k(col: ColumnOrName, k: int) -> Aggregate:
    """The ``k`` largest values, largest first; nulls are left out.

    >>> top_k("price", 10).name
    'top_k(price, 10)'
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise AnalysisError(f"top_k: k must be a whole number of at least 1, but is {k!r}: top_k('price', 10)")
    return _TOP_K(col, arguments=(k,), shown=f"top_k({{}}, {k})")
