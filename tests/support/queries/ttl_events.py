"""Events for queries that forget keys, and a driver's clock that a test sets for each epoch."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from support.queries.simple import SCHEMA, SECOND
from tailrace.spark.epoch.time import epoch_clock
from tailrace.spark.epoch.time.epoch_clock import EpochClock


def table(*rows: tuple[int | None, int]) -> pa.Table:
    """Rows of (key, second); their value is the second."""
    columns = [[k for k, _ in rows], [second * SECOND for _, second in rows], [second for _, second in rows]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


EVENTS = (
    table((1, 10), (2, 10), (None, 11)),
    table((1, 14), (3, 15)),  # watermark 14: of a time-to-live of 5 seconds all stay
    table((3, 17)),  # watermark 16: keys 2 and null are forgotten at 11
    table((2, 17), (1, 18), (2, 9)),  # 2 begins anew; its row at 9 is late
    table((None, 19), (3, 30)),  # watermark 29: all but 3 go, after they were emitted
    table((1, 31), (3, 31), (2, 31)),
)


def set_epoch_times(monkeypatch: pytest.MonkeyPatch, seconds: list[int]) -> None:
    """The times at which epochs begin; after the last one the clock stands still."""
    left = list(seconds)

    def begins(self: EpochClock, last: int) -> int:
        return max(last, SECOND * (left.pop(0) if len(left) > 1 else left[0]))

    monkeypatch.setattr(EpochClock, "next", begins)
    monkeypatch.setattr(epoch_clock, "clock", SimpleNamespace(now=lambda: float(left[0])))  # as a start looks at it
