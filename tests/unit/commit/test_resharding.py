"""Another number of shards: whatever interrupts it, a query goes on from the state of before, or from the new one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.saved_query import PLAN, Query
from tailrace.commit import resharding
from tailrace.commit.controller import Controller
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import read_sections
from tailrace.commit.resharding import PART_SHARDS_MAX, Change, parts, reshard
from tailrace.commit.savepoints.moving import verify_savepoint
from tailrace.commit.savepoints.savepoint import make_savepoint
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, LockedError

OLD, NEW = 4, 6
AFTER = {"q": 1, "shards": NEW}


def compact(_: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
    """No record is written twice."""
    whole = pa.concat_batches(batches)
    return whole.filter(pc.greater_equal(whole.column("__pane"), horizon))


CHANGE = Change(OLD, NEW, PLAN, AFTER, compact)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    query = Query(tmp_path / "query")
    query.run(5)
    return query


def newest(store: LocalStore) -> Manifest:
    found = CommitLog(store).read().newest
    assert found is not None
    return found


def records(store: LocalStore, manifest: Manifest, shards: int) -> list[int]:
    found = []
    for shard, batches, horizon in read_sections(store, manifest.living, "op", range(shards), manifest.horizons):
        for batch in batches:
            hashes = [hash_ for hash_ in batch.column("__hash").to_pylist() if hash_ >= horizon]
            assert all(hash_ % shards == shard for hash_ in hashes)
            found += hashes
    return sorted(found)


@settings(max_examples=40)
@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 1 << 32))
def test_parts_have_the_shards_of_every_key(old: int, new: int, bytes_: int) -> None:
    found = parts(old, new, bytes_)
    owner = {shard: part for part in found for shard in part.write}
    assert sorted(owner) == list(range(new)) and sum(len(part.write) for part in found) == new
    assert all(len(part.write) <= PART_SHARDS_MAX and list(part.write) == sorted(part.write) for part in found)
    for hash_ in range(-5, 600, 7):
        assert hash_ % old in owner[hash_ % new].read


def test_the_query_goes_on(query: Query) -> None:
    before = newest(query.store)
    done = reshard(query.store, query.place, CHANGE)
    assert done.epoch == 4 and records(query.store, done, NEW) == records(query.store, before, OLD) != []
    with pytest.raises(CheckpointError, match="shards was 6 and is None"):
        query.run(1)
    (query.root / "commits" / "4").unlink()  # a loss of power: the state has it
    assert query.run(3, AFTER) == 5


def test_an_epoch_that_spark_runs_again_stays_one(query: Query) -> None:
    (query.root / "commits" / "4").unlink()
    reshard(query.store, query.place, CHANGE)
    controller = Controller.start(query.store, AFTER, query.place)
    controller.close()
    replay = controller.recovery_point.replay
    assert replay is not None and replay.epoch == 4 and replay.rows == {"input": 4}
    assert controller.recovery_point.epoch == 3
    assert query.spark.resumes() == (4, ["f4"])


def test_whatever_put_fails(query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "PART_BYTES", 1)  # an object for each rest
    before = newest(query.store)
    wanted, reused = records(query.store, before, OLD), 0
    for fails in range(9):
        other = Query(tmp_path / str(fails))
        shutil.copytree(query.root, other.root)
        try:
            reshard(_Failing(other.store.root, fails), other.place, CHANGE)
        except OSError:
            plan = PLAN if newest(other.store).plan == before.plan else AFTER
            started = Query(tmp_path / f"{fails}-started")
            shutil.copytree(other.root, started.root)
            assert started.run(1, plan) == 5
            if plan is PLAN:
                again = _Failing(other.store.root, -1)
                reshard(again, other.place, CHANGE)
                reused += again.objects < 2
        assert records(other.store, newest(other.store), NEW) == wanted
    assert plan is AFTER, "not all puts have failed"
    assert reused, "what was written is written again"


class _Failing(LocalStore):
    def __init__(self, root: Path, fails: int) -> None:
        super().__init__(root)
        self._left = fails
        self.objects = 0

    def put(self, name: str, parts: Any) -> int:
        self._count(name)
        return super().put(name, parts)

    def put_if_absent(self, name: str, data: Any) -> bool:
        self._count(name)
        return super().put_if_absent(name, data)

    def _count(self, name: str) -> None:
        if self._left == 0:
            raise OSError("the disk is gone")
        self._left -= 1
        self.objects += name.startswith("objects/")


def test_savepoints_stay_as_they_are(query: Query) -> None:
    saved = make_savepoint(query.store, query.place, "before")
    reshard(query.store, query.place, CHANGE)
    query.run(3, AFTER)
    verify_savepoint(query.store, saved)
    assert saved.plan == PLAN and make_savepoint(query.store, query.place, "after").plan == AFTER


def test_a_query_that_runs(query: Query) -> None:
    controller = Controller.start(query.store, PLAN, query.place)
    with pytest.raises(LockedError):
        reshard(query.store, query.place, CHANGE)
    controller.close()
