"""The stream that is run while its processes are killed: 30 small batches, late rows, keys with nulls."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa

from tailrace.testing import Aggregate, Question, Windows
from tailrace.testing.lateness import judge

EPOCHS = 30
SECOND = 1_000_000
SCHEMA = pa.schema(
    [("auction", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("price", pa.decimal128(12, 2)),
     ("score", pa.float64())]
)  # fmt: skip
GROUP = {"append": ("window", "auction", "name"), "update": ("auction", "name"), "late": ("window", "auction", "name")}


def question(mode: str) -> Question:
    """``append``: sliding windows. ``update``: a rolling aggregation, which has no second chance to be right.

    ``late``: windows so small that many rows are late.
    """
    aggregates = (
        Aggregate("count", None, "bids"),
        Aggregate("sum", "price", "total"),
        Aggregate("max", "price", "top"),
        Aggregate("first", "price", "opening"),
        Aggregate("avg", "score", "score"),
        Aggregate("stddev", "score", "spread"),
    )
    windows = {"append": Windows(10 * SECOND, 4 * SECOND), "late": Windows(2 * SECOND, 2 * SECOND)}.get(mode)
    output_mode = "append" if mode == "late" else mode
    return Question(("auction", "name"), aggregates, windows, "ts", 3 * SECOND, output_mode)


def batches(seed: int) -> tuple[pa.Table, ...]:
    rng = random.Random(seed)
    return tuple(_batch(rng, 1_700_000_000 + epoch * 3, rng.choice([0, 40, 200, 200, 200])) for epoch in range(EPOCHS))


def late_rows(seed: int) -> list[pa.Table]:
    """By epoch, the rows that count in no window of ``question("late")``."""
    tables = batches(seed)
    times = [table["ts"].cast(pa.int64()).to_pylist() for table in tables]
    counted = {(each.epoch, each.row) for each in judge(question("late"), times).contributions}
    return [
        table.filter(pa.array([(epoch, row) not in counted for row in range(len(table))], pa.bool_()))
        for epoch, table in enumerate(tables)
    ]


def _batch(rng: random.Random, now: int, rows: int) -> pa.Table:
    columns: list[list[object]] = [
        [rng.choice([None, *range(20)]) for _ in range(rows)],
        [rng.choice([None, "", "ä", "long name " * 4]) for _ in range(rows)],
        [(now - rng.randrange(10)) * SECOND + rng.randrange(SECOND) for _ in range(rows)],
        [Decimal(rng.randrange(10**12)).scaleb(-2) for _ in range(rows)],
        [rng.gauss(100, 15) for _ in range(rows)],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
