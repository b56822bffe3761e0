"""Joins against nested loops: every kind, inner and outer, out of order, in and out of memory, undone and moved."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.join import NO_WATERMARK, JoinOracle, JoinRow
from support.operators.join_cluster import JoinCluster, expected
from support.operators.scenario import Scenario, play
from tailrace.ids import Micros
from tailrace.operators.join import output as join_output
from tailrace.operators.join import probe as join_probe
from tailrace.operators.join import window_join
from tailrace.operators.join.spec import LEFT, RIGHT, How, JoinKind, JoinSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
UNIT = 400_000
"""Of event times: the narrowest panes of a join are some of these wide."""
FAR = 2**62 // UNIT - 1000
TEXT = DataType("string")
LEFT_COLUMNS = (Field("name", TEXT), Field("left_until", TIMESTAMP), Field("amount", DataType("decimal(30,2)")))
RIGHT_COLUMNS = (Field("price", DOUBLE), Field("right_until", TIMESTAMP), Field("note", DataType("binary")))
SPECS = ["interval", "unbounded interval", "window", "continuous", "continuous right", "ttl", "no ttl"]


def draw_spec(kind: str, how: How, rng: random.Random) -> JoinSpec:
    def span(low: int, high: int) -> Micros:
        return Micros(rng.randint(low, high) * UNIT + rng.choice([0, 0, 1, -1]) * rng.randint(0, 9))

    options: dict[str, Any] = {}
    ttl = abs(span(0, 20))
    match kind:
        case "interval":
            options["kind"] = JoinKind.INTERVAL
            options["lower"], options["upper"] = sorted((span(-12, 12), span(-12, 12)))
            options["ttl"] = ttl if rng.random() < 0.3 else None
        case "unbounded interval":
            options["kind"] = JoinKind.INTERVAL
            options[rng.choice(["lower", "upper"])] = span(-8, 8)
            options["ttl"] = ttl if rng.random() < 0.8 else None
        case "window":
            slide = rng.randint(1, 6) * UNIT
            size = slide * rng.choice([1, 1, 2, 3]) + rng.choice([0, 0, UNIT // 2])
            options["kind"] = JoinKind.WINDOW
            options["window"] = TimeWindowSpec(Micros(size), Micros(slide), Micros(rng.choice([0, 7])))
        case "continuous" | "continuous right":
            options["kind"] = JoinKind.CONTINUOUS
            options["valid_side"] = RIGHT if kind.endswith("right") else LEFT
            options["valid_to"] = "right_until" if kind.endswith("right") else "left_until"
            options["ttl"] = ttl if rng.random() < 0.4 else None
        case "ttl":
            options |= {"kind": JoinKind.TTL, "ttl": ttl}
        case "no ttl":
            options["kind"] = JoinKind.TTL
    spec = JoinSpec(
        name="j",
        keys=(Field("k", TEXT), Field("n", BIGINT)),
        left=LEFT_COLUMNS,
        right=RIGHT_COLUMNS,
        how=how,
        shards=rng.choice([1, 3, 5]),
        watermarked=True,
        time_name=rng.choice([None, "at"]),
        handed_over=(rng.random() < 0.3, rng.random() < 0.3),
        **options,
    )
    assert JoinSpec.from_json(spec.to_json()) == spec
    return spec


class Stream:
    """Random rows, and the watermark that they make: the smaller of both inputs'."""

    def __init__(self, spec: JoinSpec, rng: random.Random) -> None:
        self.spec = spec
        self.rng = rng
        self.oracle = JoinOracle(spec)
        self.keys = [
            (rng.choice(["", "a", "bee", "ü", None]), rng.choice([0, 1, None])) for _ in range(rng.randint(1, 6))
        ]
        self.now = rng.choice([0, -50, 10**6, 4 * 10**9, FAR, -FAR]) * UNIT
        self.delay = rng.choice([0, 3, 10]) * UNIT
        self.seen = [NO_WATERMARK, NO_WATERMARK]
        self.used = 0

    def rows(self, epoch: int, count: int) -> list[JoinRow]:
        self.now += self.rng.choice([0, 1, 3, 15]) * UNIT
        drawn = [self._row(epoch) for _ in range(count)]
        drawn += [replace(row) for row in drawn if self.rng.random() < 0.1]  # twice the same
        return [row for row in drawn if not self.oracle.late(row.time, row.side)]

    def _row(self, epoch: int) -> JoinRow:
        rng, side = self.rng, self.rng.choice([LEFT, RIGHT])
        time = self.now - rng.randint(-2, 14) * UNIT + rng.choice([0, 0, 0, rng.randint(-9, 9)])
        until = rng.choice(
            [None, time, time + rng.randint(-1, 12) * UNIT, time + rng.randint(0, 2**40), 2**63 - 1, -(2**63)]
        )
        self.used += 1
        first: Any = f"left {self.used}"
        other: Any = Decimal(self.used).scaleb(-2)
        if side == RIGHT:
            first, other = 0.5 * self.used, b"right %d" % self.used
        values = (rng.choice([None, first]), until, rng.choice([None, other, other]))
        return JoinRow(side, rng.choice(self.keys), time, values, until, epoch)

    def watermark(self, rows: list[JoinRow]) -> int:
        for row in rows:
            self.seen[row.side] = max(self.seen[row.side], row.time)
        before = self.oracle.watermarks[-1]
        return before if NO_WATERMARK in self.seen else max(before, min(self.seen) - self.delay)


