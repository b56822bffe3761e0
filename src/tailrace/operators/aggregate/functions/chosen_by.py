"""The value of one column where others are smallest or largest; of so many rows, where that is asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Accumulator, Inputs, Output, StateSpec
from tailrace.operators.aggregate.functions.descriptor import Descriptor, same_type
from tailrace.operators.aggregate.functions.packed_values import BINARY
from tailrace.operators.aggregate.functions.states import StateKind, run_numbers
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.rows.row_order import LateColumn, row_order
from tailrace.state.nested.pack import pack_nested
from tailrace.state.nested.unpack import unpack_nested
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType, array

__all__ = ["max_by", "min_by"]


def _counting(orders: Sequence[pa.Array], every: bool) -> np.ndarray:
    """The rows that have an order."""
    if every or orders[0].null_count == 0:
        return np.arange(len(orders[0]))
    return np.flatnonzero(np.asarray(pc.is_valid(orders[0]).to_numpy(zero_copy_only=False), bool))


def _ordered(columns: Sequence[pa.Array], numbers: np.ndarray, every: bool) -> np.ndarray:
    """The rows that have an order, by group, then in their order, then by value; null comes first."""
    values, *orders = columns
    rows = _counting(orders, every)
    chosen = pa.array(rows)
    keys = [pa.array(numbers[rows]), *(each.take(chosen) for each in orders)]
    late = LateColumn(lambda some: values.take(pa.array(rows[some])))
    ordered: np.ndarray = rows[row_order([*keys, late], len(rows))]
    return ordered


class ChosenBy:
    """The value with the least or the greatest orders, then itself; and these. A null sorts first.

    Rows whose first order is null do not count, but where ``every`` one does: then the orders are the fields of a
    struct, which are null where the struct is not. Where there is no other, all are null.
    """

    def __init__(self, spec: StateSpec) -> None:
        self._greatest, *every = spec.arguments
        self._every = bool(every) and bool(every[0])

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        numbers = run_numbers(offsets)
        order = _ordered(columns, numbers, self._every)
        sorted_numbers = numbers[order]
        edges = np.diff(sorted_numbers, append=-1) if self._greatest else np.diff(sorted_numbers, prepend=-1)
        best = order[np.flatnonzero(edges)]
        chosen = np.full(len(offsets) - 1, -1, np.int64)
        chosen[numbers[best]] = best
        taken = pa.array(chosen, mask=chosen < 0)
        return [column.take(taken) for column in columns]

    merge = update


_CHOSEN = StateKind("chosen_by", lambda spec: spec.types, ChosenBy, "one row of ({})")


class ChosenSeveral:
    """The values with the least or the greatest orders, at most so many, the best first: an array of structs of a value
    and its orders, as one byte string.
    """

    def __init__(self, spec: StateSpec) -> None:
        self._greatest, self._every, self._most = spec.arguments
        self._type = _rows_type(spec.types)

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        return self._best(columns, run_numbers(offsets), len(offsets) - 1)

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        lists = unpack_nested(states[0], self._type)
        counts = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
        return self._best(lists.flatten().flatten(), np.repeat(run_numbers(offsets), counts), len(offsets) - 1)

    def _best(self, columns: Sequence[pa.Array], numbers: np.ndarray, groups: int) -> list[pa.Array]:
        assert isinstance(self._most, int)
        order = _ordered(columns, numbers, bool(self._every))
        if self._greatest:  # the groups stay in their order
            order = order[::-1][np.argsort(numbers[order[::-1]], kind="stable")]
        counts = np.bincount(numbers[order], minlength=groups)
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = pa.array(order[place < self._most])
        rows = pa.StructArray.from_arrays(
            [
                column.take(chosen).cast(field.type)
                for column, field in zip(columns, self._type.value_type, strict=True)
            ],
            fields=list(self._type.value_type),
        )
        ends = np.concatenate([[0], np.cumsum(np.minimum(counts, self._most))]).astype(np.int32)
        return [pack_nested(pa.ListArray.from_arrays(pa.array(ends), rows, type=self._type))]


def _rows_type(types: Sequence[DataType]) -> pa.DataType:
    return pa.list_(pa.struct([(f"c{n}", arrow_type(type_, large=True)) for n, type_ in enumerate(types)]))


_SEVERAL = StateKind("chosen_several", lambda spec: (BINARY,), ChosenSeveral, "the best rows of ({})")


def _by(name: str, *, greatest: bool) -> Descriptor:
    def keeps(inputs: Inputs) -> tuple[Accumulator, ...]:
        return _CHOSEN.accumulators(Inputs(inputs.columns, inputs.types, (greatest, *inputs.arguments)))

    return Descriptor(name, same_type, keeps=keeps)


def _several_by(name: str, *, greatest: bool) -> Descriptor:
    def keeps(inputs: Inputs) -> tuple[Accumulator, ...]:
        return _SEVERAL.accumulators(Inputs(inputs.columns, inputs.types, (greatest, *inputs.arguments)))

    return Descriptor(name, lambda inputs: array(inputs.types[0]), keeps=keeps, finish=_finish_several)


def _finish_several(values: Sequence[Values], output: Output) -> pa.Array:
    state = values[0].accumulator.state
    assert state is not None
    lists = unpack_nested(values[0].states(), _rows_type(state.types))
    counts = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    chosen = lists.flatten().field(0).cast(arrow_type(state.types[0]))
    return pa.ListArray.from_arrays(pa.array(ends), chosen)


_MIN_BY, _MAX_BY = _by("min_by", greatest=False), _by("max_by", greatest=True)
_MIN_BY_SEVERAL, _MAX_BY_SEVERAL = _several_by("min_by_k", greatest=False), _several_by("max_by_k", greatest=True)


def min_by(col: ColumnOrName, ord: ColumnOrName, k: int | None = None) -> Aggregate:
    """The value of ``col`` where ``ord`` is smallest; of several, the smallest, null before any other.

    Rows where ``ord`` is null are left out, as in Spark. With ``k`` an array of so many values, by their order.

    >>> min_by("item", "price").name, min_by("item", "price", 3).name
    ('min_by(item, price)', 'min_by(item, price, 3)')
    """
    return _MIN_BY(col, ord) if k is None else _several(_MIN_BY_SEVERAL, "min_by", [col, ord], False, k)


def max_by(col: ColumnOrName, ord: ColumnOrName, k: int | None = None) -> Aggregate:
    """The value of ``col`` where ``ord`` is largest; of several, the largest.

    Rows where ``ord`` is null are left out, as in Spark. With ``k`` an array of so many values, the largest order's
    first.
    """
    return _MAX_BY(col, ord) if k is None else _several(_MAX_BY_SEVERAL, "max_by", [col, ord], False, k)


def chosen_by(value: str, orders: Sequence[str], *, greatest: bool, every: bool, k: int | None = None) -> Aggregate:
    """``max_by`` or ``min_by`` of several orders, the first one first. ``every``: rows whose first order is null count
    too.
    """
    name = "max_by" if greatest else "min_by"
    if k is not None:
        return _several(_MAX_BY_SEVERAL if greatest else _MIN_BY_SEVERAL, name, [value, *orders], every, k)
    return (_MAX_BY if greatest else _MIN_BY)(value, *orders, arguments=(every,) if every else ())


def _several(function: Descriptor, name: str, columns: Sequence[ColumnOrName], every: bool, k: int) -> Aggregate:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise AnalysisError(f"{name}: k must be a whole number of at least 1, but is {k!r}: {name}('item', 'price', 3)")
    return function(*columns, arguments=(every, k), shown=f"{name}({{}}, {k})", label=name)
