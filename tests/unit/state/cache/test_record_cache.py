"""The cache of records: it gives back what was put, holds its capacity, and keeps hinted records."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.manual_clock import StillClock
from tailrace.env import clock
from tailrace.state.cache.policies import POLICIES
from tailrace.state.cache.record_blocks import BLOCKS_MOST
from tailrace.state.cache.record_cache import RecordCache
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DataType, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT), (Merge.MAX, DataType("string"))], ansi=False)


def rows_of(numbers: list[int]) -> Rows:
    builder = RowsBuilder(len(numbers), LAYOUT)
    key, total, text = LAYOUT.keys[0], *LAYOUT.accumulators
    builder.put(pa.array(numbers, pa.int64()), BIGINT, key.word, key.bit)
    builder.put(pa.array([7 * n for n in numbers], pa.int64()), BIGINT, total.word, total.bit)
    builder.put(pa.array([text_of(n) for n in numbers], pa.string()), DataType("string"), text.word, text.bit)
    return builder.finish()


def text_of(number: int) -> str:
    """Of all lengths, now and then a long one, and each with letters of its own."""
    return chr(97 + number % 26) * (number % 5 if number % 10 else 40 * (number % 7))


def numbers_in(rows: Rows) -> list[int]:
    """The numbers of these records, whose other columns must be theirs."""
    assert (rows.words[:, LAYOUT.accumulators[0].word] == 7 * rows.words[:, LAYOUT.keys[0].word]).all()
    numbers: list[int] = rows.words[:, LAYOUT.keys[0].word].tolist()
    for number, start in zip(numbers, rows.words[:, LAYOUT.accumulators[1].word].tolist(), strict=True):
        length = int(rows.heap[start : start + 4].view(np.uint32)[0])
        assert bytes(rows.heap[start + 4 : start + 4 + length]).decode() == text_of(number)
    return numbers


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_cache_of_records_gives_back_what_was_put_or_nothing(policy: str, data: st.DataObject) -> None:
    capacity = data.draw(st.sampled_from([400, 3000, 100_000]))
    cache = RecordCache(LAYOUT, capacity, policy)
    put: set[int] = set()
    numbers = st.lists(st.integers(0, 60), max_size=20, unique=True)
    for time in range(data.draw(st.sampled_from([1, 5, 15, 60]))):
        some = data.draw(numbers)
        ids = np.array([1000 - n for n in some], np.int64)
        step = data.draw(st.sampled_from(["put", "put", "get", "hint", "drop"]))
        if step == "put":
            cache.put(ids, rows_of(some), np.full(len(some), time, np.int64), hinted=data.draw(st.booleans()))
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
        assert cache.nbytes <= capacity
        if capacity == 100_000:
            assert len(cache) == len(put), "there is room for all"


def test_by_timestamp_hinted_records_stays_and_what_was_used_goes() -> None:
    cache = RecordCache(LAYOUT, 6000)
    used, foretold = list(range(20)), list(range(100, 120))
    cache.put(np.array(used), rows_of(used), np.full(20, 5, np.int64))
    cache.put(np.array(foretold), rows_of(foretold), np.full(20, 9, np.int64), hinted=True)
    number = 200
    while cache.evicted < 15:
        cache.put(np.array([number]), rows_of([number]), np.array([6], np.int64))
        number += 1
    assert cache.hint(np.array(foretold), np.full(20, 9, np.int64)).all()
    assert not cache.hint(np.array(used[:10]), np.zeros(10, np.int64)).any()
    assert cache.wasted == 0


def test_by_timestamp_hinted_records_is_not_pushed_out_by_copies_for_the_same_time() -> None:
    """They may come before or after it: hints copy what lies in memory, and fetch what does not."""
    cache = RecordCache(LAYOUT, 6000)
    cache.get(np.array([-1]), 8)
    foretold = list(range(20))
    cache.put(np.array(foretold[:10]), rows_of(foretold[:10]), np.full(10, 9, np.int64), hinted=True)
    copies = list(range(100, 130))
    cache.put(np.array(copies), rows_of(copies), np.full(30, 9, np.int64))
    cache.put(np.array(foretold[10:]), rows_of(foretold[10:]), np.full(10, 9, np.int64), hinted=True)
    for number in range(200, 240):
        cache.put(np.array([number]), rows_of([number]), np.array([9], np.int64))
    assert cache.evicted > 0
    assert cache.holds(np.array(foretold)).all()
    assert cache.wasted == 0


def test_hinted_records_stays_while_others_of_its_time_are_used() -> None:
    cache = RecordCache(LAYOUT, 6000)
    cache.get(np.array([-1]), 8)
    first = list(range(20))
    cache.put(np.array(first), rows_of(first), np.full(20, 9, np.int64), hinted=True)
    assert cache.get(np.array(first[:3]), 9)[1].all()
    more = list(range(100, 100 + cache.room()))
    cache.put(np.array(more), rows_of(more), np.full(len(more), 9, np.int64), hinted=True)
    assert cache.wasted == 0
    assert cache.get(np.array(first[3:] + more), 9)[1].all()


def test_hinted_records_is_not_pushed_out_by_more_of_it() -> None:
    """Hints for twice what fits: what was accepted stays until it is used, and what is old goes first."""
    cache = RecordCache(LAYOUT, 6000)
    old = list(range(30))
    cache.put(np.array(old), rows_of(old), np.full(30, 4, np.int64), hinted=True)
    numbers = iter(range(100, 1000))
    kept: list[int] = []
    cache.get(np.array([-1]), 8)  # what was hinted for time 4 will not be used any more
    while room := cache.room():
        some = [next(numbers) for _ in range(min(room, 7))]
        cache.put(np.array(some), rows_of(some), np.full(len(some), 9, np.int64), hinted=True)
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
    held = cache._blocks.nbytes + cache._ranks.nbytes + cache._table.ids.nbytes
    cache.resize(4_000)
    left = cache.ids()
    assert 0 < len(left) < 100 and cache.nbytes <= 4_000
    assert cache._blocks.nbytes + cache._ranks.nbytes + cache._table.ids.nbytes < held / 10
    found, there = cache.get(left, 2)
    assert there.all() and len(found) == len(left)
    cache.resize(1 << 20)
    cache.put(many, rows_of(many.tolist()), np.full(len(many), 3, np.int64))
    assert cache.holds(many).all()


def test_many_small_puts_lie_in_few_blocks() -> None:
    cache = RecordCache(LAYOUT, 1 << 20)
    for first in range(0, 600, 3):
        some = np.arange(first, first + 3)
        cache.put(some, rows_of(some.tolist()), np.full(3, first, np.int64))
        assert len(cache._blocks) <= BLOCKS_MOST
    requested = np.random.default_rng(5).permutation(600)
    rows, there = cache.get(requested, 700)
    assert there.all() and numbers_in(rows) == requested.tolist()


def test_records_may_share_a_string_and_be_asked_for_twice() -> None:
    rows = rows_of([4, 134])  # both have the same four letters
    text = LAYOUT.accumulators[1].word
    rows.words[1, text] = rows.words[0, text]
    cache = RecordCache(LAYOUT, 1 << 20)
    cache.put(np.array([1, 2]), rows, np.zeros(2, np.int64))
    found, there = cache.get(np.array([2, 1, 2, 2, 1]), 1)
    assert there.all() and numbers_in(found) == [134, 4, 134, 134, 4]


def test_words_that_were_put_may_be_changed_afterwards() -> None:
    """Who has read rows for itself puts them together with others, which changes them."""
    cache, rows = RecordCache(LAYOUT, 1 << 20), rows_of([3, 4])
    cache.put(np.array([1, 2]), rows, np.zeros(2, np.int64))
    rows.words[:] = -1
    assert numbers_in(cache.get(np.array([1, 2]), 1)[0]) == [3, 4]


def test_what_is_left_of_what_was_used_up_does_not_hold_its_memory() -> None:
    """Of each batch nine in ten are used up; what is left stays for as long as it alone would."""
    cache = RecordCache(LAYOUT, 40_000, "lru")
    left: list[int] = []
    for first in range(0, 3_000, 100):
        batch = np.arange(first, first + 100)
        cache.put(batch, rows_of(batch.tolist()), np.full(100, first, np.int64))
        cache.drop(batch[:90])
        left += batch[90:].tolist()
        assert cache.nbytes <= 40_000
    newest = np.array(left[-60:])
    rows, there = cache.get(newest, 4_000)
    assert there.all() and numbers_in(rows) == newest.tolist()


def test_ids_that_are_renamed_keep_their_records_and_others_go() -> None:
    cache = RecordCache(LAYOUT, 1 << 20)
    segments = np.array([1, 2, 3]) << 32
    ids = (segments[:, None] | np.arange(10)).reshape(-1)
    cache.put(ids, rows_of(list(range(30))), np.zeros(30, np.int64))
    cache.drop(ids[5:20])
    cache.rename(ids[:3], np.array([(7 << 32) | n for n in range(3)]))
    cache.keep_only(np.array([7, 3]))
    rows, there = cache.get(np.concatenate([(7 << 32) + np.arange(3), ids]), 1)
    assert there.tolist() == [True] * 3 + [False] * 20 + [True] * 10
    assert numbers_in(rows) == [0, 1, 2, *range(20, 30)]


def test_few_leave_where_large_records_were_used_up() -> None:
    """What those took is no reason for others to go."""
    cache = RecordCache(LAYOUT, 120_000)
    large = np.arange(60, 60 + 70 * 400, 70)  # 240 letters each
    cache.put(large, rows_of(large.tolist()), np.zeros(400, np.int64))
    cache.drop(large[:390])
    small = np.arange(100_001, 100_501)[np.arange(500) % 10 != 9]
    cache.put(small, rows_of(small.tolist()), np.ones(len(small), np.int64), hinted=True)
    assert cache.holds(small).all() and cache.holds(large[390:]).all()
    assert cache.evicted == 0 and cache.nbytes <= 120_000


def test_many_leave_at_once_where_small_records_were_used_up() -> None:
    """Else each would cost as much as all of them together."""
    cache = RecordCache(LAYOUT, 120_000)
    small = np.arange(100_001, 100_501)
    cache.put(small, rows_of(small.tolist()), np.zeros(500, np.int64))
    cache.drop(small[:499])
    large = np.arange(60, 60 + 70 * 400, 70)
    compacted = []
    compact = cache._compact_blocks
    cache._compact_blocks = lambda blocks: (compacted.append(blocks), compact(blocks))[1]  # type: ignore[method-assign]
    cache.put(large, rows_of(large.tolist()), np.ones(400, np.int64))
    assert cache.nbytes <= 120_000 and len(cache) > 250
    assert len(compacted) < 6


def test_reading_beside_others_that_put_and_drop() -> None:
    """What is copied outside of the lock is not what others have put in its place."""
    cache, stop = RecordCache(LAYOUT, 60_000, "lru"), threading.Event()
    ids = np.arange(300)
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                rows, there = cache.get(ids, 1)
                assert [n % 300 for n in numbers_in(rows)] == np.flatnonzero(there).tolist()
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    draw = np.random.default_rng(11)
    for turn in range(150):
        some = np.unique(draw.integers(0, 300, 60))
        cache.put(some, rows_of((some + 300 * turn).tolist()), np.full(len(some), turn, np.int64))
        cache.drop(np.unique(draw.integers(0, 300, 40)))
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_what_is_too_old_counts_as_absent_until_it_is_put_anew() -> None:
    """Of a cache that grows, shrinks and is renumbered meanwhile."""
    time = StillClock()
    with clock.use(time):
        cache = RecordCache(LAYOUT, 1 << 20, max_age_s=60.0)
        old, young = np.arange(0, 300), np.arange(300, 600)
        cache.put(old, rows_of(old.tolist()), np.zeros(300, np.int64))
        time.at += 59
        cache.put(young, rows_of(young.tolist()), np.zeros(300, np.int64))
        both = np.concatenate([old, young])
        assert cache.holds(both).all()
        time.at += 2
        cache.drop(young[::2])
        cache.resize(1 << 19)
        alive = (both >= 300) & (both % 2 == 1)
        assert (cache.holds(both) == alive).all() and (cache.hint(both, np.zeros(600, np.int64)) == alive).all()
        rows, there = cache.get(both, 0)
        assert (there == alive).all() and numbers_in(rows) == both[alive].tolist()
        cache.put(old[:5], rows_of(old[:5].tolist()), np.zeros(5, np.int64))
        assert cache.holds(old).sum() == 5
        time.jumped += 10_000  # the wall clock says nothing
        assert cache.holds(old).sum() == 5
