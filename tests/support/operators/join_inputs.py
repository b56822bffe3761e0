"""Joins of each kind, and batches of rows of both sides as a join's tasks get them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.ids import Micros
from tailrace.operators.join.spec import How, JoinKind, JoinSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

STAMP = pa.timestamp("us", tz="UTC")
SECOND = 1_000_000
WINDOW = TimeWindowSpec(Micros(20 * SECOND), Micros(10 * SECOND), Micros(3))


def spec_of(kind: JoinKind, how: How = How.INNER, **options: Any) -> JoinSpec:
    defaults: dict[str, Any] = {
        "name": "instructions",
        "keys": (Field("k", BIGINT),),
        "left": (Field("a", DataType("string")), Field("until", TIMESTAMP)),
        "right": (Field("b", BIGINT),),
        "shards": 4,
        "watermarked": True,
    }
    return JoinSpec(kind=kind, how=how, **{**defaults, **options})


SPECS = {
    "interval": spec_of(JoinKind.INTERVAL, lower=Micros(-5 * SECOND), upper=Micros(5 * SECOND)),
    "outer interval": spec_of(JoinKind.INTERVAL, How.LEFT_OUTER, lower=Micros(-5 * SECOND), upper=Micros(5 * SECOND)),
    "window": spec_of(JoinKind.WINDOW, window=WINDOW),
    "outer window": spec_of(JoinKind.WINDOW, How.LEFT_OUTER, window=WINDOW),
    "continuous": spec_of(JoinKind.CONTINUOUS, valid_to="until"),
    "ttl": spec_of(JoinKind.TTL, ttl=Micros(SECOND)),
    "semi interval": spec_of(JoinKind.INTERVAL, How.LEFT_SEMI, lower=Micros(-5 * SECOND), upper=Micros(5 * SECOND)),
}


def both_sides(times: list[int | None], sides: list[int], keys: list[int]) -> pa.RecordBatch:
    count, left = len(times), np.array(sides, bool)
    return pa.RecordBatch.from_pydict(
        {
            "k": pa.array(keys, pa.int64()),
            "__side": pa.array(left, pa.bool_()),
            "__time": pa.array(times, STAMP),
            "a": pa.array([f"row {i}" for i in range(count)], pa.string(), mask=left),
            "until": pa.array([None if t is None else t + 3 * SECOND for t in times], STAMP),
            "b": pa.array(list(range(count)), pa.int64(), mask=~left),
        }
    )
