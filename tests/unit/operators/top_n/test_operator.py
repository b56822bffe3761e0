"""The best rows of each key against sorting everything: all time, windows, in and out of memory, undone, moved."""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.top_n import Group, Row, TopNModel
from support.operators.row_cluster import RowCluster
from support.operators.scenario import Scenario, play
from tailrace.ids import Micros
from tailrace.operators.top_n import operator as top_n
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
NO_WATERMARK = -(2**63)
TYPES = {
    "k": DataType("string"),
    "j": BIGINT,
    "ts": TIMESTAMP,
    "price": DataType("decimal(30,2)"),
    "weight": DOUBLE,
    "name": DataType("string"),
    "note": DataType("binary"),
    "flag": DataType("boolean"),
}
KINDS = ["all time", "all time, no event time", "tumbling", "sliding", "tumbling, changed", "sliding, changed"]
KEYS = [("k", "j"), ("j",), ("k",), ()]


def draw_spec(kind: str, rng: random.Random) -> TopNSpec:
    names = rng.choice(KEYS)
    window = None
    if kind.startswith("tumbling"):
        window = TimeWindowSpec(Micros(12), Micros(12), Micros(rng.choice([0, 5])))
    elif kind.startswith("sliding"):
        window = TimeWindowSpec(Micros(12), Micros(rng.choice([3, 4, 5])), Micros(0))
    rest = [name for name in ("price", "weight", "name", "note", "flag", "ts") if rng.random() < 0.7]
    ordered = rng.sample(["price", "weight", "name", "note", "flag"], rng.randint(1, 2))
    kept = list(dict.fromkeys([*rest, *ordered]))
    timed = window is not None or kind == "all time"
    if timed and "ts" not in kept:
        kept.append("ts")
    return TopNSpec(
        name="t",
        keys=tuple(Field(name, TYPES[name]) for name in names),
        rows=tuple(Field(name, TYPES[name]) for name in kept),
        shown=tuple(rng.sample(kept, rng.randint(1, len(kept)))),
        order=tuple(Order(name, rng.random() < 0.5) for name in ordered),
        n=rng.choice([1, 2, 3, 10]),
        rank="rank",
        window=window,
        window_name="window" if window else "",
        window_position=rng.randint(0, len(names)) if window else 0,
        time_column=Field("ts", TIMESTAMP) if timed else None,
        emit_changed=window is None or kind.endswith("changed"),
        watermarked=window is not None,
        shards=rng.choice([1, 3, 5]),
    )


class Stream:
    def __init__(self, spec: TopNSpec, rng: random.Random) -> None:
        self.spec = spec
        self.rng = rng
        self.keys = [
            (rng.choice(["", "a", "bee", "ü", None]), rng.choice([0, 1, None])) for _ in range(rng.randint(1, 6))
        ]
        self.now = rng.choice([0, -50, 10**12, 2**60, -(2**60)])
        self.seen = self.watermark = NO_WATERMARK
        self.past: list[Row] = []

    def partitions(self, count: int) -> list[list[Row]]:
        self.now += self.rng.choice([0, 1, 4, 15])
        drawn = [self._row() for _ in range(count)]
        again = self.past[-30:] + drawn
        drawn += [row for row in again if self.rng.random() < 0.1]  # the very same again
        self.past += drawn
        cuts = sorted(self.rng.randrange(len(drawn) + 1) for _ in range(self.rng.randint(0, 2)))
        return [drawn[low:high] for low, high in zip([0, *cuts], [*cuts, len(drawn)])]

    def _row(self) -> Row:
        rng = self.rng
        k, j = rng.choice(self.keys)
        few = rng.random() < 0.5  # values that tie
        price = Decimal(rng.randint(0, 3) if few else rng.randint(-(10**22), 10**22)).scaleb(-2)
        values = {
            "price": price.quantize(Decimal("0.01")),
            "weight": rng.choice([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, rng.uniform(-9, 9)]),
            "name": rng.choice(["", "a", "ab", "ü", "z" * rng.randint(0, 40)]),
            "note": rng.choice([b"", b"\xff", b"\x00\x01", b"n" * rng.randint(0, 9)]),
            "flag": rng.random() < 0.5,
        }
        values = {name: None if rng.random() < 0.1 else value for name, value in values.items()}
        time = None if rng.random() < 0.05 else self.now - rng.randint(-2, 20)
        return {"k": k, "j": j, "ts": time, **values}

    def next_watermark(self, partitions: list[list[Row]]) -> int:
        times = [row["ts"] for rows in partitions for row in rows if row["ts"] is not None]
        self.seen = max([self.seen, *times])
        if self.seen == NO_WATERMARK or not self.spec.watermarked:
            return NO_WATERMARK
        return max(self.watermark, self.seen - 6)


