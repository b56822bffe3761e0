"""Shard ranges against plain sets."""

from __future__ import annotations

import doctest
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.commit import shard_ranges as ranges

sets = st.sets(st.integers(0, 20))


@given(sets, sets)
def test_ranges_do_what_sets_do(a: set[int], b: set[int]) -> None:
    left, right = ranges.of_shards(a), ranges.of_shards(b)
    assert ranges.members(left) == sorted(a)
    assert ranges.size(left) == len(a)
    assert set(ranges.members(ranges.common(left, right))) == a & b
    assert set(ranges.members(ranges.without(left, right))) == a - b
    assert ranges.normal([*left, *right]) == ranges.of_shards(a | b)
    assert all(ranges.contains(left, shard) == (shard in a) for shard in range(22))
    assert all(one[1] < two[0] for one, two in pairwise(ranges.without(left, right)))


def test_the_examples_in_the_text() -> None:
    assert doctest.testmod(ranges) == (0, doctest.testmod(ranges).attempted)
