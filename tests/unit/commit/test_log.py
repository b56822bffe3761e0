"""The numbered log: fences stop older runs, for ever."""

from __future__ import annotations

import pytest

from support.stores.faulty import FaultyStore
from tailrace.commit.log import CommitLog, Damaged, Fence
from tailrace.commit.manifest import Manifest
from tailrace.env.randomness import new_run_id, short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CorruptionError, FencedError


@pytest.fixture
def store(tmp_path) -> LocalStore:
    return LocalStore(tmp_path)


def durable(run: str, epoch: int, try_: int = 0) -> Manifest:
    return Manifest(epoch=epoch, run=run, try_=try_)


def test_entries_are_numbered_and_read_newest_first(store) -> None:
    log, run = CommitLog(store), new_run_id()
    assert log.read().newest is None
    assert log.fence(run) == 0
    written = [log.append_durable(run, durable(run, epoch)) for epoch in range(3)]
    assert [each.number for each in written] == [1, 2, 3]
    assert log.read().newest == written[2]
    assert log.manifest(2) == written[1]
    again = CommitLog(store)
    assert again.fence(new_run_id()) == 4
    assert again.read().newest == written[2]
    assert [type(each) for each in again.read().entries] == [Fence, Manifest]


def test_a_fenced_run_publishes_nothing(store) -> None:
    old, new = CommitLog(store), CommitLog(store)
    a, b = new_run_id(), new_run_id()
    old.fence(a)
    old.append_durable(a, durable(a, 0))
    new.fence(b)
    before = store.list("log/")
    with pytest.raises(FencedError, match=f"run {b} took over the state at .* on .* \\(process \\d+\\)"):
        old.append_durable(a, durable(a, 1))
    assert store.list("log/") == before
    new.append_durable(b, durable(b, 1))
    with pytest.raises(FencedError):
        old.append_durable(a, durable(a, 1, try_=1))


def test_a_run_that_slept_through_many_runs_and_cleanings_publishes_nothing(store) -> None:
    zombie, a = CommitLog(store), new_run_id()
    zombie.fence(a)
    kept = zombie.append_durable(a, durable(a, 0))
    for epoch in range(1, 6):
        log, run = CommitLog(store), new_run_id()
        log.fence(run)
        fresh = log.append_durable(run, durable(run, epoch))
        log.delete([kept.number])
        kept = fresh
    before = store.list("log/")
    with pytest.raises(FencedError):
        zombie.append_durable(a, durable(a, 1))
    assert store.list("log/") == before


def test_an_own_earlier_try_is_passed_over(store) -> None:
    log, run = CommitLog(store), new_run_id()
    log.fence(run)
    first = log.append_durable(run, durable(run, 0, try_=0))
    log._next = first.number  # as if the answer to that put had been lost
    assert log.append_durable(run, durable(run, 0, try_=1)).number == first.number + 1
    log._next = first.number
    assert log.append_durable(run, durable(run, 0, try_=0)).number == first.number  # the same entry: it was ours


def test_a_put_that_loses_to_its_own_retry_counts_as_won() -> None:
    store = FaultyStore(CloudStore(f"memory://{short_id()}", {}), seed=1)
    log, run = CommitLog(store), new_run_id()
    store._random.random = lambda: 0.0  # type: ignore[method-assign]
    store.error_rate = 1e-9
    store._do = lambda operation: operation()  # type: ignore[method-assign]
    assert log.fence(run) == 0
    assert log.append_durable(run, durable(run, 0)).number == 1
    assert log.numbers() == [0, 1]


def test_damaged_and_missing_entries_are_named(store, tmp_path) -> None:
    log, run = CommitLog(store), new_run_id()
    log.fence(run)
    entry = log.append_durable(run, durable(run, 0))
    log.append_durable(run, durable(run, 1))
    path = tmp_path / "log" / "00000000000000000002.json"
    path.write_bytes(path.read_bytes()[:-10])
    history = log.read()
    assert [type(each) for each in history.entries] == [Damaged, Manifest]
    assert history.newest == entry
    assert str(path) in str(history.damaged[0].error)
    with pytest.raises(CorruptionError, match="00000000000000000002"):
        log.manifest(2)
    with pytest.raises(CorruptionError, match=r"00000000000000000005.*missing"):
        log.manifest(5)
    with pytest.raises(CorruptionError, match="should be a durable epoch"):
        log.manifest(0)


def test_no_append_without_a_fence(store) -> None:
    with pytest.raises(RuntimeError, match="fence"):
        CommitLog(store).append_durable(new_run_id(), durable("", 0))
