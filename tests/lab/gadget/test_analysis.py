"""Each metric against an answer computed the slow way, straight from its definition, on random small traces."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.lab.gadget.analysis import key_distance, key_lives, sequences, stack_distance
from tailrace.lab.gadget.analysis.compare import compare
from tailrace.lab.gadget.analysis.composition import (
    composition,
    event_amplification,
    hottest_share,
    key_space_amplification,
    single_access_share,
)
from tailrace.lab.gadget.analysis.numbering import numbered, paired
from tailrace.lab.gadget.analysis.summary import analyze
from tailrace.lab.gadget.traces.trace import Events, Operation, Trace

KEYS = st.lists(st.integers(0, 8), max_size=60)
ACCESSES = st.lists(st.tuples(st.sampled_from(list(Operation)), st.integers(0, 5)), max_size=60)
SAMPLE = st.lists(st.integers(0, 30), min_size=1, max_size=40)
quick = settings(max_examples=60, deadline=None, print_blob=True)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def trace_of(accesses: list[tuple[Operation, int]], events: list[int] | None = None) -> Trace:
    operations = np.array([operation for operation, _ in accesses], np.uint8)
    writes = (operations == Operation.PUT) | (operations == Operation.MERGE)
    size = len(accesses)
    made = None if events is None else Events(array(events), np.zeros(len(events), np.int64))
    keys = array([key for _, key in accesses])
    return Trace(operations, keys, np.where(writes, 10, 0).astype(np.int32), np.zeros(size, np.int64), made)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=80))
@quick
def test_values_are_numbered_as_they_appear(values: list[int]) -> None:
    expected = list(dict.fromkeys(values))
    numbers, count = numbered(array(values))
    assert (numbers.tolist(), count) == ([expected.index(value) for value in values], len(expected))


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=50))
@quick
def test_pairs_are_numbered_as_they_appear(pairs: list[tuple[int, int]]) -> None:
    expected = list(dict.fromkeys(pairs))
    numbers, count = paired(array([a for a, _ in pairs]), array([b for _, b in pairs]))
    assert (numbers.tolist(), count) == ([expected.index(pair) for pair in pairs], len(expected))


@given(ACCESSES)
@quick
def test_composition(accesses: list[tuple[Operation, int]]) -> None:
    found = composition(trace_of(accesses))
    for each in Operation:
        expected = [operation for operation, _ in accesses].count(each) / max(1, len(accesses))
        assert found[each.name.lower()] == pytest.approx(expected)


@given(ACCESSES, SAMPLE)
@quick
def test_amplification(accesses: list[tuple[Operation, int]], events: list[int]) -> None:
    trace = trace_of(accesses, events)
    assert event_amplification(trace) == pytest.approx(len(accesses) / len(events))
    assert key_space_amplification(trace) == pytest.approx(len({key for _, key in accesses}) / len(set(events)))


def test_amplification_of_a_trace_without_events_is_unknown() -> None:
    trace = trace_of([(Operation.GET, 0)])
    assert event_amplification(trace) is None and key_space_amplification(trace) is None
    assert event_amplification(trace_of([(Operation.GET, 0)], [])) is None


def share_up_to(sample: list[int], x: float) -> float:
    return sum(value <= x for value in sample) / len(sample)


@given(SAMPLE, SAMPLE)
@quick
def test_kolmogorov_smirnov(first: list[int], second: list[int]) -> None:
    found = key_distance.kolmogorov_smirnov(array(first), array(second))
    expected = max(abs(share_up_to(first, x) - share_up_to(second, x)) for x in {*first, *second})
    assert found.distance == pytest.approx(expected)
    assert (found.size_first, found.size_second) == (len(first), len(second))
    # Kolmogorov's series in its other form, which converges where ours does not.
    x = expected * math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    if x > 0:
        terms = (math.exp(-((2 * k - 1) ** 2) * math.pi**2 / (8 * x * x)) for k in range(1, 200))
        assert found.p_value == pytest.approx(1 - math.sqrt(2 * math.pi) / x * sum(terms), abs=1e-9)
    else:
        assert found.p_value == 1


@given(SAMPLE, SAMPLE)
@quick
def test_wasserstein_is_what_moving_costs(first: list[int], second: list[int]) -> None:
    """Each sample repeated until both are of one length: then the cheapest way to move is in sorted order."""
    ours, theirs = sorted(first * len(second)), sorted(second * len(first))
    expected = sum(abs(a - b) for a, b in zip(ours, theirs)) / len(ours)
    assert key_distance.wasserstein(array(first), array(second)) == pytest.approx(expected)


@given(KEYS)
@quick
def test_one_state_key_for_each_event_key_is_no_distance(events: list[int]) -> None:
    accesses = [(operation, key + 100) for key in events for operation in (Operation.GET, Operation.PUT)]
    found = key_distance.against_input(trace_of(accesses, events))
    if not events:
        assert found is None
        return
    assert found is not None and found[0].distance == 0 and found[0].p_value == 1 and found[1] == 0


@given(KEYS)
@quick
def test_stack_distance(keys: list[int]) -> None:
    expected: list[int] = []
    for at, key in enumerate(keys):
        before = [i for i in range(at) if keys[i] == key]
        expected.append(len(set(keys[before[-1] + 1 : at])) if before else -1)
    found = stack_distance.distances(array(keys))
    assert found.tolist() == expected
    known = [each for each in expected if each >= 0]
    assert stack_distance.mean_distance(found) == (pytest.approx(sum(known) / len(known)) if known else None)
    bounds = stack_distance.histogram(found)
    assert [count for _, count in bounds] == [
        sum(low < each <= high for each in known) for low, high in pairwise([-1, *(bound for bound, _ in bounds)])
    ]
    assert sum(count for _, count in bounds) == len(known)


@given(KEYS, st.integers(1, 10))
@quick
def test_unique_sequences(keys: list[int], longest: int) -> None:
    expected = [
        len({tuple(keys[at : at + length]) for at in range(len(keys) - length + 1)}) for length in range(1, longest + 1)
    ]
    assert sequences.unique_sequences(array(keys), longest) == expected


@given(KEYS)
@quick
def test_time_to_live(keys: list[int]) -> None:
    found = key_lives.lifetimes(array(keys))
    backwards = keys[::-1]
    lives = [len(keys) - 1 - backwards.index(key) - keys.index(key) for key in dict.fromkeys(keys)]
    assert found.tolist() == lives
    reported = key_lives.percentiles(found, seed=1)
    if lives:
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99.9", 0.999), ("max", 1.0)):
            assert reported[name] == min(life for life in lives if share_up_to(lives, life) >= share - 1e-12)


def test_lives_are_sampled_from_all_keys_by_the_seed() -> None:
    lives = np.arange(100_000)
    first, again, other = (key_lives.percentiles(lives, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first["p50"] == pytest.approx(50_000, rel=0.1) and first["max"] < 100_000
    assert key_lives.percentiles(lives, 1, sample=None)["max"] == 99_999


@given(ACCESSES, st.integers(1, 7))
@quick
def test_working_set(accesses: list[tuple[Operation, int]], every: int) -> None:
    active: set[int] = set()
    sizes = []
    for operation, key in accesses:
        active = active - {key} if operation is Operation.DELETE else active | {key}
        sizes.append(len(active))
    trace = trace_of(accesses)
    assert key_lives.active_keys(trace).tolist() == sizes
    assert key_lives.working_set(trace, every).tolist() == sizes[every - 1 :: every]


@given(KEYS)
@quick
def test_popularity(keys: list[int]) -> None:
    counts = sorted((keys.count(key) for key in set(keys)), reverse=True)
    assert single_access_share(array(keys)) == pytest.approx(counts.count(1) / max(1, len(counts)))
    most = counts[: max(1, round(len(counts) * 0.5))]
    assert hottest_share(array(keys), 0.5) == pytest.approx(sum(most) / max(1, len(keys)))


def test_locality_is_below_that_of_the_shuffled_trace() -> None:
    keys = np.repeat(np.arange(500), 8)
    accesses = Trace(np.tile([0, 1], 2000).astype(np.uint8), keys, np.zeros(4000, np.int32), np.zeros(4000, np.int64))
    found = analyze(accesses)
    assert found.trace.mean_stack_distance == 0 and found.shuffled.mean_stack_distance > 100
    assert found.trace.unique_sequences[1] < found.shuffled.unique_sequences[1]
    assert found.trace.time_to_live["max"] == 7 and found.shuffled.time_to_live["p50"] > 1000
    assert found.trace.working_set_max == found.shuffled.working_set_max == 500
    assert found.to_json()["shuffled"]["mean_stack_distance"] == found.shuffled.mean_stack_distance


@pytest.mark.parametrize("size", [0, 1, 99])
def test_short_traces_have_all_metrics(size: int) -> None:
    found = analyze(trace_of([(Operation.PUT, 0)] * size, [0] * size))
    assert found.accesses == size and found.trace.working_set_max == min(size, 1)


@given(ACCESSES, ACCESSES)
@quick
def test_comparison(first: list[tuple[Operation, int]], second: list[tuple[Operation, int]]) -> None:
    found = compare(trace_of(first), trace_of(second))
    parts = [[operation for operation, _ in each] for each in (first, second)]
    shares = [[part.count(operation) / max(1, len(part)) for operation in Operation] for part in parts]
    assert found.composition_difference == pytest.approx(100 * max(abs(a - b) for a, b in zip(*shares)))
    keys = [[key for _, key in each] for each in (first, second)]
    counts = [[len({tuple(ks[i : i + n]) for i in range(len(ks) - n + 1)}) for n in range(1, 11)] for ks in keys]
    expected = [abs(a - b) / a if a else float(b > 0) for a, b in zip(*counts)]
    assert found.sequences_difference == pytest.approx(max(expected))
    assert found.keys == tuple(len(set(ks)) for ks in keys)
    assert (found.key_test is None) == (not first or not second)
    json.dumps(found.to_json(), allow_nan=False)
