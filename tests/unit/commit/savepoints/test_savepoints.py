"""Savepoints: kept through cleaning and starts, copied with every byte checked, started from without being changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.models.saved_query import PLAN, Query
from tailrace.cli import app
from tailrace.commit.controller import Controller
from tailrace.commit.savepoints.moving import copy_savepoint, restore_savepoint, verify_savepoint
from tailrace.commit.savepoints.savepoint import Savepoint, delete_savepoint, make_savepoint, savepoints
from tailrace.env.randomness import short_id
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.location import open_store
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError, CorruptionError, LockedError


@pytest.fixture
def query(tmp_path: Path) -> Query:
    query = Query(tmp_path / "query")
    query.run(5)
    return query


def files_of(store: ObjectStore) -> dict[str, bytes]:
    return {each.name: store.get(each.name) for each in store.list("")}


def test_cleaning_keeps_what_a_savepoint_needs(query: Query) -> None:
    saved = make_savepoint(query.store, query.place, "before")
    assert saved.epoch == 4 and len(saved.objects) > 1
    query.run(5)
    query.run(1)
    verify_savepoint(query.store, saved)
    (found,) = savepoints(query.store)
    assert (found.name, found.epoch, found.source) == ("before", 4, query.store.uri) and " on " in found.by and found.at
    delete_savepoint(query.store, found)
    query.run(1)
    assert not set(saved.objects) & set(query.objects())


def test_an_older_epoch(query: Query) -> None:
    assert make_savepoint(query.store, query.place, "older", 3).epoch == 3
    with pytest.raises(CheckpointError, match=r"Epoch 1 is not kept at .*: kept are 3, 4"):
        make_savepoint(query.store, query.place, "too-old", 1)


def test_an_epoch_that_spark_has_not_committed(query: Query) -> None:
    (query.root / "commits" / "4").unlink()
    assert make_savepoint(query.store, query.place, "newest").epoch == 3
    with pytest.raises(CheckpointError, match="Spark has not committed epoch 4"):
        make_savepoint(query.store, query.place, "4", 4)


def test_the_commit_may_be_in_the_record_of_the_next_epoch(query: Query) -> None:
    controller = Controller.start(query.store, PLAN, query.place)
    query.spark.plan(5, "f5")
    controller.record_spark_logs(5)
    controller.close()
    (query.root / "commits" / "4").unlink()
    assert make_savepoint(query.store, query.place, "newest").epoch == 4


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "-a", "x" * 65, "a b"])
def test_names(query: Query, name: str) -> None:
    with pytest.raises(CheckpointError, match="A savepoint's name"):
        make_savepoint(query.store, query.place, name)


def test_a_name_that_is_taken(query: Query) -> None:
    make_savepoint(query.store, query.place, "a")
    with pytest.raises(CheckpointError, match="There is a savepoint 'a' at"):
        make_savepoint(query.store, query.place, "a")


def test_an_epoch_that_is_cleaned_meanwhile(query: Query) -> None:
    """The cleaner has listed savepoints before this one was put."""

    class Cleaned(LocalStore):
        def put_if_absent(self, name: str, data: Any) -> bool:
            query.run(3)
            return super().put_if_absent(name, data)

    with pytest.raises(CheckpointError, match="Epoch 4 was cleaned"):
        make_savepoint(Cleaned(query.store.root), query.place, "late")
    assert savepoints(query.store) == []


def test_a_savepoint_that_is_made_while_objects_are_deleted(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry was there after its put: so the cleaner lists it, whatever comes between the cleaner's two steps."""
    made: list[Savepoint] = []
    delete = LocalStore.delete

    def deleting(store: LocalStore, names: Sequence[str]) -> None:
        if not made and any(name.startswith("log/") for name in names):
            made.append(make_savepoint(query.store, query.place, "between"))
        delete(store, names)

    monkeypatch.setattr(LocalStore, "delete", deleting)
    query.run(4)
    verify_savepoint(query.store, made[0])


def test_copied_there_and_back_and_started_from(query: Query, tmp_path: Path) -> None:
    saved = make_savepoint(query.store, query.place, "before")
    query.run(2)
    before = files_of(query.store)
    far, back = open_store(f"memory://{short_id()}"), LocalStore(tmp_path / "back")
    copy_savepoint(query.store, saved, far)
    copy_savepoint(far, savepoints(far)[0], back)
    copy_savepoint(far, savepoints(far)[0], back)
    assert files_of(back) == files_of(far) and savepoints(back)[0].manifest.objects == saved.manifest.objects
    kept, ids = files_of(back), set()
    for name in ("one", "other"):
        again = Query(tmp_path / name)
        manifest = restore_savepoint(back, savepoints(back)[0], again.store)
        assert manifest.epoch == 4 and manifest.objects == saved.manifest.objects
        again.spark.seen = [f"f{epoch}" for epoch in range(5)]
        again.spark.query = json.loads(manifest_metadata(again))["id"]
        assert again.run(3) == 5, "it goes on behind the savepoint's epoch"
        assert again.spark.resumes() == (8, None)
        ids.add(again.spark.query)
    assert files_of(back) == kept and files_of(query.store) == before
    assert len({*ids, query.spark.query}) == 3


