"""The prefetching manager: one fetch for each id, takers wait for what is in flight, nothing is fetched twice."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.state.cache.prefetch import Prefetcher


class Backend:
    """Counts what is fetched; ``gate`` holds fetches back."""

    def __init__(self) -> None:
        self.fetched: Counter[int] = Counter()
        self.kept: dict[int, tuple[Any, int]] = {}
        self.keys: dict[int, Any] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.fail = False

    def fetch(self, ids: np.ndarray, keys: Any) -> list[int]:
        self.begun.set()
        assert self.gate.wait(10)
        if self.fail:
            raise ConnectionError("away")
        self.fetched.update(ids.tolist())
        if keys:
            self.keys.update(zip(ids.tolist(), [key for part in keys for key in part], strict=True))
        return [2 * id_ for id_ in ids.tolist()]

    def keep(self, ids: np.ndarray, found: list[int], times: np.ndarray) -> None:
        for id_, value, time in zip(ids.tolist(), found, times.tolist(), strict=True):
            self.kept[id_] = (value, time)


@contextmanager
def prefetcher(backend: Backend, **options: Any) -> Iterator[Prefetcher]:
    made = Prefetcher(backend.fetch, backend.keep, **options)
    try:
        yield made
    finally:
        backend.gate.set()
        made.close()


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@given(calls=st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(-9, 9)), max_size=30), max_size=12))
@settings(max_examples=40, deadline=None)
def test_everything_foretold_is_fetched_with_its_latest_time(calls: list[list[tuple[int, int]]]) -> None:
    backend = Backend()
    backend.gate.clear()  # so that all hints come before the first fetch ends
    with prefetcher(backend, batch=7, threads=1) as made:
        for call in calls:
            made.hint(ids(*(id_ for id_, _ in call)), ids(*(time for _, time in call)))
        backend.gate.set()
        made.drain()
        foretold = {id_ for call in calls for id_, _ in call}
        assert set(backend.kept) == foretold
        assert set(backend.fetched.values()) <= {1}
        for id_ in foretold:
            assert backend.kept[id_] == (2 * id_, max(t for call in calls for i, t in call if i == id_))


def test_who_needs_an_id_in_flight_waits_and_starts_no_second_fetch() -> None:
    backend = Backend()
    backend.gate.clear()
    with prefetcher(backend, threads=1) as made:
        made.hint(ids(1, 2), ids(0, 0))
        assert backend.begun.wait(10)
        done = threading.Event()
        taker = threading.Thread(target=lambda: (made.wait_for(ids(1)), done.set()))
        taker.start()
        assert not done.wait(0.05)
        made.hint(ids(1), ids(3))
        backend.gate.set()
        taker.join(10)
        assert done.is_set()
        assert backend.fetched == {1: 1, 2: 1}
        assert backend.kept[1] == (2, 3)


def test_what_has_landed_since_somebody_looked_is_not_fetched_again() -> None:
    backend = Backend()

    told: list[tuple[int, int]] = []

    def held(some: np.ndarray, times: np.ndarray) -> np.ndarray:
        told.extend(zip(some.tolist(), times.tolist(), strict=True))
        return np.array([id_ in backend.kept for id_ in some.tolist()], bool)

    with prefetcher(backend, held=held) as made:
        made.hint(ids(1, 2), ids(0, 0))
        made.drain()
        names = ["one", "three", "two", "four"]
        assert made.hint(ids(1, 3, 2, 4), ids(5, 6, 7, 8), lambda at: [names[place] for place in at]) == 2
        assert told[-4:] == [(1, 5), (3, 6), (2, 7), (4, 8)], "for these times they are to stay"
        assert made.hint(ids(1, 2), ids(5, 5)) == 0
        made.drain()
        assert backend.fetched == {1: 1, 2: 1, 3: 1, 4: 1}
        assert backend.keys == {3: "three", 4: "four"}, "keys are of those that are left"
        del backend.kept[1]
        assert made.hint(ids(1), ids(6)) == 1, "it has left again"


def test_what_nobody_has_begun_to_fetch_is_left_to_who_needs_it() -> None:
    backend = Backend()
    backend.gate.clear()
    with prefetcher(backend, threads=1, batch=1) as made:
        made.hint(ids(1), ids(0))
        assert backend.begun.wait(10)
        made.hint(ids(2, 3), ids(0, 0))
        assert made.claim(ids(2, 1, 4, 2)).tolist() == [False, True, False, False]  # 2 had only a hint
        backend.gate.set()
        made.drain()
        assert backend.fetched == {1: 1, 3: 1}


def test_hints_of_many_calls_are_fetched_together_and_timed_from_the_hint_on() -> None:
    sizes: list[int] = []

    class Noting(Backend):
        def fetch(self, ids: np.ndarray, keys: Any) -> list[int]:
            sizes.append(len(ids))
            return super().fetch(ids, keys)

    backend = Noting()
    backend.gate.clear()
    with prefetcher(backend, threads=1, batch=100) as made:
        made.hint(ids(0), ids(0))
        assert backend.begun.wait(10)
        for number in range(1, 31):
            made.hint(ids(number), ids(0))
        backend.gate.set()
        made.drain()
        assert sizes == [1, 30]
        assert made.fetch_ms(1.0) >= made.fetch_ms(0.0) > 0


def test_a_fetch_that_fails_leaves_nothing_and_wedges_nobody() -> None:
    backend = Backend()
    backend.fail = True
    with prefetcher(backend) as made:
        made.hint(ids(1, 2), ids(0, 0))
        made.drain()
        made.wait_for(ids(1, 2))
        assert not backend.kept
        backend.fail = False
        made.hint(ids(1), ids(0))
        made.drain()
        assert backend.kept == {1: (2, 0)}
        assert made.failed >= 1


@pytest.mark.timeout(60)
def test_keys_that_cannot_be_had_wedge_nobody() -> None:
    def no_keys(places: np.ndarray) -> list[str]:
        raise MemoryError

    backend = Backend()
    with prefetcher(backend, threads=1) as made:
        made.hint(ids(1, 2), ids(0, 0), no_keys)
        made.drain()
        made.wait_for(ids(1, 2))
        assert made.failed == 2 and not backend.kept
        made.hint(ids(1), ids(0), lambda places: ["one"])
        made.drain()
        assert backend.kept == {1: (2, 0)}


def test_keys_of_ids_that_are_known_already_are_not_held() -> None:
    class Keys:
        def __call__(self, places: np.ndarray) -> list[str]:
            return ["key"] * len(places)

    backend = Backend()
    with prefetcher(backend, space=lambda: 0) as made:  # a full cache: everything stays pending
        first = Keys()
        made.hint(ids(1), ids(0), first)
        again = weakref.ref(more := Keys())
        made.hint(ids(1), ids(1), more)
        del more
        gc.collect()
        assert again() is None, "hints of the same keys pile up while there is no room for what they name"


def test_keys_travel_with_their_ids() -> None:
    backend = Backend()
    with prefetcher(backend, batch=3) as made:
        for start in range(0, 50, 10):
            names = [f"key {n % 12}" for n in range(start, start + 10)]
            numbers = ids(*(n % 12 for n in range(start, start + 10)))
            made.hint(numbers, np.zeros(10, np.int64), lambda places, names=names: [names[p] for p in places])
        made.drain()
        assert backend.keys == {n: f"key {n}" for n in range(12)}


def test_old_hints_are_dropped_and_the_buffer_is_bounded() -> None:
    backend = Backend()
    backend.gate.clear()
    with prefetcher(backend, threads=1, batch=1, room=5) as made:
        made.hint(ids(0), ids(100))
        assert backend.begun.wait(10)
        made.hint(ids(1, 2, 3, 4, 5, 6), ids(1, 2, 3, 4, 5, 6))
        assert made.dropped == 2
        made.drop_before(3)
        backend.gate.set()
        made.drain()
        assert set(backend.fetched) == {0, 3, 4}


def test_closing_ends_workers_and_waiters() -> None:
    backend = Backend()
    before = threading.active_count()
    made = Prefetcher(backend.fetch, backend.keep)
    made.hint(ids(1), ids(0))
    made.drain()
    made.close()
    made.hint(ids(2), ids(0))
    made.wait_for(ids(2))
    assert threading.active_count() == before
    assert 2 not in backend.fetched


def test_no_more_is_fetched_than_can_be_kept() -> None:
    backend = Backend()
    space = 10
    with prefetcher(backend, space=lambda: space - len(backend.kept), threads=2, batch=4) as made:
        made.hint(np.arange(25), np.zeros(25, np.int64))
        made.drain()
        assert len(backend.kept) == 10
        left = ids(*(set(range(25)) - set(backend.kept)))
        assert not made.claim(left[:5]).any()  # for who needs them now
        space = 100
        made.resume()
        made.drain()
        assert len(backend.kept) == 10 + 10


def _begun(call: Callable[[], object]) -> threading.Thread:
    """A call in a thread of its own, by now most likely under way."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(0.05)
    return thread


