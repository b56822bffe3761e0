"""Rows in order: groups are exact whatever the hashes are, and nothing of a key changes its order."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.stores.raw_rows import LAYOUT, draw_keys, draw_row, from_rows, to_rows
from tailrace.state.rows.arrange import low_bit_for, sorted_order
from tailrace.state.rows.groups import group_by_key, key_offsets
from tailrace.state.tiers import newest_to_merge


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), keys=st.integers(1, 12), hashes=st.integers(1, 5), rows=st.integers(0, 80))
def test_groups_are_exact_and_stable(seed: int, keys: int, hashes: int, rows: int) -> None:
    rng = random.Random(seed)
    pool = draw_keys(rng, keys, hashes)
    given_rows = [draw_row(rng, rng.choice(pool), rng.randrange(3)) for _ in range(rows)]
    grouped, offsets = group_by_key(to_rows(given_rows), LAYOUT)
    found = from_rows(grouped)
    assert offsets[0] == 0 and offsets[-1] == rows
    expected: dict[str, list[str]] = {}
    for row in given_rows:
        expected.setdefault(repr((row.hash, row.key)), []).append(row.shown)
    groups = [found[a:b] for a, b in pairwise(offsets)]
    assert {repr((g[0].hash, g[0].key)): [row.shown for row in g] for g in groups} == expected
    assert len(groups) == len(expected), "a key lies in two groups"
    assert [row.hash for row in found] == sorted(row.hash for row in found)


def test_offsets_see_a_change_in_one_byte_of_a_long_string() -> None:
    rng = random.Random(0)
    texts = ["x" * 300, "x" * 299 + "y", "x" * 299, None]
    rows = [draw_row(rng, (7, (text, None)), 0) for text in texts for _ in range(2)]
    assert key_offsets(to_rows(rows), LAYOUT).tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("count", [0, 1, 1999, 2000, 70_000])
@pytest.mark.parametrize("high_bit", [5, 23, 64])
def test_order_is_numpys_stable_order(count: int, high_bit: int) -> None:
    rng = np.random.default_rng(count)
    keys = rng.integers(0, 2**high_bit, count, np.uint64, endpoint=False) if high_bit < 64 else rng.integers(
        0, 2**64 - 1, count, np.uint64, endpoint=True
    )  # fmt: skip
    order, in_order = sorted_order(keys, 0, high_bit)
    expected = np.argsort(keys, kind="stable")
    assert (order == expected).all() and (in_order == keys[expected]).all()
    back = np.arange(count, dtype=np.int64)[::-1]
    order, _ = sorted_order(keys, 0, high_bit, back)
    assert (order == back[np.argsort(keys[::-1], kind="stable")]).all()


@pytest.mark.parametrize("step", [1, 2**20, 2**45])
def test_keys_that_differ_only_below_the_sorted_bits_are_distinguished(step: int) -> None:
    count = 5000
    assert low_bit_for(count) > 0
    rows = to_rows([draw_row(random.Random(1), (0, ("k", None)), 0)])
    words = np.repeat(rows.words, count, 0)
    words[:, 0] = np.arange(count)[::-1] * step
    grouped, offsets = group_by_key(type(rows)(words, rows.heap), LAYOUT)
    assert (grouped.words[:, 0] == np.arange(count) * step).all() and len(offsets) == count + 1


def test_tiers_stay_few_and_rewrite_each_byte_seldom() -> None:
    sizes: list[int] = []
    rewritten = 0
    for _ in range(3000):
        sizes.append(100_000)
        count = newest_to_merge(sizes)
        if count:
            rewritten += sum(sizes[-count:])
            sizes[-count:] = [sum(sizes[-count:])]
        assert len(sizes) <= 40
    assert rewritten <= 8 * sum(sizes)
