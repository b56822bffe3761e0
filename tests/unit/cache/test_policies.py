"""The cache policies, and the cache of records that uses them, against models that are plain lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cache.policies import NEVER, POLICIES, policy_of
from tailrace.state.layout import Merge, record_layout
from tailrace.state.record_cache import RecordCache
from tailrace.state.sections import RowsBuilder
from tailrace.state.table import Rows
from tailrace.types import BIGINT, DataType, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT), (Merge.MAX, DataType("string"))], ansi=False)


class Model:
    """A policy as its definition reads: entries in the order in which they came, each with what is known of its use."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.order: list[int] = []  # ids
        self.time: dict[int, int] = {}
        self.turn: dict[int, int] = {}
        self.mark: dict[int, bool] = {}
        self.turns = 0
        self.hand = 0

    def use(self, id_: int, time: int) -> None:
        self.time[id_] = max(self.time.get(id_, NEVER), time)
        self.turn[id_] = self.turns
        self.turns += 1
        self.mark[id_] = True

    def add(self, id_: int) -> None:
        self.order.append(id_)
        self.time.pop(id_, None)
        self.mark[id_] = False

    def victims(self, wanted: int) -> list[int]:
        wanted = min(wanted, len(self.order))
        if self.policy == "clock":
            going: list[int] = []
            while len(going) < wanted:
                self.hand = 0 if self.hand >= len(self.order) else self.hand
                id_ = self.order[self.hand]
                if id_ not in going:
                    if self.mark[id_]:
                        self.mark[id_] = False
                    else:
                        going.append(id_)
                self.hand += 1
            return going
        rank = self.time if self.policy == "timestamp" else self.turn
        return sorted(self.order, key=lambda id_: (rank[id_], self.order.index(id_)))[:wanted]

    def leave(self, going: list[int]) -> None:
        self.hand -= sum(1 for id_ in self.order[: self.hand] if id_ in going)
        self.order = [id_ for id_ in self.order if id_ not in going]


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_victims_are_those_of_the_model(policy: str, data: st.DataObject) -> None:
    real, model = policy_of(policy), Model(policy)
    ids: list[int] = []
    ranks = np.empty(0, np.int64)
    fresh = 0
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["add", "use", "evict"]))
        if step == "add":
            for _ in range(data.draw(st.integers(1, 6))):
                ids.append(fresh)
                model.add(fresh)
                ranks = np.append(ranks, 0 if policy == "clock" else NEVER)
                time = data.draw(st.integers(-5, 20))
                real.use(ranks, np.array([len(ids) - 1]), np.array([time]))
                model.use(fresh, time)
                fresh += 1
        elif step == "use" and ids:
            chosen = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=8))
            times = [data.draw(st.integers(-5, 20)) for _ in chosen]
            real.use(ranks, np.array(chosen, np.int64), np.array(times, np.int64))
            for at, time in zip(chosen, times, strict=True):
                model.use(ids[at], time)
        elif step == "evict" and ids:
            wanted = data.draw(st.integers(0, len(ids)))
            going = real.victims(ranks, np.ones(len(ids), bool), wanted)
            expected = model.victims(wanted)
            assert sorted(ids[at] for at in going) == sorted(expected)
            model.leave(expected)
            kept = np.setdiff1d(np.arange(len(ids)), going)
            real.renumbered(kept)
            ids, ranks = [ids[at] for at in kept], ranks[kept]
            assert ids == model.order


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'fifo'.*timestamp, lru, clock"):
        policy_of("fifo")


def rows_of(numbers: list[int]) -> Rows:
    builder = RowsBuilder(len(numbers), LAYOUT)
    key, total, text = LAYOUT.keys[0], *LAYOUT.accumulators
    builder.put(pa.array(numbers, pa.int64()), BIGINT, key.word, key.bit)
    builder.put(pa.array([7 * n for n in numbers], pa.int64()), BIGINT, total.word, total.bit)
    builder.put(pa.array(["x" * (n % 5) for n in numbers], pa.string()), DataType("string"), text.word, text.bit)
    return builder.finish()


def numbers_in(rows: Rows) -> list[int]:
    assert (rows.words[:, LAYOUT.accumulators[0].word] == 7 * rows.words[:, LAYOUT.keys[0].word]).all()
    text = LAYOUT.accumulators[1].word
    for row in rows.words:
        length = int(rows.heap[row[text] : row[text] + 4].view(np.uint32)[0])
        assert length == row[LAYOUT.keys[0].word] % 5
    numbers: list[int] = rows.words[:, LAYOUT.keys[0].word].tolist()
    return numbers


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_cache_of_records_gives_back_what_was_put_or_nothing(policy: str, data: st.DataObject) -> None:
    capacity = data.draw(st.sampled_from([400, 3000, 100_000]))
    cache = RecordCache(LAYOUT, capacity, policy)
    put: set[int] = set()
    numbers = st.lists(st.integers(0, 60), max_size=20, unique=True)
    for time in range(data.draw(st.integers(1, 15))):
        some = data.draw(numbers)
        ids = np.array([1000 - n for n in some], np.int64)
        step = data.draw(st.sampled_from(["put", "get", "hint", "drop"]))
        if step == "put":
            cache.put(ids, rows_of(some), np.full(len(some), time, np.int64), foretold=data.draw(st.booleans()))
            put |= set(some)
        elif step == "get":
            rows, there = cache.get(ids, time)
            assert numbers_in(rows) == [n for n, here in zip(some, there, strict=True) if here]
            assert {n for n, here in zip(some, there, strict=True) if here} <= put
        elif step == "hint":
            cache.hint(ids, np.full(len(some), time, np.int64))
        else:
            cache.drop(ids)
            put -= set(some)
            assert not cache.get(ids, time)[1].any()
        assert cache.nbytes <= capacity or len(cache) == 0
        if capacity == 100_000:
            assert len(cache) == len(put), "there is room for all"


