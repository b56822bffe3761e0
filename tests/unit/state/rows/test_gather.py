"""Rows of several sources as columns: what a copy of them, put in order row by row, would say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.state.layout import AccumulatorWords, KeyWords, Merge, record_layout
from tailrace.state.rows import gather as spread_module
from tailrace.state.rows.arrange import Slices, arrange
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.gather import spread
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import spread_section
from tailrace.types import BIGINT, DataType, Field

TYPES = (DataType("string"), BIGINT, DataType("binary"), DataType("decimal(30,2)"), DataType("double"))
ARROW = (pa.string(), pa.int64(), pa.binary(), pa.decimal128(30, 2), pa.float64())
LAYOUT = record_layout([Field("k", TYPES[0])], [(Merge.ROW, type_) for type_ in TYPES[1:]], ansi=False)
PLACES: tuple[KeyWords | AccumulatorWords, ...] = (*LAYOUT.keys, *LAYOUT.accumulators)

ROW = st.tuples(
    st.none() | st.text(max_size=5),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(max_size=70),
    st.none() | st.decimals(-(10**20), 10**20, allow_nan=False, places=2),
    st.none() | st.floats(allow_nan=False),
)
SOURCES = st.lists(st.lists(ROW, max_size=12), max_size=4)


def rows_of(values: list[tuple[Any, ...]]) -> Rows:
    builder = RowsBuilder(len(values), LAYOUT)
    for number, (type_, arrow, place) in enumerate(zip(TYPES, ARROW, PLACES, strict=True)):
        builder.put(pa.array([row[number] for row in values], arrow), type_, place.word, place.bit)
    rows = builder.finish()
    rows.words[:, 0] = np.arange(len(values))
    return rows


@given(SOURCES, st.sampled_from([1, 8]), st.data())
def test_columns_in_any_order(sources: list[list[tuple[Any, ...]]], heaps_max: int, data: st.DataObject) -> None:
    slices, values = [], []
    for source in sources:
        edges = sorted(data.draw(st.lists(st.integers(0, len(source)), max_size=6), label="edges"))
        lo, hi = edges[: len(edges) // 2 * 2 : 2], edges[1::2]
        slices.append(Slices(rows_of(source), np.array(lo, np.int64), np.array(hi, np.int64)))
        values += [row for low, high in zip(lo, hi, strict=True) for row in source[low:high]]
    order = np.array(data.draw(st.permutations(range(len(values))), label="order"), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread_module, "_HEAPS_MAX", heaps_max)
        found = spread(slices, LAYOUT)
    assert len(found) == len(values) and len(found.heaps) <= heaps_max
    for number, place in enumerate(PLACES):
        assert found.column(place).to_pylist() == [row[number] for row in values]
        assert found.column(place, order).to_pylist() == [values[at][number] for at in order]
    section = spread_section(found, LAYOUT, order)
    assert section.slice(0).validate(full=True) is None
    assert section.select(["k0"]).to_pydict()["k0"] == [values[at][0] for at in order]


@given(SOURCES, st.integers(0, 2**16))
def test_rows_that_keep_their_heaps(sources: list[list[tuple[Any, ...]]], seed: int) -> None:
    """``arrange`` gives the same rows and sizes, whether their strings move with them or not."""
    parts = [rows_of(source) for source in sources]
    every = [Slices(rows, np.arange(len(rows)), np.arange(len(rows)) + 1) for rows in parts]
    count = sum(map(len, parts))
    keys = np.random.default_rng(seed).integers(0, 4, count).astype(np.uint64)
    copied, moved = (arrange(every, keys, LAYOUT, exact=False, whole_heaps=complete) for complete in (False, True))
    assert np.array_equal(copied.order, moved.order) and np.array_equal(copied.heap_starts, moved.heap_starts)
    complete = [Slices(one.rows, np.array([0]), np.array([count])) for one in (copied, moved)]
    first, second = (spread_section(spread([each], LAYOUT), LAYOUT) for each in complete)
    assert first.equals(second)
