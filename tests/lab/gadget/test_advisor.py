"""The miss-ratio curve against caches that are really run, costs of stores against stores that are, and the advice."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.lab.gadget.advisor import advise
from tailrace.lab.gadget.analysis.miss_ratio import miss_ratios
from tailrace.lab.gadget.analysis.store_cost import store_costs
from tailrace.lab.gadget.traces.trace import Operation, Trace

GET, PUT, MERGE, DELETE = Operation
ACCESSES = st.lists(st.tuples(st.sampled_from(Operation), st.integers(0, 6), st.integers(0, 9)), max_size=60)
Accesses = list[tuple[Operation, int, int]]
quick = settings(max_examples=60, deadline=None, print_blob=True)


def trace_of(accesses: Accesses) -> Trace:
    operations, keys, sizes = (
        (np.array(column, np.int64) for column in zip(*accesses)) if accesses else [np.empty(0)] * 3
    )
    writes = (operations == PUT) | (operations == MERGE)
    sizes = np.where(writes, sizes, 0).astype(np.int32)
    return Trace(operations.astype(np.uint8), keys.astype(np.int64), sizes, np.zeros(len(accesses), np.int64))


def hits_of_cache(accesses: Accesses, entries: int) -> int:
    """Of one that evicts the least recently used key; a delete of a key frees its place."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for operation, key, _ in accesses:
        hits += key in cache
        if operation is DELETE:
            cache.pop(key, None)
            continue
        cache[key] = None
        cache.move_to_end(key)
        if len(cache) > entries:
            cache.popitem(last=False)
    return hits


@given(ACCESSES)
@quick
def test_a_cache_of_every_size_has_the_hits_that_the_curve_says(accesses: Accesses) -> None:
    found = miss_ratios(trace_of(accesses))
    unlimited = hits_of_cache(accesses, 100)
    for entries in range(9):
        expected = hits_of_cache(accesses, entries) if entries else 0
        assert found.ratio(entries) == pytest.approx(1 - expected / len(accesses) if accesses else 0)
        assert found.avoidable(entries) == pytest.approx((unlimited - expected) / max(1, len(accesses)))
    for share in (0.5, 0.99, 1.0):
        enough = [e for e in range(9) if (hits_of_cache(accesses, e) if e else 0) >= share * unlimited]
        assert found.entries_for(share) == enough[0]


@given(ACCESSES)
@quick
def test_costs_are_those_of_stores_that_are_run(accesses: Accesses) -> None:
    value: dict[int, int] = defaultdict(int)
    appended: dict[int, int] = defaultdict(int)
    rmw = append = lookups = gets = most = 0
    for operation, key, size in accesses:
        if operation is GET:
            rmw, append, lookups, gets = rmw + value[key], append + appended[key], lookups + 1, gets + 1
        elif operation is PUT:
            rmw, append = rmw + size, append + size
            value[key] = size
            appended[key] += size
        elif operation is MERGE:
            rmw, append, lookups = rmw + 2 * value[key] + size, append + size, lookups + 1
            value[key] += size
            appended[key] += size
        else:
            value[key] = appended[key] = 0
        most = max(most, sum(value.values()))
    runs = [0]  # triggers one after the other
    at = 0
    while at < len(accesses):
        following = accesses[at + 1 : at + 2]
        if accesses[at][0] is GET and following and following[0][:2] == (DELETE, accesses[at][1]):
            runs[-1] += 1
            at += 2
        else:
            runs.append(0)
            at += 1
    found = store_costs(trace_of(accesses))
    assert (found.rmw_bytes, found.append_bytes, found.live_bytes_max) == (rmw, append, most)
    assert (found.rmw_lookups, found.unaligned_lookups) == (lookups, gets)
    assert found.triggers == sum(runs) and found.triggers_together == sum(run for run in runs if run > 1)
    assert found.aligned_lookups == gets - sum(runs) + sum(run > 0 for run in runs)


def windows(operations: tuple[Operation, ...], keys: int, rounds: int, together: bool) -> Trace:
    """Each round all keys get some events; then all are read and deleted, at once or each behind its own last event."""
    rng = np.random.default_rng(1)
    accesses: Accesses = []
    for window in range(rounds):
        ids = [window * keys + key for key in range(keys)]
        for at, key in enumerate(
            rng.permutation(np.repeat(ids, 20)).tolist() if together else np.repeat(ids, 20).tolist()
        ):
            accesses += [(operation, key, 10) for operation in operations]
            if not together and at % 20 == 19:
                accesses += [(GET, key, 0), (DELETE, key, 0)]
        if together:
            accesses += [(operation, key, 0) for key in ids for operation in (GET, DELETE)]
    return trace_of(accesses)


@pytest.mark.parametrize(
    ("operations", "together", "pattern"),
    [((GET, PUT), True, "RMW"), ((GET, PUT), False, "RMW"), ((MERGE,), True, "AAR"), ((MERGE,), False, "AUR")],
)
def test_the_pattern_is_that_of_the_accesses(operations: tuple[Operation, ...], together: bool, pattern: str) -> None:
    found = advise(windows(operations, keys=30, rounds=4, together=together))
    assert found.pattern == pattern and found.bytes_gain > 1
    assert found.working_set_max == (30 if together else 1)
    if together:
        assert 25 <= found.cache.entries <= 30
        assert found.cache.avoidable_miss_ratio <= 0.01 and found.reads_saved_share >= 0.99
        assert [point.miss_ratio for point in found.curve] == sorted((p.miss_ratio for p in found.curve), reverse=True)
    if pattern == "AAR":
        # One look for a window of thirty keys, in place of one for each of its events.
        assert found.lookups_gain == pytest.approx(30 * 21)
    live = 10 if operations == (GET, PUT) else 200
    assert found.entry_bytes == 10 + live and found.cache.bytes == found.cache.entries * (10 + live)
    assert found.to_json()["pattern"] == pattern


def test_an_empty_trace_has_an_advice() -> None:
    found = advise(trace_of([]))
    assert (found.pattern, found.cache.entries, found.bytes_gain) == ("RMW", 0, 1.0)