def manifest_metadata(query: Query) -> bytes:
    """Of Spark's checkpoint, once a start has written it."""
    Controller.start(query.store, PLAN, query.place).close()
    return (query.root / "metadata").read_bytes()


def test_an_interrupted_copy_is_no_savepoint(query: Query, tmp_path: Path) -> None:
    saved = make_savepoint(query.store, query.place, "before")

    class Full(LocalStore):
        puts = 0

        def put(self, name: str, parts: Any) -> int:
            self.puts += 1
            if self.puts == 2:
                raise CheckpointError("the disk is full")
            return super().put(name, parts)

    far, full = LocalStore(tmp_path / "far"), Full(tmp_path / "far")
    with pytest.raises(CheckpointError, match="full"):
        copy_savepoint(query.store, saved, full)
    assert savepoints(far) == [] and len(far.list("objects/")) == 1
    copied: list[str] = []
    copy_savepoint(query.store, saved, full, lambda ref: copied.append(ref.name))
    assert full.puts == 2 + len(saved.objects) and len(copied) == len(saved.objects), "what is there was copied again"
    verify_savepoint(far, savepoints(far)[0])


def test_an_interrupted_restore_is_no_state(query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, target = make_savepoint(query.store, query.place, "a"), LocalStore(tmp_path / "new" / "tailrace")
    with monkeypatch.context() as patch:
        patch.setattr("tailrace.commit.savepoints.moving.put_record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restore_savepoint(query.store, saved, target)
    restore_savepoint(query.store, saved, target)
    with pytest.raises(CheckpointError, match=r"There is state of a query at .* already, up to epoch 4"):
        restore_savepoint(query.store, saved, target)


def test_a_query_that_runs_is_not_replaced(query: Query) -> None:
    saved = make_savepoint(query.store, query.place, "a")
    controller = Controller.start(query.store, PLAN, query.place)
    with pytest.raises(LockedError):
        restore_savepoint(query.store, saved, query.store)
    controller.close()


def test_damage_is_named_and_not_copied(query: Query, tmp_path: Path) -> None:
    saved = make_savepoint(query.store, query.place, "a")
    path = query.store.root / next(iter(saved.objects))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    for act in (
        lambda: verify_savepoint(query.store, saved),
        lambda: copy_savepoint(query.store, saved, LocalStore(tmp_path / "far")),
        lambda: restore_savepoint(query.store, saved, LocalStore(tmp_path / "new")),
    ):
        with pytest.raises(CorruptionError, match=path.name):
            act()
    assert not LocalStore(tmp_path / "far").list("savepoints/")


def test_a_damaged_savepoint_lets_no_object_go(query: Query) -> None:
    saved = make_savepoint(query.store, query.place, "a")
    (query.store.root / saved.file).write_bytes(b"{}")
    query.run(4)
    verify_savepoint(query.store, saved)
    with pytest.raises(CorruptionError, match="savepoints/a-"):
        savepoints(query.store)


def test_the_commands(query: Query, tmp_path: Path) -> None:
    run, place, far = CliRunner(), str(query.root), str(tmp_path / "far")

    def said(*arguments: str) -> str:
        ended = run.invoke(app, ["savepoint", *arguments], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    assert "keeps epoch 4" in said("create", place, "before")
    assert "whole" in said("copy", place, "before", far)
    assert "whole" in said("verify", far, "before")
    listed = json.loads(said("list", far, "--json"))
    assert (listed["name"], listed["epoch"], listed["objects"]) == (
        "before",
        4,
        len(savepoints(query.store)[0].objects),
    )
    assert "before" in said("list", place)
    assert "goes on with epoch 5" in " ".join(said("restore", far, "before", str(tmp_path / "new")).split())
    assert Query(tmp_path / "new").store.list("log/")
    said("delete", place, "before")
    assert "before" not in said("list", place)
    with pytest.raises(CheckpointError, match=r"There is no savepoint 'before' at .*: there is none"):
        said("verify", place, "before")
