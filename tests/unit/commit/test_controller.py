"""The driver's side: start, commit, tries, cleaning, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.models.commit import State, compact_newest, sections, state_of
from support.models.spark_logs import spark_logs
from tailrace.commit.compaction.compaction import compact_objects
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import EMPTY
from tailrace.commit.objects import ObjectRef, write_object
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError, CorruptionError, FencedError, LockedError

PLAN = {"shards": 4, "operators": ["op"]}


@pytest.fixture
def store(tmp_path) -> LocalStore:
    return LocalStore(tmp_path / "state")


def start(store: ObjectStore, c: int, offset: int | None = None, **options) -> Controller:
    offsets = list(range((c if offset is None else offset) + 1))
    return Controller.start(store, PLAN, spark_logs(range(c + 1), offsets), **options)


def changes(epoch: int) -> State:
    return {(shard, ("key", 0)): 100 * epoch + shard for shard in range(4)} | {(0, (f"of {epoch}", 0)): epoch}


def expected(epoch: int) -> State:
    state: State = {}
    for each in range(epoch + 1):
        state.update(changes(each))
    return state


def delta(controller: Controller, store: ObjectStore, epoch: int, try_: int = 0) -> ObjectRef:
    return write_object(
        store,
        run=controller.run,
        try_=try_,
        server=0,
        first_epoch=epoch,
        last_epoch=epoch,
        shards=[(0, 4)],
        sections={"op": sections(changes(epoch), range(4))},
        horizons={"op": 0},
    )


def commit(controller: Controller, store: ObjectStore, epoch: int, try_: int = 0, **more):
    ref = delta(controller, store, epoch, try_)
    return controller.commit(epoch, try_, [ref], rows={"input": epoch}, epoch_config={"tasks": epoch}, **more)


def names(store: ObjectStore, prefix: str) -> list[str]:
    return [each.name for each in store.list(prefix)]


def test_a_restart_continues(store) -> None:
    first = start(store, -1)
    assert first.recovery_point.manifest == EMPTY and first.recovery_point.replay is None
    for epoch in range(5):
        commit(first, store, epoch, watermarks={"op": epoch})
        first.clean()
    first.close()
    again = start(store, 4)
    assert again.recovery_point.epoch == 4 and again.recovery_point.replay is None
    assert again.recovery_point.manifest.watermarks == {"op": 4}
    assert state_of(store, again.recovery_point.manifest, 4, 2) == expected(4)
    again.close()


def test_a_crash_between_our_entry_and_sparks_lands_one_back(store) -> None:
    first = start(store, -1)
    commit(first, store, 0)
    first.close()
    again = start(store, -1, 0)
    assert again.recovery_point.manifest == EMPTY
    assert again.recovery_point.replay is not None and again.recovery_point.replay.rows == {"input": 0}
    for epoch in range(4):
        commit(again, store, epoch)
        again.clean()
    again.close()
    third = start(store, 2, 3)
    assert third.recovery_point.epoch == 2
    assert state_of(store, third.recovery_point.manifest, 4, 1) == expected(2)
    assert third.recovery_point.replay is not None and third.recovery_point.replay.epoch_config == {"tasks": 3}
    third.close()
    fourth = start(store, 2, 3)  # and once more, nothing having been committed in between
    assert state_of(store, fourth.recovery_point.manifest, 4, 1) == expected(2)
    commit(fourth, store, 3)
    fourth.clean()
    assert fourth.manifest(3).run == fourth.run and fourth.manifest(2).epoch == 2
    fourth.close()


def test_an_epoch_that_changed_nothing_needs_no_object(store) -> None:
    controller = start(store, -1)
    commit(controller, store, 0)
    assert controller.commit(1, 0, horizons={"op": 0, "other": 5}).objects == controller.manifest(0).objects
    assert controller.manifest(1).horizons == {"op": 0, "other": 5}
    assert controller.commit(2, 0).horizons == {"op": 0, "other": 5}
    assert controller.commit(3, 0, horizons={"op": 0, "other": 4}).horizons == {"op": 0, "other": 5}
    controller.close()


def test_an_object_of_closed_windows_is_kept_as_long_as_a_start_may_need_it(store) -> None:
    """Epoch 1 closes the windows of epoch 0. Spark may still be at epoch 0, and then its object is opened."""
    controller = start(store, -1)
    (old,) = commit(controller, store, 0).objects
    controller.commit(1, 0, horizons={"op": 1})
    assert controller.manifest(1).objects == ()
    controller.clean()
    controller.close()
    behind = start(store, 0, 1)
    assert behind.recovery_point.manifest.objects == (old,)
    assert state_of(store, behind.recovery_point.manifest, 4, 1) == expected(0)
    behind.commit(1, 0, horizons={"op": 1})
    behind.clean()
    assert names(store, "objects/") == [old.name]
    behind.commit(2, 0)
    behind.clean()
    assert names(store, "objects/") == []
    behind.close()
    last = start(store, 2)
    assert state_of(store, last.recovery_point.manifest, 4, 1) == {}
    last.close()


def test_a_new_try_starts_from_the_epoch_before(store) -> None:
    controller = start(store, -1)
    commit(controller, store, 0)
    commit(controller, store, 1, try_=0)
    with pytest.raises(RuntimeError, match="cannot go from durable"):
        commit(controller, store, 1, try_=0)
    again = commit(controller, store, 1, try_=2)
    assert again.parent == controller.manifest(0).number
    assert [ref.last_epoch for ref in again.objects] == [0, 1]
    commit(controller, store, 2)
    controller.clean()
    assert state_of(store, controller.manifest(2), 4, 3) == expected(2)
    assert not [name for name in names(store, "objects/") if "-0000-" in name and f"{1:020d}-" in name]
    controller.close()


def test_cleaning_keeps_what_the_retained_epochs_need_and_nothing_else(store) -> None:
    controller = start(store, -1, retain=3)
    for epoch in range(10):
        compactions = []
        if epoch % 3 == 2:
            refs = controller.manifest(epoch - 1).objects
            compactions = [compact_objects(store, refs, range(4), compact_newest, run=controller.run, server=0)]
        commit(controller, store, epoch, compactions=compactions)
        controller.clean()
        kept = [controller.manifest(each) for each in range(max(0, epoch - 2), epoch + 1)]
        assert names(store, "objects/") == sorted({ref.name for each in kept for ref in each.objects})
        for each in kept:
            assert state_of(store, each, 4, 2) == expected(each.epoch)
    assert len(names(store, "log/")) == 3 + 1  # and the fence
    with pytest.raises(CheckpointError, match="kept: epoch 9, epoch 8, epoch 7"):
        controller.manifest(6)
    controller.close()


def test_cleaning_lists_nothing(store) -> None:
    controller = start(store, -1)
    store.list = None  # type: ignore[method-assign,assignment]
    for epoch in range(5):
        commit(controller, store, epoch)
        controller.clean()
    controller.close()


def test_orphans_of_earlier_runs_are_deleted_at_start(store, tmp_path) -> None:
    first = start(store, -1)
    for epoch in range(3):
        commit(first, store, epoch)
    orphan = delta(first, store, 3)
    leftover = tmp_path / "state" / ".tmp" / "123-abc"
    leftover.write_bytes(b"half an obj")
    first.close()
    again = start(store, 2)
    assert orphan.name not in names(store, "objects/") and not leftover.exists()
    assert state_of(store, again.recovery_point.manifest, 4, 2) == expected(2)
    again.close()


def test_many_restarts_leave_fences_but_do_not_reread_them(store) -> None:
    controller = start(store, -1)
    for epoch in range(3):
        commit(controller, store, epoch)
        controller.clean()
    controller.close()
    for epoch in range(3, 9):
        controller = start(store, epoch - 1)
        commit(controller, store, epoch)
        controller.clean()
        controller.close()
    reads: list[str] = []
    get = store.get
    store.get = lambda name: (reads.append(name), get(name))[1]  # type: ignore[method-assign,func-returns-value]
    start(store, 8).close()
    assert len(names(store, "log/")) == 8 + 2
    assert len([name for name in reads if name.startswith("log/")]) < 8


def test_a_zombie_publishes_nothing_and_cannot_harm(store, monkeypatch) -> None:
    zombie = start(store, -1)
    for epoch in range(4):
        commit(zombie, store, epoch)
    zombie._lock.release()  # it hangs on another machine, where our lock is not seen
    fresh = start(store, 3)
    late = delta(zombie, store, 4)
    with pytest.raises(FencedError, match=fresh.run):
        zombie.commit(4, 0, [late])
    zombie.clean()
    commit(fresh, store, 4)
    fresh.clean()
    zombie.clean()
    assert state_of(store, fresh.manifest(4), 4, 2) == expected(4)
    assert state_of(store, fresh.manifest(3), 4, 2) == expected(3)
    fresh.close()


class NoLock:
    """Two machines do not see each other's locks on an object store."""

    def __init__(self, store: ObjectStore, run: str) -> None: ...

    def release(self) -> None: ...


