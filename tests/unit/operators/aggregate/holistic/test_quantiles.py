"""Quantiles of groups of whole numbers: as of each group's own sorted values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.operators.aggregate.functions.quantiles import quantiles
from tailrace.operators.rows.groups import Groups

INTEGERS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)


def between(values: list[int | None], share: float) -> float | None:
    there = sorted(float(value) for value in values if value is not None)
    if not there:
        return None
    place = (len(there) - 1) * share
    low = int(place)
    high = min(low + 1, len(there) - 1)
    exact = place == low or there[low] == there[high]
    return there[low] if exact else there[low] + (there[high] - there[low]) * (place - low)


@given(
    st.lists(st.lists(INTEGERS, min_size=1, max_size=9), min_size=1, max_size=6), st.sampled_from([0.0, 0.3, 0.5, 1.0])
)
def test_of_any_whole_numbers(groups: list[list[int | None]], share: float) -> None:
    values = pa.array([value for group in groups for value in group], pa.int64())
    found = quantiles(Groups({"v": values}, np.cumsum([0, *map(len, groups)])), "v", share)
    assert found.to_pylist() == [between(group, share) for group in groups]


@pytest.mark.parametrize("least", [0, -(2**62), 2**40])
def test_of_many(least: int) -> None:
    """Enough that they are sorted by counting."""
    random = np.random.default_rng(7)
    sizes = random.integers(1, 9, 1_000)
    values = least + random.integers(0, 1_000, int(sizes.sum()))
    found = quantiles(Groups({"v": pa.array(values)}, np.concatenate([[0], np.cumsum(sizes)])), "v", 0.5)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    assert found.to_pylist() == [between(part.tolist(), 0.5) for part in parts]
