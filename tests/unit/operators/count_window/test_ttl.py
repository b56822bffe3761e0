"""Windows by count of keys that are forgotten, on both stores: against a dictionary of rows, undone, replayed, moved,
restarted, beyond memory.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.keyed_cluster import NO_TIME, Times
from support.operators.ttl_rows import COLUMNS, TEXT, TS, K, N, S, V, row_maker
from support.operators.ttl_scenario import Row, TimedRows, run_scenario
from tailrace.ids import Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
STORES = ("RMW", "AUR", "whole")
Key = tuple[Any, ...]


def spec_of(
    clock: Clock, span: int, size: int, slide: int, store: str, update: bool, in_time: bool, shards: int
) -> AggregateSpec:
    timed = clock is Clock.EVENT or in_time
    outputs = [
        Output("count", "count", (0,), BIGINT),
        Output("most", "max", (2,), TEXT),
        *([Output("latest", "max", (3,), TIMESTAMP)] if timed else []),
        *([Output("middle", "quantile", (), DOUBLE, ("v",), (0.5,))] if store == "whole" else []),
    ]
    return AggregateSpec(
        name="c",
        keys=(K, N),
        accumulators=(
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            Accumulator(Merge.MAX, AccumulatorInput.STAMP, None, TIMESTAMP),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "s", TEXT),
            *([Accumulator(Merge.MAX, AccumulatorInput.VALUE, "ts", TIMESTAMP)] if timed else []),
        ),
        outputs=tuple(outputs),
        window_name="window",
        window_position=2,
        time_column=TS if timed else None,
        emit_changed=update,
        watermarked=timed,
        ansi=True,
        shards=shards,
        rows=(S, *((TS,) if timed else ()), V),
        window=CountWindowSpec(size, slide if slide < size else None, in_time),
        store="AUR" if store == "AUR" else None,
        ttl=Ttl(Micros(span), clock),
    )


class Windows:
    """All rows of each key that is not forgotten, in the order in which they count, and its last update."""

    def __init__(self, spec: AggregateSpec) -> None:
        self.spec = spec
        assert spec.ttl is not None and spec.count_window is not None
        window = spec.count_window
        self.size, self.slide, self.in_time = window.size, window.slide or window.size, window.in_time
        self.processing = spec.ttl.clock is Clock.PROCESSING
        self.keys: dict[Key, tuple[list[Row], int]] = {}

    @property
    def kept(self) -> int | None:
        counts = [len(rows) for rows, _ in self.keys.values()]
        if self.spec.pattern == "RMW":
            # Of windows that overlap, some of what is over stays where it is.
            return len(counts) if self.size == self.slide or not counts else None
        # From the first row of the first window that is not full.
        return sum(count - max(0, (count - self.size) // self.slide + 1) * self.slide for count in counts)

    def epoch(self, rows: list[Row], times: Times) -> Counter[Any]:
        if self.processing:
            self._forget(times.forget_before)
        if self.in_time:
            rows = [row for row in rows if row["ts"] is not None and row["ts"] >= times.late_before]
        elif not self.processing:
            rows = [row for row in rows if row["ts"] is not None and row["ts"] > times.late_before]
        touched = set()
        for row in sorted(rows, key=self._order):
            key = (row["k"], row["n"])
            known, updated = self.keys.get(key, ([], NO_TIME))
            time = times.now if self.processing else row["ts"]
            self.keys[key] = ([*known, row], max(updated, time))
            starts = range(0, len(known) + 1, self.slide)
            touched |= {(key, start // self.slide) for start in starts if len(known) < start + self.size}
        emitted: Counter[Any] = Counter()
        for key, number in touched:
            window = self.keys[key][0][number * self.slide : number * self.slide + self.size]
            if self.spec.emit_changed or len(window) == self.size:
                emitted[repr((*key, number, *self._answer(window)))] += 1
        if not self.processing:
            self._forget(times.forget_before)
        return emitted

    def _order(self, row: Row) -> Any:
        time = [(row["ts"] is not None, row["ts"] or 0)] if self.spec.time_column is not None else []
        text = (row["s"] is not None, (row["s"] or "").encode())
        return (*time, text, (row["v"] is not None, row["v"] or 0))

    def _answer(self, window: list[Row]) -> list[Any]:
        texts = [row["s"] for row in window if row["s"] is not None]
        values = [row["v"] for row in window if row["v"] is not None]
        found = {
            "count": len(window),
            "most": max(texts, key=str.encode, default=None),
            "latest": max((row["ts"] for row in window if row["ts"] is not None), default=None),
            "middle": float(median(values)) if values else None,
        }
        return [found[output.name] for output in self.spec.outputs]

    def _forget(self, before: int) -> None:
        self.keys = {key: kept for key, kept in self.keys.items() if kept[1] > before}


def run_windows(clock: Clock, store: str, seed: int, epochs: int) -> Any:
    rng = random.Random(seed)
    span, in_time = rng.choice([1, 3, 10, 60]), rng.random() < 0.3
    shards = rng.choice([1, 3, 5])
    size = rng.choice([1, 2, 3, 6])
    slide = size if rng.random() < 0.5 else rng.randint(1, size)
    spec = spec_of(clock, span, size, slide, store, rng.random() < 0.5, in_time, shards)
    stream = TimedRows(clock, span, rng, row_maker(rng), late_by_watermark=in_time)
    return run_scenario(spec, COLUMNS, stream, Windows(spec), rng, epochs)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("clock", list(Clock))
@given(seed=st.integers(0, 2**48))
@settings(max_examples=300 if LONG else 5, deadline=None, print_blob=True)
def test_keys_are_forgotten_with_their_open_windows(clock: Clock, store: str, seed: int) -> None:
    run_windows(clock, store, seed, epochs=12)


@pytest.mark.parametrize("store", STORES[:2])
def test_scenarios_spill_to_disk(store: str) -> None:
    assert any(run_windows(clock, store, seed, epochs=8).wrote_segments for seed in range(2) for clock in Clock)