class Answers(Scenario):
    def __init__(self, cluster: JoinCluster, stream: Stream) -> None:
        super().__init__(cluster)
        self.stream = stream

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        rows = self.stream.rows(epoch, count)
        return rows, self.stream.oracle.watermarks[-1], self.stream.watermark(rows)

    def saved(self) -> Any:
        return self.stream.now, list(self.stream.seen)

    def rewind_to(self, saved: Any) -> None:
        self.stream.now, self.stream.seen = saved[0], list(saved[1])

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        spec, (rows, late, watermark) = self.stream.spec, given
        answers = self.stream.oracle.epoch(rows, watermark)
        assert Counter(found) == Counter(expected(spec, answers)), f"epoch {epoch}"
        if spec.output_delay is not None:
            # What a next operator relies on: no row comes that is late by the declared watermark.
            assert all(answer.time >= late - spec.output_delay for answer in answers)


def run_scenario(kind: str, how: How, seed: int, epochs: int) -> JoinCluster:
    """One stream from its seed, checked epoch by epoch."""
    rng = random.Random(seed)
    spec = draw_spec(kind, how, rng)
    stream = Stream(spec, rng)
    with tempfile.TemporaryDirectory() as folder:
        cluster = JoinCluster(spec, rng, folder, rng.choice([1, 2, 50]))
        play(Answers(cluster, stream), rng, epochs, failing=0.15)
    if spec.window is None:
        emitted = stream.oracle.emitted
        alone = [id(answer.alone) for answer in emitted if answer.alone]
        matched = {id(row) for answer in emitted if not answer.alone for row in (answer.left, answer.right)}
        assert len(alone) == len(set(alone)) and not matched & set(alone)
    return cluster


@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("kind", SPECS)
@given(seed=st.integers(0, 2**48))
@settings(max_examples=200 if LONG else 5)
def test_a_join_emits_what_nested_loops_find(kind: str, how: How, seed: int) -> None:
    run_scenario(kind, how, seed, epochs=10)


@given(kind=st.sampled_from(SPECS), how=st.sampled_from(How), seed=st.integers(0, 2**48))
@settings(max_examples=200 if LONG else 12)
def test_steps_may_be_as_small_as_they_like(kind: str, how: How, seed: int) -> None:
    """What is looked up, counted out and emitted at a time decides nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_output, "PAIRS_MAX", 3)
        patch.setattr(window_join, "PAIRS_MAX", 3)
        patch.setattr(join_probe, "_LOOKUPS_MAX", 2)
        patch.setattr(join_probe, "_CANDIDATES_MAX", 5)
        patch.setattr(join_probe, "_LONG_LISTS", seed % 2)
        run_scenario(kind, how, seed, epochs=6)


def test_scenarios_spill_to_disk() -> None:
    """The property above says little if all of its rows fit memory."""
    assert any(run_scenario("interval", How.LEFT_OUTER, seed, epochs=8).wrote_segments for seed in range(6))


@pytest.mark.parametrize("matched", [0, 1])
def test_rows_that_two_servers_have_numbered_alike_are_distinguished(matched: int) -> None:
    """Both shards' rows were the first of their epoch; then one server has both shards, and one row has a match."""
    spec = replace(draw_spec("ttl", How.LEFT_OUTER, random.Random(0)), shards=2, ttl=Micros(10), time_name=None)
    hashes = {("a", 0): 0, ("a", 1): 1}
    keys = list(hashes)
    with tempfile.TemporaryDirectory() as folder:
        cluster = JoinCluster(spec, random.Random(0), folder, 1, hashes=hashes, owner=[0, 1])
        lefts = [JoinRow(LEFT, key, 5, (key[0], None, None), None, 0) for key in keys]
        right = JoinRow(RIGHT, keys[matched], 5, (1.0, None, None), None, 1)
        assert cluster.epoch(0, lefts, NO_WATERMARK, 0) == []
        assert len(cluster.epoch(1, [right], 0, 0)) == 1
        cluster.move(1)
        other = keys[1 - matched]
        assert cluster.epoch(2, [], 0, 100) == [repr((*other, other[0], None, None, None, None, None))]
        cluster.close()
