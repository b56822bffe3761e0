"""What the programs read, small and drawn from a seed: times go on from batch to batch, a little out of order.

The last two batches of each have one row at one late time: so everything before it is closed on both engines, whether
they go by what was seen before a batch or in it, and that row itself is not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
_BATCHES, _ROWS = 4, 8
_END = timedelta(days=10)
_TIME = pa.timestamp("us", "UTC")
_WORDS = ("owl", "fox", "hen")

Batches = tuple[pa.Table, ...]
Row = dict[str, Any]


def batches(schema: pa.Schema, row: Callable[[random.Random, datetime], Row], step: timedelta) -> Batches:
    """``row``: from a draw and a time."""
    rng = random.Random(7)
    made: list[Sequence[Row]] = [
        [row(rng, START + step * (number + rng.uniform(-0.4, 1))) for _ in range(_ROWS)] for number in range(_BATCHES)
    ]
    made += [[row(rng, START + _END)]] * 2
    return tuple(pa.Table.from_pylist(list(rows), schema) for rows in made)


def lines(step: timedelta = timedelta(minutes=4), binary: bool = False) -> Batches:
    """Lines of words, as sockets and Kafka give them, with the time at which they came."""

    def row(rng: random.Random, at: datetime) -> Row:
        text = " ".join(rng.choice(_WORDS) for _ in range(rng.randint(1, 4)))
        return {"value": text.encode() if binary else text, "timestamp": at}

    return batches(pa.schema([("value", pa.binary() if binary else pa.string()), ("timestamp", _TIME)]), row, step)


def devices() -> Batches:
    def row(rng: random.Random, at: datetime) -> Row:
        number = rng.randint(1, 5)
        kind = "phone" if number % 2 else "lamp"
        return {"device": f"d{number}", "deviceType": kind, "signal": rng.randint(0, 160) / 8, "time": at}

    schema = pa.schema(
        [("device", pa.string()), ("deviceType", pa.string()), ("signal", pa.float64()), ("time", _TIME)]
    )
    return batches(schema, row, timedelta(minutes=1))


def users() -> Batches:
    def row(rng: random.Random, at: datetime) -> Row:
        return {"timestamp": at, "userId": f"user{rng.randint(1, 3)}"}

    return batches(pa.schema([("timestamp", _TIME), ("userId", pa.string())]), row, timedelta(minutes=9))


def impressions() -> Batches:
    def row(rng: random.Random, at: datetime) -> Row:
        return {"impressionAdId": rng.randint(1, 6), "impressionTime": at}

    return batches(pa.schema([("impressionAdId", pa.int64()), ("impressionTime", _TIME)]), row, timedelta(minutes=40))


def clicks() -> Batches:
    def row(rng: random.Random, at: datetime) -> Row:
        return {"clickAdId": rng.randint(3, 9), "clickTime": at + timedelta(minutes=rng.randint(0, 50))}

    return batches(pa.schema([("clickAdId", pa.int64()), ("clickTime", _TIME)]), row, timedelta(minutes=40))


def events() -> Batches:
    """Of which some come twice, at the same time."""
    guids = pa.schema([("guid", pa.string()), ("eventTime", _TIME), ("payload", pa.int64())])

    def row(rng: random.Random, at: datetime) -> Row:
        number = rng.randint(0, 9)
        return {"guid": f"g{number}", "eventTime": at.replace(second=0, microsecond=0), "payload": number}

    return batches(guids, row, timedelta(minutes=3))
