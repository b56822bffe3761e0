"""Which rows of a key are the best: the order that a description asks for, and the choice of a batch's rows.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailrace.ids import MIN_MICROS
from tailrace.operators.rows.keyed import Keyed
from tailrace.operators.top_n.kernels import best_rows
from tailrace.operators.top_n.spec import Order
from tailrace.state.layout import VALUE_KIND, RecordLayout
from tailrace.state.rows.rows import Rows
from tailrace.types import Field


def order_of(
    rows: Sequence[Field], order: Sequence[Order], time_column: Field | None, layout: RecordLayout
) -> np.ndarray:
    """For the kernel: what was asked for, then event time, then all other columns that are kept, ``rows``."""
    names = [row.name for row in rows]
    signs = {names.index(each.column): 1 if each.ascending else -1 for each in order}
    if time_column is not None and time_column.name in names:
        signs.setdefault(names.index(time_column.name), 1)
    for place in range(len(names)):
        signs.setdefault(place, 1)
    kinds = layout.program[:, VALUE_KIND]
    places = layout.accumulators
    terms = [(places[at].word, places[at].bit, kinds[at], sign) for at, sign in signs.items()]
    return np.array(terms, np.int64).reshape(-1, 4)


def latest(times: np.ndarray, groups: Keyed) -> np.ndarray:
    """The largest time of each group."""
    largest = np.full(len(groups), MIN_MICROS, np.int64)
    np.maximum.at(largest, groups.numbers, times)
    return largest


def best_of(rows: Rows, groups: Keyed, n: int, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row numbers, ``starts[groups + 1]``): of each group its ``n`` best rows, or all, the best first."""
    room = np.minimum(groups.sizes, n)
    starts = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    best = np.empty(int(starts[-1]), np.int64)
    best_rows(rows.words, rows.heap, groups.numbers, order, starts, np.zeros(len(room), np.int64), best)
    return best, starts
