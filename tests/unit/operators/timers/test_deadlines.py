"""Times of records against a plain list: taken in order, given back by undoing, in memory and on disk, by shard."""

from __future__ import annotations

import os
import random
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.operators.timers import deadlines
from tailrace.operators.timers.deadlines import Deadlines

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
SHARDS = 3


def array(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


@given(seed=st.integers(0, 2**48))
@settings(max_examples=400 if LONG else 25)
def test_what_is_taken_is_what_a_list_would_give(seed: int) -> None:
    rng = random.Random(seed)
    waiting: list[tuple[int, int]] = []
    owned = set(range(SHARDS))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "_CHUNK", rng.choice([2, 9, 1 << 16]))
        index = Deadlines(SHARDS, rng.choice([None, 0, 500]), folder)
        gone: dict[int, list[tuple[int, int]]] = {}  # by epoch that can be undone, what it took
        for epoch in range(rng.randint(1, 25)):
            gone = {number: entries for number, entries in gone.items() if number > epoch - 2}
            index.forget(epoch - 2)
            entries = [(rng.randint(0, 40), rng.randint(-50, 50)) for _ in range(rng.choice([0, 1, 5, 40]))]
            entries = [(time, hash_) for time, hash_ in entries if hash_ % SHARDS in owned]
            index.put(array([time for time, _ in entries]), array([hash_ for _, hash_ in entries]))
            waiting += entries
            until = rng.randint(-2, 45)
            taken = index.take(epoch, until).tolist()
            assert taken == sorted({hash_ for time, hash_ in waiting if time <= until})
            gone[epoch] = [entry for entry in waiting if entry[0] <= until]
            waiting = [entry for entry in waiting if entry[0] > until]
            if rng.random() < 0.3:
                back = rng.choice(list(gone))
                index.undo(back)
                waiting += [entry for number in gone if number >= back for entry in gone[number]]
                gone = {number: each for number, each in gone.items() if number < back}
            if rng.random() < 0.15 and owned:
                shard = rng.choice(sorted(owned))
                index.drop_shard(shard)
                owned.remove(shard)
                waiting = [entry for entry in waiting if entry[1] % SHARDS in owned]
                gone = {}
                index.forget(epoch)
            elif rng.random() < 0.3 and len(owned) < SHARDS:
                shard = rng.choice(sorted(set(range(SHARDS)) - owned))
                again = [(rng.randint(0, 60), shard + SHARDS * rng.randint(-9, 9)) for _ in range(rng.randint(0, 9))]
                index.restore(shard, array([time for time, _ in again]), array([hash_ for _, hash_ in again]))
                owned.add(shard)
                waiting += again
                gone = {}
                index.forget(epoch)
        assert index.take(99, 100).tolist() == sorted({hash_ for _, hash_ in waiting})
        index.close()
        assert index.nbytes == index.disk_bytes == 0


def test_taking_costs_what_is_taken(tmp_path: object) -> None:
    """A hundred of two hundred thousand that wait, most on disk: neither taking nor putting moves the others."""
    index = Deadlines(SHARDS, 1 << 18, str(tmp_path))
    count = 200_000
    for part in np.split(np.random.default_rng().permutation(count), 20):
        index.put(part, part * 7)
    assert index.disk_bytes > 14 * count and index.nbytes < 1 << 19
    assert index.moved < 30 * count  # each a few times over all of it, since runs are merged in tiers
    before = index.moved
    for epoch in range(10):
        taken = index.take(epoch, 100 * epoch + 99)
        assert sorted(taken // 7) == list(range(100 * epoch, 100 * epoch + 100))
        index.put(taken // 7 + count, taken)
        index.forget(epoch)
    assert index.moved - before < 10 * 100 * 20
    index.close()
