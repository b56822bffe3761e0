"""Sets of distinct rows of several columns: what is equal, what is left out, and that no division of rows matters."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tailrace as tr
from support.bids import bids
from tailrace.operators.aggregate.accumulators import Inputs
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.functions.packed_values import BINARY, unpack
from tailrace.operators.aggregate.functions.states import State, state_of
from tailrace.types import DataType

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]


def state(*types: str) -> State:
    columns = tuple(f"c{number}" for number in range(len(types)))
    inputs = Inputs(columns, tuple(map(DataType, types)))
    spec = DESCRIPTORS["count_distinct"].accumulators(inputs)[0].state
    assert spec is not None
    return state_of(spec)


def counts(state: State, columns: list[pa.Array], offsets: list[int]) -> list[int]:
    (sets,) = state.update(columns, np.array(offsets))
    return unpack(sets, BINARY)[1].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("types", "rows", "different"),
    [
        # Put together as they are, all of these would be "abc".
        (("string", "string"), [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a", "bc")], 4),
        (("int", "string"), [(1, "x"), (None, "x"), (1, None), (None, None), (1, "x")], 1),
        (("double", "bigint"), [(math.nan, 1), (OTHER_NAN, 1), (0.0, 1), (-0.0, 1), (0.0, 2)], 3),
        (("float", "boolean"), [(0.5, True), (0.5, False), (math.nan, True), (math.nan, True)], 3),
        (("decimal(30,2)", "date"), [(Decimal("1.00"), 1), (Decimal("1.0"), 1), (Decimal("-1"), 1)], 2),
        (("binary", "tinyint", "string"), [(b"\0", 1, ""), (b"", 1, "\0"), (b"\0", 1, "")], 2),
        (("int", "string"), [(None, "x"), (1, None)], 0),
    ],
)
def test_which_rows_are_different(types: tuple[str, ...], rows: list[tuple[Any, ...]], different: int) -> None:
    arrow = {"decimal(30,2)": pa.decimal128(30, 2), "date": pa.date32(), "float": pa.float32(), "binary": pa.binary()}
    arrow |= {"int": pa.int32(), "tinyint": pa.int8()}
    columns = [pa.array(values, arrow.get(type_)) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    assert counts(state(*types), columns, [0, len(rows)]) == [different]
    # Each row by itself, and then all of them.
    parts = state(*types).update(columns, np.arange(len(rows) + 1))
    (merged,) = state(*types).merge(parts, np.array([0, len(rows)]))
    assert unpack(merged, BINARY)[1].tolist() == [different]


def test_random_rows_in_random_groups() -> None:
    random = np.random.default_rng(11)
    numbers, texts = random.integers(0, 9, 4_000), [f"t{n}" * (n % 4) for n in random.integers(0, 9, 4_000)]
    gaps = random.random((2, 4_000)) < 0.1
    columns = [pa.array(numbers, mask=gaps[0]), pa.array(texts, mask=gaps[1])]
    offsets = np.unique([0, 4_000, *random.integers(0, 4_000, 90)])
    pairs = list(zip(columns[0].to_pylist(), columns[1].to_pylist(), strict=True))
    wanted = [len({pair for pair in pairs[low:high] if None not in pair}) for low, high in pairwise(offsets.tolist())]
    assert counts(state("bigint", "string"), columns, offsets.tolist()) == wanted


def test_names() -> None:
    assert tr.count_distinct("price", "a.b").name == "count(DISTINCT price, a.b)"
    stream = bids().groupBy("auction").agg({"price": "count_distinct"})
    assert stream.columns == ["auction", "count(DISTINCT price)"]
