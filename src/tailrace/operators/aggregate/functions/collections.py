"""Aggregates whose output is a list of values, or the number of different ones. Nulls are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.aggregates import Aggregate
from tailrace.errors import AnalysisError
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Output
from tailrace.operators.aggregate.functions.descriptor import Descriptor
from tailrace.operators.aggregate.functions.groups import lists, present_values
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.row_order import sort_ranks
from tailrace.types import BIGINT, array

__all__ = ["collect_list", "count_distinct", "top_k"]


def _collect_list(groups: Groups, output: Output, time: str) -> pa.Array:
    """By event time (none comes first), then by value: rows may come in another order when they come again."""
    values, numbers, times = present_values(groups, output.columns[0], time)
    known = np.asarray(pc.fill_null(times.cast(pa.int64()), MIN_MICROS))  # without windows a row may have no time
    order = np.lexsort((sort_ranks(values), known, numbers))
    return lists(values.take(pa.array(order)), np.bincount(numbers, minlength=len(groups)))


def _count_distinct(groups: Groups, output: Output, time: str) -> pa.Array:
    values, numbers = present_values(groups, output.columns[0])
    ranks = sort_ranks(values)
    order = np.lexsort((ranks, numbers))
    numbers, ranks = numbers[order], ranks[order]
    new = np.ones(len(numbers), bool)
    new[1:] = (numbers[1:] != numbers[:-1]) | (ranks[1:] != ranks[:-1])
    return pa.array(np.bincount(numbers[new], minlength=len(groups)).astype(np.int64))


def _top_k(groups: Groups, output: Output, time: str) -> pa.Array:
    (k,) = output.arguments
    assert isinstance(k, int)
    values, numbers = present_values(groups, output.columns[0])
    order = np.lexsort((-sort_ranks(values), numbers))
    counts = np.bincount(numbers, minlength=len(groups))
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return lists(values.take(pa.array(order[place < k])), np.minimum(counts, k))


_COLLECT_LIST = Descriptor("collect_list", lambda inputs: array(inputs.type), of_rows=_collect_list, needs_time=True)
_COUNT_DISTINCT = Descriptor("count_distinct", lambda inputs: BIGINT, of_rows=_count_distinct)
_TOP_K = Descriptor("top_k", lambda inputs: array(inputs.type), of_rows=_top_k)


def collect_list(col: str) -> Aggregate:
    """All values that are not null, by event time and then by value: in the same order whenever it is asked."""
    return _COLLECT_LIST(col)


def count_distinct(col: str) -> Aggregate:
    """How many different values there are, exactly; nulls are left out.

    >>> count_distinct("price").name
    'count(DISTINCT price)'
    """
    return _COUNT_DISTINCT(col, shown="count(DISTINCT {})")


def top_k(col: str, k: int) -> Aggregate:
    """The ``k`` largest values, largest first; nulls are left out.

    >>> top_k("price", 10).name
    'top_k(price, 10)'
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise AnalysisError(f"top_k: k must be a whole number of at least 1, but is {k!r}: top_k('price', 10)")
    return _TOP_K(col, arguments=(k,), shown=f"top_k({{}}, {k})")