def test_nobody_waits_for_an_id_that_there_is_no_space_for() -> None:
    """An id that somebody waits for may be gone and hinted anew before the waiter looks again."""
    backend = Backend()
    with prefetcher(backend, space=lambda: 0) as made:
        made.hint(ids(1, 2), ids(0, 0))
        waiter = _begun(lambda: made.wait_for(ids(1)))
        waiter.join(5)
        assert not waiter.is_alive()
        assert made.knows(ids(1, 2)).tolist() == [False, True], "who waited fetches it"


def test_who_drains_hears_of_dropped_hints() -> None:
    backend = Backend()
    with prefetcher(backend, threads=0) as made:
        made.hint(ids(1, 2), ids(0, 0))
        waiter = _begun(made.drain)
        assert waiter.is_alive()
        made.drop_before(3)
        waiter.join(5)
        assert not waiter.is_alive()


def test_claimed_hints_leave_nothing_behind() -> None:
    backend = Backend()
    with prefetcher(backend, threads=0) as made:
        for first in range(0, 20_000, 100):
            some = np.arange(first, first + 100)
            made.hint(some, np.zeros(100, np.int64))
            assert not made.claim(some).any()
        assert made._table.room <= 1024


def test_old_hints_give_their_space_to_others() -> None:
    backend = Backend()
    backend.gate.clear()
    with prefetcher(backend, space=lambda: 2 - len(backend.kept), threads=1, batch=1) as made:
        made.hint(ids(1, 2, 3, 4), ids(5, 1, 5, 1))
        assert backend.begun.wait(10)
        made.drop_before(3)
        assert made.dropped == 2
        backend.gate.set()
        made.drain()
        assert set(backend.kept) == {1, 3}


