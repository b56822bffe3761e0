"""Random columns of every type, with the values that break things in them: extremes, nulls, NaN, any Unicode.

Values come from a seeded ``random.Random``, so that one integer stands for a whole table; a failing example prints it.
"""

from __future__ import annotations

import math
import random
import struct
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = pa.timestamp("us", "UTC")
NTZ = pa.timestamp("us")
DAY_MICROS = 86_400_000_000
# Years 1 and 9999: what Spark's own types hold, and what a Python date can show in a message.
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999

ARROW: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(19,0)": pa.decimal128(19, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "decimal(38,38)": pa.decimal128(38, 38),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ntz": NTZ,
    "binary": pa.binary(),
}
KEY_TYPES = tuple(name for name in ARROW if name not in ("float", "double"))
NUMBERS = tuple(name for name in ARROW if "int" in name or name in ("float", "double") or name.startswith("decimal"))


def is_decimal(type_name: str) -> bool:
    return type_name.startswith("decimal")


def _integer(bits: int, rng: random.Random) -> int:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return rng.choice([low, high, 0, -1, 1, rng.randint(low, high), rng.randint(-3, 3)])


def _float32(rng: random.Random) -> float:
    exact = struct.unpack("f", struct.pack("f", rng.uniform(-1e6, 1e6)))[0]
    return rng.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, 2.0**-149, 3.4028234663852886e38, exact])


def _double(rng: random.Random) -> float:
    drawn = rng.uniform(-1e6, 1e6)
    return rng.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308, -1e-300, drawn])


def _decimal(type_name: str, rng: random.Random, digits_max: int | None = None) -> Decimal:
    type_ = ARROW[type_name]
    digits = min(type_.precision, digits_max or type_.precision)
    complete = rng.choice([0, 1, -1, 10**digits - 1, 1 - 10**digits, rng.randint(1 - 10**digits, 10**digits - 1)])
    sign, figures, _ = Decimal(complete).as_tuple()
    return Decimal((sign, figures, -type_.scale))


_POINTS = ("", "a", "A", "\x00", "é", "e\u0301", "ß", "中", "\uffff", "😀", "\U0010ffff", " ", "'\"\\`\n", "\u202e")


def _string(rng: random.Random) -> str:
    drawn = "".join(chr(_code_point(rng)) for _ in range(rng.randrange(6)))
    long = "x" * rng.choice([7, 8, 9, 15, 16, 17, 300])
    return rng.choice([*_POINTS, drawn, long, unicodedata.normalize("NFD", "ü" + drawn)])


def _code_point(rng: random.Random) -> int:
    while True:
        point = rng.randrange(0x110000)
        if not 0xD800 <= point <= 0xDFFF:  # a lone surrogate is no text
            return point


def _bytes(rng: random.Random) -> bytes:
    size = rng.choice([0, 1, 7, 8, 9, 40])
    return rng.choice([b"", b"\x00", b"\x00\x00", b"\xff" * 8, rng.randbytes(size)])


def _time(rng: random.Random) -> int:
    return rng.choice([0, -1, FIRST_MICROS, LAST_MICROS, rng.randint(FIRST_MICROS, LAST_MICROS), rng.randint(-9, 9)])


def draw(type_name: str, rng: random.Random) -> Any:
    """One value that is not null, as ``pa.array`` takes it for this type."""
    if is_decimal(type_name):
        return _decimal(type_name, rng)
    makers: dict[str, Callable[[], Any]] = {
        "tinyint": lambda: _integer(8, rng),
        "smallint": lambda: _integer(16, rng),
        "int": lambda: _integer(32, rng),
        "bigint": lambda: _integer(64, rng),
        "float": lambda: _float32(rng),
        "double": lambda: _double(rng),
        "string": lambda: _string(rng),
        "boolean": lambda: rng.random() < 0.5,
        "date": lambda: _time(rng) // DAY_MICROS,
        "timestamp": lambda: _time(rng),
        "timestamp_ntz": lambda: _time(rng),
        "binary": lambda: _bytes(rng),
    }
    return makers[type_name]()


def draw_summable(type_name: str, rng: random.Random) -> Any:
    """A value whose sums depend on no order: none that leaves its type half-way and comes back.

    Doubles keep infinities and NaN, which swallow everything in any order, but no finite value near the largest.
    Decimals keep all their digits where ten more are left for the sum, as Spark's type of a sum has them.
    """
    if type_name == "double":
        return rng.choice([_double_tame(rng)] * 9 + [math.nan, math.inf, -math.inf])
    if type_name == "float":
        return rng.choice([_float32_tame(rng)] * 9 + [math.nan, math.inf, -math.inf])
    if is_decimal(type_name):
        type_ = ARROW[type_name]
        # avg has four more digits after the point and the sum ten more before it: 38 must hold both.
        return _decimal(type_name, rng, digits_max=min(type_.precision, 28 if type_.scale < 30 else 33))
    return draw(type_name, rng)


def _double_tame(rng: random.Random) -> float:
    return rng.choice([-0.0, 0.0, 1.0, rng.uniform(-1e6, 1e6), rng.gauss(0, 1), rng.uniform(-1e50, 1e50)])


def _float32_tame(rng: random.Random) -> float:
    return float(struct.unpack("f", struct.pack("f", rng.choice([-0.0, 0.5, rng.uniform(-1e6, 1e6)])))[0])


@dataclass(frozen=True)
class Pool:
    """A few values of one type, null among them or not, to draw keys from: so keys repeat."""

    type_name: str
    values: tuple[Any, ...]

    @classmethod
    def make(cls, type_name: str, rng: random.Random, size: int, *, nulls: bool) -> Pool:
        values = [draw(type_name, rng) for _ in range(size)]
        return cls(type_name, tuple([None, *values] if nulls else values))


def array(type_name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, ARROW[type_name])


def largest_magnitude(column: pa.ChunkedArray) -> float:
    """The largest finite magnitude of a number column, for the tolerance of sums."""
    finite = [abs(float(v)) for v in column.to_pylist() if v is not None and math.isfinite(v)]
    return max(finite, default=0.0)
