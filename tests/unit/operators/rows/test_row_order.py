"""Rows in the order of several columns: as Python sorts tuples of them, with null first and NaN last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.operators.rows.row_order import in_order, row_order

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2, 2**63 - 1])),
    "int": (pa.int32(), st.integers(-3, 3)),
    "timestamp": (pa.timestamp("us", "UTC"), st.integers(-5, 5)),
    "date": (pa.date32(), st.integers(0, 3)),
    "double": (pa.float64(), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan])),
    "string": (pa.string(), st.sampled_from(["", "a", "ab", "b", "ä"])),
    "boolean": (pa.bool_(), st.booleans()),
}


def rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        return (2, 0) if math.isnan(value) else (1, value + 0.0)
    return (1, value.encode() if isinstance(value, str) else value)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 40))
    columns = [draw(st.lists(st.none() | VALUES[kind][1], min_size=rows, max_size=rows)) for kind in kinds]
    return kinds, columns


@settings(max_examples=150)
@given(tables())
def test_as_python_sorts(table: tuple[list[str], list[list[Any]]]) -> None:
    kinds, columns = table
    arrays = [pa.array(column, VALUES[kind][0]) for kind, column in zip(kinds, columns, strict=True)]
    count = len(columns[0])
    wanted = sorted(range(count), key=lambda row: [rank(column[row]) for column in columns])
    assert row_order(arrays, count).tolist() == wanted  # both leave equal rows as they are


@pytest.mark.parametrize("rows", [1, 1_999, 2_000, 50_000])
def test_many_rows_that_differ_late(rows: int) -> None:
    """Also by counting instead of comparing, and with more bits than one key has."""
    rng = np.random.default_rng(rows)
    numbers = [rng.integers(0, 3, rows), rng.integers(-(2**62), 2**62, rows) // 2**60, rng.integers(0, 2**62, rows)]
    texts = pa.array([f"{n % 7}" for n in range(rows)])
    columns = {"a": pa.array(numbers[0]), "b": pa.array(numbers[1]), "text": texts, "c": pa.array(numbers[2])}
    got = in_order(columns, ["a", "b", "text", "c"])
    wanted = pa.table(columns).sort_by([(name, "ascending") for name in ("a", "b", "text", "c")])
    assert pa.table(got).equals(wanted.combine_chunks())
