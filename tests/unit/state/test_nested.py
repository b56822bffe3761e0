"""Nested values as byte strings, and back: what went in comes out."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from tailrace.state.nested.pack import pack_nested
from tailrace.state.nested.unpack import unpack_nested

PLAIN = {
    pa.int8(): lambda rng: rng.randrange(-128, 128),
    pa.int16(): lambda rng: rng.randrange(-(2**15), 2**15),
    pa.int32(): lambda rng: rng.randrange(-(2**31), 2**31),
    pa.int64(): lambda rng: rng.randrange(-(2**63), 2**63),
    pa.float32(): lambda rng: float(rng.randrange(100)),
    pa.float64(): lambda rng: rng.random(),
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.date32(): lambda rng: rng.randrange(20_000),
    pa.timestamp("us", tz="UTC"): lambda rng: rng.randrange(2**50),
    pa.timestamp("us"): lambda rng: rng.randrange(2**50),
    pa.decimal128(20, 2): lambda rng: Decimal(rng.randrange(10**18)) / 100,
    pa.string(): lambda rng: "ab\0ß"[: rng.randrange(5)] * rng.randrange(3),
    pa.binary(): lambda rng: bytes(rng.randrange(256) for _ in range(rng.randrange(4))),
}
NULLS = 0.2


def drawn_type(rng: random.Random, depth: int) -> pa.DataType:
    kind = rng.choice(["plain", "struct", "list", "map"]) if depth else "plain"
    if kind == "plain":
        return rng.choice(list(PLAIN))
    if kind == "list":
        return pa.list_(drawn_type(rng, depth - 1))
    if kind == "map":
        return pa.map_(pa.string(), drawn_type(rng, depth - 1))
    return pa.struct([(f"f{n}", drawn_type(rng, depth - 1)) for n in range(rng.randrange(4))])


def drawn_value(rng: random.Random, type_: pa.DataType) -> object:
    if rng.random() < NULLS:
        return None
    if pa.types.is_map(type_):
        return [(f"k{n}", drawn_value(rng, type_.item_type)) for n in range(rng.randrange(4))]
    if pa.types.is_list(type_):
        return [drawn_value(rng, type_.value_type) for _ in range(rng.randrange(5))]
    if pa.types.is_struct(type_):
        return {field.name: drawn_value(rng, field.type) for field in type_}
    return PLAIN[type_](rng)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_values_come_back(depth: int) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(30):
        type_ = drawn_type(rng, depth)
        values = [drawn_value(rng, type_) for _ in range(rng.randrange(40))]
        array = pa.array(values, type_)
        first = rng.randrange(len(values) + 1)
        for part in (array, array.slice(first), array.slice(0, first)):
            packed = pack_nested(part)
            assert packed.null_count == part.null_count
            for some in (packed, packed.slice(len(part) // 2), packed.cast(pa.binary())):
                made = unpack_nested(some, type_)
                made.validate(full=True)
                assert made.to_pylist() == part.slice(len(part) - len(some)).to_pylist(), (seed, type_)


def test_equal_values_have_equal_bytes_whatever_lies_below_nulls() -> None:
    """Arrow may have anything where a value is null."""
    type_ = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    wanted = pa.array([{"a": None, "b": None}, {"a": 1, "b": {"c": None}}], type_)
    inner = pa.StructArray.from_arrays([pa.array(["x", None])], names=["c"], mask=pa.array([True, False]))
    numbers = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.array([7, 1]).buffers()[1]])
    other = pa.StructArray.from_arrays([numbers, inner], names=["a", "b"])
    assert pack_nested(other).to_pylist() == pack_nested(wanted).to_pylist()
