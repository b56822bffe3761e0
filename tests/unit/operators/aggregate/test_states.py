"""States of sets, top lists and chosen pairs: values at the edges of every type, however rows were divided.

The oracle sorts and counts in plain Python, as Spark orders values: NaN is one value and the largest, -0.0 is 0.0.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace.api.aggregates import Aggregate
from tailrace.operators.aggregate.accumulators import Inputs
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.functions.packed_values import unpack
from tailrace.operators.aggregate.functions.states import State, state_of
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NASTY: dict[str, list[Any]] = {
    "bigint": [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1],
    "tinyint": [-128, 0, 127],
    "double": [math.nan, OTHER_NAN, -math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -1.5, 1.5],
    "float": [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5],
    "string": ["", "\0", "\0\0", "a", "a\0", "ä", "\U0001f600", "a" * 300],
    "binary": [b"", b"\0", b"\xff", b"\xff\0", b"a" * 300],
    "boolean": [True, False],
    "date": [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)],
    "timestamp": [EPOCH - datetime.timedelta(microseconds=1), EPOCH, EPOCH + datetime.timedelta(days=10**6)],
    "decimal(18,2)": [
        Decimal("-9999999999999999.99"),
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("9999999999999999.99"),
    ],
    "decimal(38,0)": [Decimal(-(10**38) + 1), Decimal(-1), Decimal(0), Decimal(2**64), Decimal(10**38 - 1)],
}


def state(aggregate: Aggregate, *types: str) -> State:
    inputs = Inputs(aggregate.columns, tuple(map(DataType, types)), aggregate.arguments, aggregate.code)
    accumulator, *_ = DESCRIPTORS[aggregate.function.name].accumulators(inputs)
    assert accumulator.state is not None
    return state_of(accumulator.state)


def order(value: Any) -> Any:
    """What sorts, and equals, as Spark does."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


def same(mine: Sequence[Any], right: Sequence[Any]) -> bool:
    return list(map(order, mine)) == list(map(order, right))


def merged(of: State, columns: Sequence[pa.Array], cuts: Sequence[int]) -> list[pa.Array]:
    """The state of all rows, made of the states of parts, which are merged two by two and then at once."""
    edges = [0, *cuts, len(columns[0])]
    parts = [
        of.update([column.slice(low, high - low) for column in columns], np.array([0, high - low]))
        for low, high in pairwise(edges)
        if low < high
    ]
    while len(parts) > 3:
        both = [pa.concat_arrays(pair) for pair in zip(parts[0], parts[1], strict=True)]
        parts = [list(of.merge(both, np.array([0, 2]))), *parts[2:]]
    together = [pa.concat_arrays(part) for part in zip(*parts, strict=True)]
    return list(of.merge(together, np.array([0, len(parts)])))


@st.composite
def rows(draw: Callable[..., Any], type_: str) -> tuple[list[Any], list[int]]:
    values = draw(st.lists(st.one_of(st.none(), st.sampled_from(NASTY[type_])), min_size=1, max_size=12))
    return values, sorted(draw(st.sets(st.integers(1, 11), max_size=6)) & set(range(len(values))))


@pytest.mark.parametrize("type_", NASTY)
@given(data=st.data())
@settings(max_examples=40)
def test_sets_and_top_lists(type_: str, data: st.DataObject) -> None:
    values, cuts = data.draw(rows(type_))
    column = pa.array(values, arrow_type(DataType(type_)))
    there = [value for value in column.to_pylist() if value is not None]
    best = sorted(there, key=order, reverse=True)
    once = [value for at, value in enumerate(best) if not at or order(value) != order(best[at - 1])]
    (found,) = merged(state(tr.collect_set("x"), type_), [column], cuts)
    members, counts = unpack(found, DataType(type_))
    assert same(members.to_pylist(), once[::-1]) and counts.tolist() == [len(once)]
    (found,) = merged(state(tr.top_k("x", 3), type_), [column], cuts)
    members, counts = unpack(found, DataType(type_))
    assert same(members.to_pylist(), best[:3]) and counts.tolist() == [min(3, len(best))]


@pytest.mark.parametrize("type_", NASTY)
@given(data=st.data())
@settings(max_examples=40)
def test_pairs_are_chosen_by_their_order_and_then_by_value(type_: str, data: st.DataObject) -> None:
    values, cuts = data.draw(rows(type_))
    orders = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(NASTY["double"])), min_size=12))[: len(values)]
    columns = [pa.array(values, arrow_type(DataType(type_))), pa.array(orders, pa.float64())]
    pairs = [(value, by) for value, by in zip(columns[0].to_pylist(), orders, strict=True) if by is not None]
    ranked = sorted(
        pairs, key=lambda pair: (order(pair[1]), pair[0] is not None, order(pair[0]) if pair[0] is not None else 0)
    )
    for aggregate, at in ((tr.min_by("x", "y"), 0), (tr.max_by("x", "y"), -1)):
        value, by = (array.to_pylist()[0] for array in merged(state(aggregate, type_, "double"), columns, cuts))
        right = ranked[at] if ranked else (None, None)
        assert (value is None) == (right[0] is None) and (by is None) == (right[1] is None)
        assert value is None or order(value) == order(right[0])
        assert by is None or order(by) == order(right[1])


@pytest.mark.parametrize("type_", NASTY)
@given(data=st.data())
@settings(max_examples=20)
def test_a_sketch_counts_values_and_not_their_forms(type_: str, data: st.DataObject) -> None:
    values, cuts = data.draw(rows(type_))
    column = pa.array(values, arrow_type(DataType(type_)))
    sketch = state(tr.approx_count_distinct("x", 0.01), type_)
    (divided,), (whole,) = merged(sketch, [column], cuts), sketch.update([column], np.array([0, len(values)]))
    assert divided.to_pylist() == whole.to_pylist()
    different = {order(value) for value in column.to_pylist() if value is not None}
    assert len(whole[0].as_py()) == 4 * len(different), "each uses a register, of 4,096, and none of these meet"
