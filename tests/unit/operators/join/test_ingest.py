"""What a join reports: which rows are late, what it accepts, how late its output is, what it costs."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.call_counts import calls
from support.models.join import JoinOracle
from support.operators.join_inputs import SECOND, SPECS, WINDOW, both_sides, spec_of
from tailrace.errors import AnalysisError
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.join.ingest import JoinIngest
from tailrace.operators.join.interval_join import JoinRows
from tailrace.operators.join.spec import LEFT, RIGHT, How, JoinKind, JoinSpec
from tailrace.operators.output import output_schema
from tailrace.operators.registry import operator_of, operator_with, spec_from_json
from tailrace.operators.resources import Resources


@pytest.mark.parametrize("kind", ["interval", "window"])
@given(seed=st.integers(0, 2**48))
@settings(max_examples=60)
def test_a_task_drops_late_rows_and_tells_how_far_each_side_is(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    spec = replace(SPECS[kind], handed_over=(rng.random() < 0.5, rng.random() < 0.5))
    oracle = JoinOracle(spec)
    watermark = rng.randint(-50, 50) * SECOND + rng.choice([0, 1, 2, 3, 4])
    oracle.watermarks.append(watermark)
    times = [
        rng.choice([None, watermark, rng.randint(-60, 60) * SECOND + rng.randint(0, 4)])
        for _ in range(rng.randint(0, 20))
    ]
    sides = [rng.choice([LEFT, RIGHT]) for _ in times]
    ingest = JoinIngest(spec, oracle.watermarks[-1])
    batch = both_sides(times, sides, [rng.randint(0, 3) for _ in times])
    cut = rng.randint(0, len(times))
    frames = [ingest.frame([part]) for part in (batch[:cut], batch[cut:])]
    word = spec.layout().accumulators[1].word
    found = sorted(time for frame in frames for time in frame.rows[:, word].tolist())
    both = zip(times, sides, strict=True)
    assert found == sorted(time for time, side in both if time is not None and not oracle.late(time, side))
    for side in (LEFT, RIGHT):
        seen = [time for time, own in zip(times, sides) if own == side and time is not None]
        assert ingest.counts.times_max[side] == max(seen, default=MIN_MICROS)
    counts = ingest.counts
    assert counts.rows == len(times) == len(found) + counts.late_rows + counts.null_time_rows
    assert counts.null_time_rows == times.count(None)


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(AnalysisError, match="filter them before"):
        JoinIngest(SPECS["interval"], MIN_MICROS).frame([both_sides([2**62 + 1], [LEFT], [1])])


def test_a_join_that_forgets_nothing_needs_no_times() -> None:
    spec = spec_of(JoinKind.TTL, watermarked=False)
    with tempfile.TemporaryDirectory() as folder:
        operator = operator_of(spec, range(4), memory_bytes=10**6, folder=folder)
        for epoch, side in enumerate((LEFT, RIGHT)):
            frame = JoinIngest(spec, MIN_MICROS).frame([both_sides([None, None], [side, side], [1, 2])])
            operator.apply(epoch, [frame])
            emitted = operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        assert sorted(row["k"] for batch in emitted for row in batch.to_pylist()) == [1, 2]
        operator.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": JoinKind.INTERVAL, "lower": Micros(2), "upper": Micros(1)}, "lower bound"),
        ({"kind": JoinKind.TTL, "ttl": Micros(-1)}, "negative"),
        ({"kind": JoinKind.TTL, "upper": Micros(1)}, "interval join"),
        ({"kind": JoinKind.INTERVAL, "upper": Micros(2**61)}, "longer than"),
        ({"kind": JoinKind.WINDOW}, "window"),
        ({"kind": JoinKind.TTL, "window": WINDOW}, "window"),
        ({"kind": JoinKind.CONTINUOUS}, "validity"),
        ({"kind": JoinKind.CONTINUOUS, "valid_to": "a"}, "timestamp column of the left"),
        ({"kind": JoinKind.CONTINUOUS, "valid_to": "until", "valid_side": RIGHT}, "of the right"),
        ({"kind": JoinKind.TTL, "keys": ()}, "no key"),
        ({"kind": JoinKind.TTL, "time_name": "b"}, "two columns named b"),
    ],
)
def test_what_cannot_run_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(AnalysisError, match=problem):
        spec_of(**options)


@pytest.mark.parametrize(
    ("spec", "delay"),
    [
        (SPECS["interval"], 0),
        (SPECS["outer interval"], 5 * SECOND),
        (spec_of(JoinKind.INTERVAL, How.LEFT_OUTER, lower=Micros(-9), upper=Micros(-2)), 0),
        (spec_of(JoinKind.INTERVAL, How.LEFT_OUTER, lower=Micros(-9)), 0),  # no left row is ever given up
        (SPECS["outer window"], 0),
        (spec_of(JoinKind.TTL, How.LEFT_OUTER, ttl=Micros(7)), 7),
        (spec_of(JoinKind.CONTINUOUS, How.LEFT_OUTER, valid_to="until"), None),
        (spec_of(JoinKind.CONTINUOUS, How.LEFT_OUTER, valid_to="until", ttl=Micros(7)), 7),
        (spec_of(JoinKind.INTERVAL, How.RIGHT_OUTER, lower=Micros(-9), upper=Micros(2)), 9),
        (spec_of(JoinKind.INTERVAL, How.FULL_OUTER, lower=Micros(-4), upper=Micros(6)), 6),
        (spec_of(JoinKind.CONTINUOUS, How.RIGHT_OUTER, valid_to="until"), 0),  # a point in time waits for nothing
        (spec_of(JoinKind.INTERVAL, How.LEFT_SEMI, lower=Micros(-9), upper=Micros(2)), 2),
        (spec_of(JoinKind.TTL, How.LEFT_SEMI), None),
    ],
)
def test_how_late_the_output_may_be(spec: JoinSpec, delay: int | None) -> None:
    timed = spec if spec.window is not None else replace(spec, time_name="later")
    assert timed.output_delay == delay


@pytest.mark.parametrize(
    ("spec", "delay"),
    [
        (spec_of(JoinKind.INTERVAL, lower=Micros(-9), upper=Micros(2)), 9),
        (spec_of(JoinKind.INTERVAL, lower=Micros(3), upper=Micros(7)), 7),
        (spec_of(JoinKind.INTERVAL, How.LEFT_SEMI, lower=Micros(-9), upper=Micros(2)), 9),
        (spec_of(JoinKind.INTERVAL, upper=Micros(2)), None),
        (SPECS["window"], 0),
    ],
)
def test_how_late_the_inputs_own_times_may_be(spec: JoinSpec, delay: int | None) -> None:
    """Where the output has no event time of its own, it is that of an input: a row may have waited."""
    assert spec.output_delay == delay


@pytest.mark.parametrize("name", SPECS)
def test_a_description_travels_as_json(name: str) -> None:
    spec = SPECS[name]
    assert JoinSpec.from_json(spec.to_json()) == spec
    assert spec_from_json(spec.to_json()) == spec
    names = output_schema(spec).names
    assert names == [*(["window"] if spec.window else []), "k", "a", "until", *([] if spec.semi else ["b"])]


def one_epoch(rows: int, spec: JoinSpec) -> Counter[str]:
    """The calls of the third epoch over the same keys, all in memory."""
    number = np.arange(rows)
    emitted = 0
    with tempfile.TemporaryDirectory() as folder:
        operator = operator_with(spec, range(4), Resources(1 << 30, folder, threads=1))

        def epoch(at: int) -> None:
            nonlocal emitted
            late, watermark = (at - 31) * SECOND, (at - 30) * SECOND if at < 2 else 30 * SECOND
            times = at * SECOND + number % 100
            batch = both_sides(times.tolist(), (number % 2).tolist(), (number // 2).tolist())
            operator.apply(at, [JoinIngest(spec, late).frame([batch])])
            emitted += sum(map(len, operator.advance(at, late, watermark)))
            operator.delta(at)

        epoch(0)
        epoch(1)
        counted = calls(lambda: epoch(2))
        operator.close()
    assert emitted >= rows // 2
    return counted


@pytest.mark.parametrize("name", SPECS)
def test_more_rows_need_no_more_calls(name: str) -> None:
    few, many = (one_epoch(rows, SPECS[name]) for rows in (10_000, 14_000))
    assert few == many, f"calls that grow with the rows: {many - few}"


@pytest.mark.parametrize("keyed_by", [LEFT, RIGHT])
def test_a_key_with_many_rows_costs_what_matches(keyed_by: int) -> None:
    """Its rows lie in one pane, and hardly any of them match: what is counted out are not all pairs."""
    spec = spec_of(JoinKind.INTERVAL, lower=Micros(0), upper=Micros(30))
    count = 20_000
    with tempfile.TemporaryDirectory() as folder:
        operator = JoinRows(spec, range(4), Resources(memory_bytes=1 << 30, folder=folder, threads=1))
        times = (np.arange(count) * 25).tolist()

        def epoch(at: int) -> None:
            side = keyed_by if at == 0 else 1 - keyed_by
            operator.apply(at, [JoinIngest(spec, MIN_MICROS).frame([both_sides(times, [side] * count, [7] * count)])])

        epoch(0)
        counted = calls(lambda: epoch(1))
        assert sum(map(len, operator.advance(1, MIN_MICROS, MIN_MICROS))) == 2 * count - 1
        assert counted["JoinTimes.match"] == 1
        operator.close()