def test_by_timestamp_what_is_foretold_stays_and_what_was_used_goes() -> None:
    cache = RecordCache(LAYOUT, 6000)
    used, foretold = list(range(20)), list(range(100, 120))
    cache.put(np.array(used), rows_of(used), np.full(20, 5, np.int64))
    cache.put(np.array(foretold), rows_of(foretold), np.full(20, 9, np.int64), foretold=True)
    number = 200
    while cache.evicted < 15:
        cache.put(np.array([number]), rows_of([number]), np.array([6], np.int64))
        number += 1
    assert cache.hint(np.array(foretold), np.full(20, 9, np.int64)).all()
    assert not cache.hint(np.array(used[:10]), np.zeros(10, np.int64)).any()
    assert cache.wasted == 0


def test_by_timestamp_what_is_foretold_is_not_pushed_out_by_copies_for_the_same_time() -> None:
    """They may come before or after it: hints copy what lies in memory, and fetch what does not."""
    cache = RecordCache(LAYOUT, 6000)
    cache.get(np.array([-1]), 8)
    foretold = list(range(20))
    cache.put(np.array(foretold[:10]), rows_of(foretold[:10]), np.full(10, 9, np.int64), foretold=True)
    copies = list(range(100, 130))
    cache.put(np.array(copies), rows_of(copies), np.full(30, 9, np.int64))
    cache.put(np.array(foretold[10:]), rows_of(foretold[10:]), np.full(10, 9, np.int64), foretold=True)
    for number in range(200, 240):
        cache.put(np.array([number]), rows_of([number]), np.array([9], np.int64))
    assert cache.evicted > 0
    assert cache.holds(np.array(foretold)).all()
    assert cache.wasted == 0


def test_what_is_foretold_stays_while_others_of_its_time_are_used() -> None:
    cache = RecordCache(LAYOUT, 6000)
    cache.get(np.array([-1]), 8)
    first = list(range(20))
    cache.put(np.array(first), rows_of(first), np.full(20, 9, np.int64), foretold=True)
    assert cache.get(np.array(first[:3]), 9)[1].all()
    more = list(range(100, 100 + cache.room()))
    cache.put(np.array(more), rows_of(more), np.full(len(more), 9, np.int64), foretold=True)
    assert cache.wasted == 0
    assert cache.get(np.array(first[3:] + more), 9)[1].all()


def test_what_is_foretold_is_not_pushed_out_by_more_of_it() -> None:
    """Two times what fits is foretold: what is told to fit stays until it is used, and what is old goes first."""
    cache = RecordCache(LAYOUT, 6000)
    old = list(range(30))
    cache.put(np.array(old), rows_of(old), np.full(30, 4, np.int64), foretold=True)
    numbers = iter(range(100, 1000))
    kept: list[int] = []
    cache.get(np.array([-1]), 8)  # what was foretold for time 4 will not be used any more
    while room := cache.room():
        some = [next(numbers) for _ in range(min(room, 7))]
        cache.put(np.array(some), rows_of(some), np.full(len(some), 9, np.int64), foretold=True)
        kept += some
    assert 20 < len(kept) < 100
    assert cache.holds(np.array(kept)).all(), "all of what was told to fit"
    assert cache.wasted == 30 - int(cache.holds(np.array(old)).sum()), "only what was for an earlier time"
    assert cache.get(np.array(kept), 9)[1].all()
    assert cache.room() > 20, "what was used gives way"


def test_a_cache_that_becomes_smaller_gives_its_memory_back() -> None:
    cache = RecordCache(LAYOUT, 1 << 20)
    many = np.arange(2_000)
    cache.put(many, rows_of(many.tolist()), np.full(len(many), 1, np.int64))
    held = cache._words.nbytes + cache._heap.nbytes + cache._table.ids.nbytes
    cache.resize(4_000)
    left = cache.ids()
    assert 0 < len(left) < 100 and cache.nbytes <= 4_000
    assert cache._words.nbytes + cache._heap.nbytes + cache._table.ids.nbytes < held / 10
    found, there = cache.get(left, 2)
    assert there.all() and len(found) == len(left)
    cache.resize(1 << 20)
    cache.put(many, rows_of(many.tolist()), np.full(len(many), 3, np.int64))
    assert cache.holds(many).all()
