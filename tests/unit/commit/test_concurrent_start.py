"""A start that is overtaken by a newer one: it stops before it changes anything that the newer one relies on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.models.spark_logs import FakeSparkLogs
from tailrace.commit import controller as controllers
from tailrace.commit.controller import Controller
from tailrace.commit.log import CommitLog
from tailrace.commit.row_counts import RowCount
from tailrace.env.files.disk import Disk
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import FencedError

PLAN = {"query": "overtaken"}


def test_an_overtaken_start_does_not_rewind(tmp_path) -> None:
    store = LocalStore(tmp_path / "state")
    logs = FakeSparkLogs()
    first = Controller.start(store, PLAN, logs)
    first.commit(0, 0)
    first.close()
    logs.commits, logs.offsets = [0, 1], [0, 1, 2]  # epoch 1 was not durable

    class Overtaken(FakeSparkLogs):
        def epochs(self, log: str) -> list[int]:
            if log == "offsets":
                CommitLog(store).fence("f" * 16)
            return super().epochs(log)

    overtaken = Overtaken(logs.commits, logs.offsets)
    with pytest.raises(FencedError):
        Controller.start(store, PLAN, overtaken)
    assert (overtaken.commits, overtaken.offsets) == ([0, 1], [0, 1, 2])


def test_a_replaced_run_does_not_record_what_an_epoch_goes_by(tmp_path) -> None:
    """Also where the newer run has deleted its own record, so that the name is free."""
    store = LocalStore(tmp_path / "state")
    run = Controller.start(store, PLAN, FakeSparkLogs())
    assert run.record_epoch_config(0, {"way": 1}, {}) == {"way": 1}
    run.commit(0, 0)
    assert run.record_epoch_config(1, {"way": 2}, {"way": 1}) == {"way": 2}
    CommitLog(store).fence("f" * 16)
    with pytest.raises(FencedError):
        run.record_epoch_config(2, {"way": 3}, {"way": 2})
    run.close()


def test_an_overtaken_start_removes_nothing_that_the_newer_run_is_writing(tmp_path: Path) -> None:
    """Which begins when the older one has looked for what was left over."""
    root = tmp_path / "state"
    theirs = root / ".tmp" / "theirs"
    Controller.start(LocalStore(root), PLAN, FakeSparkLogs()).close()

    class Overtaken(Disk):
        def files(self, folder: Path) -> Iterator[tuple[Path, int]]:
            found = list(super().files(folder))
            if folder.name == ".tmp":
                CommitLog(LocalStore(root)).fence("f" * 16)
                theirs.write_bytes(b"half an object")
            return iter(found)

    left = root / ".tmp" / "left"
    left.write_bytes(b"of a run that was killed")
    with pytest.raises(FencedError):
        Controller.start(LocalStore(root, Overtaken()), PLAN, FakeSparkLogs())
    assert theirs.exists() and left.exists()
    Controller.start(LocalStore(root), PLAN, FakeSparkLogs()).close()
    assert not theirs.exists() and not left.exists()


class NoLock:
    """Two machines do not see each other's."""

    def release(self) -> None:
        pass


def test_an_overtaken_start_says_so_where_what_it_reads_fits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer run goes on between its look at the log and at Spark's logs: nothing is wrong with these."""
    monkeypatch.setattr(controllers, "QueryLock", lambda *_: NoLock())
    store = LocalStore(tmp_path / "state")
    Controller.start(store, PLAN, FakeSparkLogs()).commit(0, 0)

    class Overtaken(FakeSparkLogs):
        def epochs(self, log: str) -> list[int]:
            if log == "commits" and CommitLog(store).numbers() == [0, 1, 2]:  # behind this start's fence
                newer = Controller.start(store, PLAN, FakeSparkLogs([0], [0]))
                for epoch in (1, 2, 3):
                    newer.commit(epoch, 0)
                self.commits, self.offsets = [0, 1, 2, 3], [0, 1, 2, 3]
            return super().epochs(log)

    with pytest.raises(FencedError):
        Controller.start(store, PLAN, Overtaken([0], [0]))


def test_a_first_start_that_is_overtaken_leaves_the_plan_of_its_successors_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query was started on two machines, with other options: every start would be refused from then on."""
    store, theirs = LocalStore(tmp_path / "state"), {"query": "overtaken", "option": 2}
    monkeypatch.setattr(controllers, "QueryLock", lambda *_: NoLock())
    kept = Controller._kept_counts

    def sleeps(self: Controller) -> dict[int, RowCount]:
        monkeypatch.setattr(Controller, "_kept_counts", kept)
        Controller.start(store, theirs, FakeSparkLogs()).commit(0, 0)
        return kept(self)

    monkeypatch.setattr(Controller, "_kept_counts", sleeps)
    with pytest.raises(FencedError):
        Controller.start(store, PLAN, FakeSparkLogs())
    assert Controller.start(store, theirs, FakeSparkLogs([0], [0])).recovery_point.epoch == 0


def test_a_first_start_whose_plan_is_swept_says_that_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept before it gave the file its name, and the newer run took that for what a killed one has left."""
    monkeypatch.setattr(controllers, "QueryLock", lambda *_: NoLock())
    root = tmp_path / "state"

    class Sleeps(Disk):
        def replace(self, path: Path, target: Path) -> None:
            if target.name == "plan.json":
                Controller.start(LocalStore(root), PLAN, FakeSparkLogs())
            super().replace(path, target)

    with pytest.raises(FencedError):
        Controller.start(LocalStore(root, Sleeps()), PLAN, FakeSparkLogs())
