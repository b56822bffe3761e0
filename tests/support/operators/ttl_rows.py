"""Random rows with everything that a key and a value can be, at times around a given one."""

from __future__ import annotations

import random
from collections.abc import Callable

from support.operators.ttl_scenario import Row
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

TEXT = DataType("string")
K, N, TS, V, S = (Field("k", TEXT), Field("n", BIGINT), Field("ts", TIMESTAMP), Field("v", BIGINT), Field("s", TEXT))
COLUMNS = (K, N, TS, V, S)


def row_maker(rng: random.Random) -> Callable[[int], Row]:
    names = [(rng.choice(["", "a", "bee", None, "long " * 9]), rng.choice([0, 1, None])) for _ in range(12)]

    def make(time: int) -> Row:
        k, n = rng.choice(names)
        ts = rng.choice([None, *[time + rng.randint(-20, 3)] * 9])
        v = rng.choice([None, rng.randint(0, 3), rng.randint(-(10**9), 10**9)])
        return {"k": k, "n": n, "ts": ts, "v": v, "s": rng.choice([None, "", "row", "é" * 20])}

    return make
