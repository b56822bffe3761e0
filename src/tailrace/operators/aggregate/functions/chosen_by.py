"""The value of one column where another one is smallest or largest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.operators.aggregate.accumulators import Accumulator, Inputs, StateSpec
from tailrace.operators.aggregate.functions.descriptor import Descriptor, same_type
from tailrace.operators.aggregate.functions.states import StateKind, run_numbers
from tailrace.operators.rows.row_order import ranks_with_null, sort_ranks

__all__ = ["max_by", "min_by"]


class ChosenBy:
    """The pair (value, order) with the least or the greatest order, then value; a null value sorts first.

    Rows whose order is null do not count. Where there is no other, both are null.
    """

    def __init__(self, spec: StateSpec) -> None:
        (self._greatest,) = spec.arguments

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        values, orders = columns
        numbers = run_numbers(offsets)
        counting = np.asarray(pc.is_valid(orders).to_numpy(zero_copy_only=False), bool)
        rows = np.flatnonzero(counting)
        ranks = sort_ranks(orders.take(pa.array(rows)))
        order = rows[np.lexsort((ranks_with_null(values)[rows], ranks, numbers[rows]))]
        sorted_numbers = numbers[order]
        edges = np.diff(sorted_numbers, append=-1) if self._greatest else np.diff(sorted_numbers, prepend=-1)
        best = order[np.flatnonzero(edges)]
        chosen = np.full(len(offsets) - 1, -1, np.int64)
        chosen[numbers[best]] = best
        taken = pa.array(chosen, mask=chosen < 0)
        return [values.take(taken), orders.take(taken)]

    merge = update


_CHOSEN = StateKind("chosen_by", lambda spec: spec.types, ChosenBy, "one pair of ({})")


def _by(name: str, *, greatest: bool) -> Descriptor:
    def keeps(inputs: Inputs) -> tuple[Accumulator, ...]:
        return _CHOSEN.accumulators(Inputs(inputs.columns, inputs.types, (greatest,)))

    return Descriptor(name, same_type, keeps=keeps)


_MIN_BY, _MAX_BY = _by("min_by", greatest=False), _by("max_by", greatest=True)


def min_by(col: ColumnOrName, ord: ColumnOrName) -> Aggregate:
    """The value of ``col`` where ``ord`` is smallest; of several, the smallest, null before any other.

    Rows where ``ord`` is null are left out, as in Spark.

    >>> min_by("item", "price").name
    'min_by(item, price)'
    """
    return _MIN_BY(col, ord)


def max_by(col: ColumnOrName, ord: ColumnOrName) -> Aggregate:
    """The value of ``col`` where ``ord`` is largest; of several, the largest.

    Rows where ``ord`` is null are left out, as in Spark.
    """
    return _MAX_BY(col, ord)
