"""Looking into a checkpoint: what is there, and what a start would do, which it then does."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.models.commit import sections
from support.models.spark_logs import spark_logs
from tailrace.commit.controller import Controller
from tailrace.commit.inspect import inspect
from tailrace.commit.objects import write_object
from tailrace.commit.spark_logs.log_files import numbers_of, spark_epochs
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import TailraceError
from tailrace.log import filenames

PLAN = {"query": "x"}


def run(store: LocalStore, epochs: int) -> None:
    """Durable up to ``epochs - 1``."""
    controller = Controller.start(store, PLAN, spark_logs())
    for epoch in range(epochs):
        ref = write_object(
            store,
            run=controller.run,
            try_=0,
            server=0,
            first_epoch=epoch,
            last_epoch=epoch,
            shards=[(0, 4)],
            sections={"op": sections({(0, ("k", epoch)): epoch}, range(4))},
            horizons={},
        )
        controller.commit(epoch, 0, [ref], rows={"input": 7})
    controller.clean()
    controller.close()


@pytest.mark.parametrize(
    ("commits", "offsets", "report", "lands"),
    [
        (4, 4, "open the state of epoch 4 and go on with epoch 5", 4),
        (4, 5, "open the state of epoch 4 and run epoch 5, which Spark has planned", 4),
        (3, 4, "open the state of epoch 3 and replay epoch 4, which is durable here and not committed", 3),
        (5, 5, "rewind Spark by moving commits/5 to a backup, open the state of epoch 4 and replay epoch 5", 4),
        (5, 6, "moving offsets/6 and then commits/5 to a backup", 4),
        (7, 7, "would be refused. Spark's checkpoint and the state do not belong together", None),
    ],
)
def test_what_is_said_is_what_a_start_does(
    tmp_path: Path, commits: int, offsets: int, report: str, lands: int | None
) -> None:
    store = LocalStore(tmp_path)
    run(store, 5)
    logs = spark_logs(range(commits + 1), range(offsets + 1))
    before = {each.name: store.get(each.name) for each in store.list("")}
    found = inspect(store, logs.commits, logs.offsets)
    assert report in found.verdict()
    assert {each.name: store.get(each.name) for each in store.list("")} == before, "looking changes nothing"
    if lands is None:
        with pytest.raises(TailraceError):
            Controller.start(store, PLAN, logs)
        return
    controller = Controller.start(store, PLAN, logs)
    assert controller.recovery_point.epoch == lands
    controller.close()


def test_entries_sizes_and_what_is_wrong(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    run(store, 3)
    store.put("objects/left-by-a-crash.delta", [b"half"])
    needed = [ref.name for ref in inspect(store, [2], [2]).manifests[-1].objects]
    store.delete(needed[:1])
    found = inspect(store, range(3), range(3)).to_json()
    assert [entry["kind"] for entry in found["log"]] == ["fence", "durable", "durable"]
    assert found["log"][-1]["epoch"] == 2 and found["log"][-1]["rows"] == {"input": 7}
    assert found["objects"]["orphans"] == ["objects/left-by-a-crash.delta"]
    assert found["objects"]["missing"] == needed[:1]
    (tmp_path / "log" / f"{found['log'][-1]['number']:020d}.json").write_text("gone wrong")
    damaged = inspect(store, range(3), range(3))
    assert damaged.to_json()["log"][-1]["kind"] == "damaged"
    assert "damaged" in damaged.verdict()


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "none")
    assert inspect(store, [], []).verdict() == "A start would open an empty state and go on with epoch 0."
    assert not (tmp_path / "none").exists()


def test_numbers_of_files(tmp_path: Path) -> None:
    assert numbers_of(["commits/0", "s3://b/commits/12", ".1.crc", "commits/.2.crc", "3.tmp"]) == [0, 12]
    assert spark_epochs(LocalStore(tmp_path), "commits") == []


def test_what_each_epoch_has_been_acknowledged(tmp_path: Path) -> None:
    """Durable up to 4, committed up to 5, which is in the store as well; 6 is planned, and saved on this machine."""
    store, copies = LocalStore(tmp_path / "state"), LocalStore(tmp_path / "copies")
    run(store, 5)
    for place, epoch, size in ((store, 5, 10), (copies, 5, 10), (copies, 6, 20)):
        place.put(filenames.delta_name(epoch, "0" * 16, 0, 0), [b"x" * size])
        place.put(filenames.delta_name(epoch, "0" * 16, 0, 1), [b"x"])
    found = inspect(store, range(6), range(7), copies)
    report = [(each.epoch, each.planned, each.committed, each.saved, each.uploaded) for each in found.epochs]
    durable = [each.epoch for each in found.epochs if each.entry is not None]
    assert durable == [3, 4], "as many as are kept"
    assert [each[:4] for each in report[:2]] == [(3, True, True, None), (4, True, True, None)]
    assert report[2:] == [(5, True, True, 11, 11), (6, True, False, 21, None)]
    assert found.to_json()["epochs"][-1] == {
        "epoch": 6, "planned": True, "committed": False, "saved": 21, "uploaded": None, "entry": None
    }  # fmt: skip
    assert "moving offsets/6 and then commits/5 to a backup" in found.verdict()


def test_a_state_whose_objects_are_missing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    run(store, 5)
    newest = max(each.name for each in store.list("objects/"))
    store.delete([newest])
    verdict = inspect(store, range(5), range(5)).verdict()
    assert "would fail" in verdict and newest in verdict
    assert "replay epoch 4" in inspect(store, range(4), range(5)).verdict(), "of what it opens nothing is missing"
