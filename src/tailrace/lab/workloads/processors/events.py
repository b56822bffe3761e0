"""Rows of (key, value, time, its milliseconds), of which every batch names as many different keys as are asked for.

Each batch draws its keys anew from ``others`` times as many, and each of them has as many rows as fit. Times go on by
``BATCH_S`` a batch. From the settings alone: the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.lab.registry import Batch, Parameter, Settings

FEED = "events"
SCHEMA = "key bigint, value bigint, ts timestamp, ms bigint"
BATCH_S = 10
START_S = 1_767_225_600  # 2026-01-01 00:00:00 UTC
PARAMETERS = {
    "keys": Parameter(100_000, "different keys of each batch"),
    "others": Parameter(2, "so many times as many keys are there in all"),
}

_MICROS = 1_000_000
_VALUE_MAX = 1_000


def inputs(settings: Settings) -> Iterator[Batch]:
    keys, others = int(settings.values["keys"]), int(settings.values["others"])
    for number, begin in enumerate(range(0, settings.events, settings.rows)):
        yield {FEED: _batch(number, keys, others, min(settings.rows, settings.events - begin), settings.seed)}


def _batch(number: int, keys: int, others: int, rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng((seed, number))
    named = rng.choice(keys * others, keys, replace=False)
    order = rng.permutation(rows)
    at = (START_S + number * BATCH_S) * _MICROS + np.arange(rows) * (BATCH_S * _MICROS) // max(rows, 1)
    return pa.table(
        {
            "key": named[order % keys],
            "value": rng.integers(0, _VALUE_MAX, rows),
            "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
            "ms": at // 1_000,
        }
    )