@pytest.mark.parametrize("closed", [(), (1, 2), (3,)])
def test_what_is_renamed_while_it_is_foretold_or_fetched_is_kept_under_its_new_id(closed: tuple[int, ...]) -> None:
    """``closed``: ids under which nothing can be read any more once the others are there."""

    class Closing(Backend):
        def fetch(self, ids: np.ndarray, keys: Any) -> list[int]:
            self.begun.set()
            assert self.gate.wait(10)
            if set(closed) & set(ids.tolist()):
                raise OSError("closed")
            return super().fetch(ids, keys)

    backend = Closing()
    backend.gate.clear()
    with prefetcher(backend, threads=1, batch=2) as made:
        made.hint(ids(1, 2, 3, 4), ids(0, 0, 0, 0))
        assert backend.begun.wait(10)  # the worker has 1 and 2
        made.rename(ids(4, 2, 9), ids(14, 12, 19))
        made.rename(ids(12, 1), ids(22, 21))
        assert made.knows(ids(1, 2, 12, 21, 22, 3, 4, 14)).tolist() == [False] * 3 + [True] * 3 + [False, True]
        backend.gate.set()
        made.drain()
        assert set(backend.kept) == ({21, 22} if closed == (3,) else {21, 22, 3, 14})
        assert not len(made._table) and not made._renamed and made.failed == (2 if closed == (3,) else 0)


def test_what_lies_nowhere_any_more_is_fetched_by_nobody_and_harms_no_other_fetch() -> None:
    backend = Backend()
    backend.gate.clear()
    with prefetcher(backend, threads=1, batch=1) as made:
        assert made.hint(ids(1, 2, 3), ids(0, 0, 0)) == 3
        assert made.hint(ids(2, 3, 4), ids(0, 0, 0)) == 1, "the others were foretold"
        assert backend.begun.wait(10)  # the worker has 1
        made.drop(ids(1, 3, 7))
        backend.gate.set()
        made.drain()
        assert set(backend.kept) == {1, 2, 4} and made._flying == 0


def test_what_vanishes_while_it_is_fetched_fails_no_other() -> None:
    gone: set[int] = set()

    class Vanishing(Backend):
        def fetch(self, ids: np.ndarray, keys: Any) -> list[int]:
            self.begun.set()
            assert self.gate.wait(10)
            if gone & set(ids.tolist()):
                raise OSError("closed")
            return super().fetch(ids, keys)

    backend = Vanishing()
    backend.gate.clear()
    with prefetcher(backend, living=lambda ids: ~np.isin(ids, list(gone)), threads=1, batch=100) as made:
        made.hint(np.arange(50), np.zeros(50, np.int64))
        assert backend.begun.wait(10)
        gone |= {7}
        made.rename(ids(8, 9), ids(108, 109))
        gone |= {8, 109}
        backend.gate.set()
        made.drain()
        assert set(backend.kept) == {*range(50), 108} - {7, 8, 9}
        assert (made.fetched, made.failed) == (48, 2) and not len(made._table)