def test_a_start_that_is_overtaken_deletes_nothing(store, monkeypatch) -> None:
    """Two machines start at once. The slower one must not take the faster one's objects for orphans."""
    monkeypatch.setattr("tailrace.commit.controller.QueryLock", NoLock)
    commit(start(store, -1), store, 0)
    fast: list[Controller] = []
    listing = LocalStore.list

    def overtaken(self, prefix: str):
        if prefix == "rows/":  # listed when orphans are looked for, behind the fence
            monkeypatch.setattr(LocalStore, "list", listing)
            fast.append(start(store, 0))
            commit(fast[0], store, 1)
        return listing(self, prefix)

    monkeypatch.setattr(LocalStore, "list", overtaken)
    with pytest.raises(FencedError, match="took over"):
        start(store, 0)
    assert state_of(store, fast[0].manifest(1), 4, 1) == expected(1)


def test_an_entry_whose_answer_was_lost_is_cleaned_with_the_others(store, monkeypatch) -> None:
    controller = start(store, -1)
    commit(controller, store, 0)
    put = LocalStore.put_if_absent

    def lost(self, name, data):
        put(self, name, data)
        monkeypatch.setattr(LocalStore, "put_if_absent", put)
        raise CheckpointError("no answer")

    monkeypatch.setattr(LocalStore, "put_if_absent", lost)
    with pytest.raises(CheckpointError, match="no answer"):
        commit(controller, store, 1)
    for epoch in (1, 2, 3):
        commit(controller, store, epoch, try_=1)
        controller.clean()
        assert state_of(store, controller.manifest(epoch), 4, 2) == expected(epoch)
    assert len(names(store, "log/")) == 3
    assert not [name for name in names(store, "objects/") if f"{1:020d}-{controller.run}-0000" in name]
    controller.close()


