"""Sketches: within their stated errors, and the same whatever way rows were divided; and what calls are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tailrace as tr
from support.bids import bids
from tailrace.api.aggregates import Aggregate
from tailrace.errors import AnalysisError, UserFunctionError
from tailrace.operators.aggregate.accumulators import Inputs
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.functions.hyperloglog import entries_of as registers_of
from tailrace.operators.aggregate.functions.hyperloglog import estimates
from tailrace.operators.aggregate.functions.quantile_sketch import entries_of, quantiles
from tailrace.operators.aggregate.functions.states import State, state_of
from tailrace.types import BIGINT


def state(aggregate: Aggregate) -> State:
    inputs = Inputs(aggregate.columns, (BIGINT,) * len(aggregate.columns), aggregate.arguments, aggregate.code)
    spec = DESCRIPTORS[aggregate.function.name].accumulators(inputs)[0].state
    assert spec is not None
    return state_of(spec)


@pytest.mark.parametrize("rsd", [0.05, 0.02])
@pytest.mark.parametrize("count", [1, 30, 1_000, 20_000])
def test_counts_are_within_the_stated_deviation(count: int, rsd: float) -> None:
    groups = 60
    asked = tr.approx_count_distinct("v", rsd)
    values = np.random.default_rng(count).integers(-(2**62), 2**62, count * groups)
    twice = np.repeat(values.reshape(groups, count), 2, axis=1).reshape(-1)  # every value comes twice
    (sketches,) = state(asked).update([pa.array(twice)], np.arange(0, len(twice) + 1, 2 * count))
    errors = estimates(sketches, asked.arguments[0]) / count - 1
    assert np.sqrt(np.mean(errors**2)) <= 1.2 * rsd
    assert abs(errors.mean()) <= 3 * rsd / np.sqrt(groups)


def test_of_few_values_only_those_that_share_a_register_are_missed() -> None:
    asked = tr.approx_count_distinct("v", 0.01)
    values = np.random.default_rng(8).integers(-(2**62), 2**62, 400 * 40)
    (sketches,) = state(asked).update([pa.array(values)], np.arange(0, len(values) + 1, 40))
    bits = asked.arguments[0]
    used = np.bincount(registers_of(sketches, bits)[0], minlength=400)
    assert np.rint(estimates(sketches, bits)).tolist() == used.tolist()
    # 780 pairs in 16,384 registers: one group of 21 has such a pair.
    assert 0 < np.mean(used < 40) < 0.1


def test_a_count_does_not_depend_on_how_rows_were_divided() -> None:
    sketch = state(tr.approx_count_distinct("v"))
    random = np.random.default_rng(3)
    values = random.integers(0, 5_000, 9_000)
    (whole,) = sketch.update([pa.array(values)], np.array([0, len(values)]))
    cuts = np.concatenate([[0], np.sort(random.choice(np.arange(1, len(values)), 40, replace=False)), [len(values)]])
    (parts,) = sketch.update([pa.array(values)], cuts)
    shuffled = parts.take(pa.array(random.permutation(len(parts))))
    (merged,) = sketch.merge([shuffled], np.array([0, len(parts)]))
    assert merged.equals(whole)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("accuracy", [20, 200])
def test_ranks_are_within_the_stated_accuracy(accuracy: int, in_order: bool) -> None:
    sketch, errors = state(tr.approx_percentile("v", 0.5, accuracy)), []
    shares = [0.01, 0.25, 0.5, 0.9, 0.99]
    for seed in range(20):
        values = np.random.default_rng(seed).permutation(60_000)
        values = np.sort(values) if in_order else values
        (held,) = sketch.update([pa.array(values)], np.arange(0, len(values) + 1, 1_500))
        while len(held) > 1:  # as epochs merge, one after the other
            (first,) = sketch.merge([held[:3]], np.array([0, len(held[:3])]))
            held = pa.concat_arrays([first, held[3:]])
        _, levels, _ = entries_of(held)
        assert int(np.left_shift(1, levels).sum()) == len(values), "weights add up to the number of values"
        assert len(levels) <= 6 * accuracy + 400
        found, _ = quantiles(held, shares)
        errors += [abs((value + 1) / len(values) - share) for value, share in zip(found[0], shares, strict=True)]
    assert np.quantile(errors, 0.99) <= 1 / accuracy


def test_few_values_are_exact() -> None:
    sketch = state(tr.approx_percentile("v", 0.5, 100))
    values = np.random.default_rng(1).permutation(200)
    (held,) = sketch.update([pa.array(values)], np.array([0, 200]))
    assert quantiles(held, [0.0, 0.005, 0.5, 1.0])[0].tolist() == [[0, 0, 99, 199]]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: tr.approx_count_distinct("price", 0), "above 0"),
        (lambda: tr.approx_count_distinct("price", 1e-9), "count_distinct for an exact"),
        (lambda: tr.approx_percentile("price", 1.5), "from 0 to 1"),
        (lambda: tr.approx_percentile("price", []), "from 0 to 1"),
        (lambda: tr.approx_percentile("price", 0.5, 0), "accuracy"),
        (lambda: bids().agg(tr.approx_percentile("channel", 0.5)), "needs a number"),
        (
            lambda: bids().agg(tr.approx_percentile("wide", 0.5)),
            r"at most 18 digits,.*cast\('double'\)",
        ),
        (lambda: bids().agg(tr.bool_and("price")), "needs a boolean"),
        (lambda: bids().agg(tr.sum_distinct("channel")), "needs a number"),
        (lambda: bids().agg(tr.min_by("price", "tags")), "not supported"),
        (lambda: tr.aggregate({}, len, len, len, "double"), "columns of the state"),
        (lambda: tr.aggregate({"n": [1]}, len, len, len, "double"), "cannot be kept"),
        (lambda: tr.aggregate({"n": 0}, len, 7, len, "double"), "merge must be a function"),
        (lambda: tr.aggregate({"n": 0}, len, len, len, "row"), "type of the answer"),
        (lambda: tr.aggregate({"n": 0}, len, len, len, "double")(), "needs the names"),
    ],
)
def test_what_is_refused(call, match):
    with pytest.raises(AnalysisError, match=match):
        call()


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda states, rows, group: 7, "gave a int"),
        (lambda states, rows, group: states.slice(1), "gave 1 rows"),
        (lambda states, rows, group: pa.table({"m": [1, 2]}), "the state is"),
        (lambda states, rows, group: pa.table({"n": ["a", "b"]}), "the state is"),
        (lambda states, rows, group: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_a_users_function_gives_is_checked(made, match):
    asked = tr.aggregate({"n": 0}, made, lambda left, right: left, lambda states: states["n"], "bigint")("v")
    with pytest.raises(UserFunctionError, match=match):
        state(asked).update([pa.array([1, 2, 3])], np.array([0, 1, 3]))
