"""Random streams of a few rows: schemas of all types, values that come again, nulls everywhere, rows that are late.

Every stream has an event time ``ts``, a number ``u`` that no other row of the stream has, and a number ``o`` that no
other row of its batch has. All values come from a seeded ``random.Random``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

START = datetime(2026, 3, 28, 20, tzinfo=UTC)  # clocks go forward in Europe in the night after it
_LOCAL = START.replace(tzinfo=None)
TIME, UNIQUE, ONCE = "ts", "u", "o"
SECOND = timedelta(seconds=1)
_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Kind:
    """A type, and the values that a column may have. ``family``: which expressions it may stand in.

    Finite doubles are eighths, so that their sums are exact in any order; others are in no arithmetic but sums.
    """

    type_: pa.DataType
    family: str
    values: tuple[Any, ...]


_EIGHTHS = tuple(n / 8 for n in (-40, -3, 0, 1, 8, 11, 40))
KINDS = {
    "tiny": Kind(pa.int8(), "integer", (-5, 0, 1, 7)),
    "small": Kind(pa.int16(), "integer", (-300, 0, 1, 300)),
    "int": Kind(pa.int32(), "integer", (-5, -1, 0, 1, 2, 3, 40_000)),
    "long": Kind(pa.int64(), "integer", (-(1 << 40), -1, 0, 1, 2, 1 << 40)),
    "widest": Kind(pa.int64(), "extreme", (-(1 << 63), -1, 0, (1 << 63) - 1)),
    "finite": Kind(pa.float64(), "finite", _EIGHTHS),
    "double": Kind(pa.float64(), "double", (*_EIGHTHS, 0.0, -0.0, math.nan, math.inf, -math.inf)),
    "float": Kind(pa.float32(), "double", (*_EIGHTHS, -0.0, math.nan, math.inf)),
    "money": Kind(pa.decimal128(12, 2), "decimal", tuple(Decimal(n).scaleb(-2) for n in (-500, -1, 0, 1, 99, 10**9))),
    "wide": Kind(pa.decimal128(30, 4), "decimal", tuple(Decimal(n).scaleb(-4) for n in (-(10**26), -7, 0, 5, 10**26))),
    "text": Kind(pa.string(), "string", ("", "a", "A", "ab", "ß", "é", "e\u0301", "😀", " a", "over eight bytes")),
    "flag": Kind(pa.bool_(), "boolean", (True, False)),
    "day": Kind(pa.date32(), "date", (date(1969, 12, 31), date(2026, 3, 29), date(2026, 3, 30))),
    "at": Kind(_TIMESTAMP, "timestamp", (START, START + timedelta(hours=5, microseconds=1), START - timedelta(400))),
    "local": Kind(pa.timestamp("us"), "local", tuple(_LOCAL + n * timedelta(hours=3) for n in range(3))),
    "raw": Kind(pa.binary(), "binary", (b"", b"\x00", b"\xff\x00", b"more than eight bytes")),
}  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """Event time goes on by ``step`` a batch; rows lie ``spread`` around it. ``late``: the share far behind."""

    step: timedelta
    spread: timedelta
    late: float
    nulls: float


@dataclass(frozen=True)
class Script:
    """The batches of one stream. ``columns``: kinds by name, without the three that every stream has."""

    columns: dict[str, str]
    prefix: str
    tables: tuple[pa.Table, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.tables[0].schema


def script(
    rng: Random, columns: dict[str, str], timing: Timing, sizes: Sequence[int], closing: int, prefix: str = ""
) -> Script:
    """``closing``: how many batches of one row follow, far behind all others, so that nothing stays open."""
    pools = {
        name: [None] * rng.choice([0, 1, 1]) + rng.sample(KINDS[kind].values, min(4, len(KINDS[kind].values)))
        for name, kind in columns.items()
    }
    unique = iter(rng.sample(range(1 << 20), sum(sizes) + closing))
    rows: list[list[dict[str, Any]]] = []
    for epoch, size in enumerate(sizes):
        once = rng.sample(range(size + 3), size)
        rows.append([_row(rng, pools, timing, epoch, next(unique), once[n]) for n in range(size)])
    for number in range(closing):
        row = _row(rng, pools, timing, 0, next(unique), -1 - number)
        known = {name: KINDS[kind].values[-1] for name, kind in columns.items()}  # a null would be no key
        rows.append([{**row, **known, TIME: START + timedelta(days=30 * (1 + number))}])
    fields = [(TIME, _TIMESTAMP), (UNIQUE, pa.int64()), (ONCE, pa.int32())]
    fields += [(name, KINDS[kind].type_) for name, kind in columns.items()]
    bare = pa.schema(fields)
    named = [prefix + name for name in bare.names]
    return Script(columns, prefix, tuple(pa.Table.from_pylist(each, bare).rename_columns(named) for each in rows))


def _row(
    rng: Random, pools: dict[str, list[Any]], timing: Timing, epoch: int, unique: int, once: int
) -> dict[str, Any]:
    at = START + timing.step * epoch + timing.spread * rng.uniform(-1, 1)
    if rng.random() < timing.late:
        at -= timing.step * rng.choice([2, 3, 20])
    if rng.random() < 0.4:  # on the edges of windows
        at -= timedelta(seconds=at.second % 5, microseconds=at.microsecond)
    values = {name: rng.choice(pool) for name, pool in pools.items()}
    return {TIME: None if rng.random() < timing.nulls else at, UNIQUE: unique, ONCE: once, **values}