def test_a_changed_plan_is_refused_and_disturbs_nothing(store) -> None:
    first = start(store, -1)
    commit(first, store, 0)
    first.close()
    before = names(store, "log/")
    with pytest.raises(CheckpointError, match="shards was 4 and is 8"):
        Controller.start(store, {**PLAN, "shards": 8}, spark_logs([0], [0]))
    assert names(store, "log/") == before
    start(store, 0).close()


def test_a_plan_that_made_nothing_durable_binds_nobody(store) -> None:
    start(store, -1).close()
    changed = Controller.start(store, {"other": 1}, spark_logs())
    commit(changed, store, 0)
    changed.close()
    Controller.start(store, {"other": 1}, spark_logs([0], [0])).close()


def test_a_lost_or_exchanged_plan_is_refused(store, tmp_path) -> None:
    first = start(store, -1)
    commit(first, store, 0)
    first.close()
    path = tmp_path / "state" / "plan.json"
    text = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptionError, match=r"plan\.json.*missing"):
        start(store, 0)
    other = LocalStore(tmp_path / "other")
    Controller.start(other, {"x": 1}, spark_logs()).close()
    path.write_bytes(other.get("plan.json"))
    with pytest.raises(CorruptionError, match=r"plan\.json.*not the plan of durable epoch 0"):
        start(store, 0)
    path.write_bytes(text)
    start(store, 0).close()


def test_a_second_start_is_refused_while_the_first_runs(store) -> None:
    first = start(store, -1)
    with pytest.raises(LockedError, match=r"another query of this same process.*query\.stop"):
        start(LocalStore(store.root), -1)
    commit(first, store, 0)
    first.close()
    first.close()
    start(store, 0).close()


def test_a_refused_start_releases_the_lock(store) -> None:
    for _ in range(2):
        with pytest.raises(CheckpointError, match="no state for the epochs"):
            start(store, 3)


def test_a_damaged_newest_entry(store, tmp_path) -> None:
    first = start(store, -1)
    for epoch in range(3):
        newest = commit(first, store, epoch)
    first.close()
    path = tmp_path / "state" / "log" / f"{newest.number:020d}.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptionError, match=path.name):
        start(store, 2)
    fallback = start(store, 1, 2)  # Spark has committed epoch 1: the entry before the damaged one is exactly that
    assert state_of(store, fallback.recovery_point.manifest, 4, 2) == expected(1)
    commit(fallback, store, 2)
    fallback.close()
    again = start(store, 2)
    assert state_of(store, again.recovery_point.manifest, 4, 2) == expected(2)
    again.close()


def test_damaged_objects_of_the_replayed_epoch_do_not_matter(store, tmp_path) -> None:
    first = start(store, -1)
    for epoch in range(3):
        newest = commit(first, store, epoch)
    first.close()
    (tmp_path / "state" / newest.objects[-1].name).write_bytes(b"nonsense")
    again = start(store, 1, 2)
    assert state_of(store, again.recovery_point.manifest, 4, 2) == expected(1)
    again.close()


def test_places_that_cannot_be_used(tmp_path, store) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(CheckpointError, match=f"{file}.*stateLocation"):
        start(LocalStore(file / "state"), -1)
    with pytest.raises(CheckpointError, match="At least 2"):
        start(store, -1, retain=1)
    assert not Path(store.uri).exists()