def check(
    spec: TopNSpec,
    model: TopNModel,
    changes: dict[Group, tuple[list[Row], list[Row]]],
    found: list[Any],
    late_before: int,
    watermark: int,
) -> None:
    lines = Counter(map(repr, found))
    if not spec.emit_changed:
        groups = model.closed(late_before, watermark)
        assert lines == Counter(line for group in groups for line in model.shown(group, model.best(group)))
        return
    now = {group: model.shown(group, best) for group, (_, best) in changes.items()}
    wanted = {group for group, (before, best) in changes.items() if [*map(repr, before)] != [*map(repr, best)]}
    if spec.window is None or spec.window.tumbling:
        assert lines == Counter(line for group in wanted for line in now[group])
        return
    # Of overlapping windows, those that share a pane with a changed one are emitted again, complete and unchanged.
    emitted = {group for group, shown in now.items() if shown and lines[shown[0]]}
    assert emitted >= wanted
    assert lines == Counter(line for group in emitted for line in now[group])


class BestRows(Scenario):
    sizes = (0, 1, 10, 40)

    def __init__(self, cluster: RowCluster, stream: Stream) -> None:
        super().__init__(cluster)
        self.stream, self.model = stream, TopNModel(stream.spec)
        self.drawn: list[Row] = []

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        late, partitions = self.stream.watermark, self.stream.partitions(count)
        self.stream.watermark = self.stream.next_watermark(partitions)
        self.drawn = [row for rows in partitions for row in rows]
        return plain(partitions), late, self.stream.watermark

    def saved(self) -> Any:
        return self.stream.now, self.stream.seen, self.stream.watermark, self.cluster.late_rows

    def rewind_to(self, saved: Any) -> None:
        self.stream.now, self.stream.seen, self.stream.watermark, self.cluster.late_rows = saved

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        _, late, watermark = given
        check(self.stream.spec, self.model, self.model.epoch(self.drawn, late), found, late, watermark)
        assert self.cluster.late_rows == self.model.late

    def check_invariants(self) -> None:
        if self.stream.spec.window is None:
            assert self.cluster.rows == len(self.model.rows)  # records, whatever came


def run_scenario(kind: str, seed: int, epochs: int) -> RowCluster:
    """One stream from its seed, checked epoch by epoch."""
    rng = random.Random(seed)
    spec = draw_spec(kind, rng)
    stream = Stream(spec, rng)
    with tempfile.TemporaryDirectory() as folder:
        cluster = RowCluster(spec, TYPES, rng, folder, rng.choice([None, 1, 2, 50]))
        play(BestRows(cluster, stream), rng, epochs, failing=0.15)
        return cluster


def plain(partitions: list[list[Row]]) -> list[list[Any]]:
    return [[tuple(row[name] for name in TYPES) for row in rows] for rows in partitions]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**48))
@settings(max_examples=200 if LONG else 6)
def test_the_best_rows_are_those_that_sorting_finds(kind: str, seed: int) -> None:
    run_scenario(kind, seed, epochs=10)


@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**48))
@settings(max_examples=200 if LONG else 10)
def test_steps_may_be_as_small_as_they_like(kind: str, seed: int) -> None:
    """How many rows are worked on, and emitted, at a time decides nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_n, "PIECE_ROWS", 2)
        patch.setattr(top_n, "OUTPUT_ROWS_MAX", 3)
        run_scenario(kind, seed, epochs=6)


def test_scenarios_spill_to_disk() -> None:
    """The property above says little if all of its rows fit memory."""
    assert any(run_scenario("all time", seed, epochs=8).wrote_segments for seed in range(6))
