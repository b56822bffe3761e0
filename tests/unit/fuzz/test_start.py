"""A start that finds a file of the state which nobody of ours wrote: it goes on or is refused, and does no harm.

One file at a time is damaged, or is malformed under a checksum that is right. A refusal is a ``CheckpointError``, which
users know what to do about; nothing outside of the checkpoint is written; nothing goes on for ever.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.hostile import as_json, changed_bytes, checked_entry, wrong_entry
from support.models.commit import section
from support.models.spark_checkpoint import SparkCheckpoint
from tailrace.commit.controller import Controller
from tailrace.commit.objects import write_object
from tailrace.commit.row_counts import RowCount
from tailrace.commit.sink_manifest import SinkManifest, SinkManifests
from tailrace.commit.spark_logs.log_files import SparkLogFolder
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.errors import CheckpointError
from tailrace.log import filenames

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EXAMPLES = 3000 if LONG else 60
PLAN = {"q": 1}
FILES = tuple(f"part-{number}.parquet" for number in range(2))


@dataclass
class State:
    """What lies in the state location, and Spark's checkpoint, after a crash in epoch 3. ``durable``: that one is."""

    objects: dict[str, bytes] = field(repr=False)
    checkpoint: Path
    durable: bool


def _made(root: Path, durable: bool) -> State:
    store, spark = CloudStore(f"memory://{short_id()}", {}), SparkCheckpoint(root / "check")
    controller = Controller.start(store, PLAN, SparkLogFolder(spark.root))
    spark.start()
    for epoch in range(4):
        spark.plan(epoch, f"f{epoch}")
        controller.record_epoch_config(epoch, {"combine": True, "epoch": epoch}, {})
        controller.record_spark_logs(epoch)
        controller.record_count(epoch, RowCount(10, 2))
        SinkManifests(store, "output").put(SinkManifest(epoch, "_tailrace/folder", FILES))
        if epoch < 3 or durable:
            ref = write_object(
                store, run=controller.run, try_=0, server=0, first_epoch=epoch, last_epoch=epoch, shards=((0, 8),),
                sections={"op": {0: section({("key", 1): epoch})}}, horizons={},
            )  # fmt: skip
            controller.commit(epoch, 0, deltas=[ref], rows={"input": 10}, epoch_config={"combine": True})
        if epoch < 3:
            spark.commit(epoch)
    controller.close()
    return State({each.name: store.get(each.name) for each in store.list("")}, spark.root, durable)


@pytest.fixture(scope="module", params=[False, True], ids=["replayed", "durable"])
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    yield _made(tmp_path_factory.mktemp("state"), request.param)


def _starts(state: State, changed: dict[str, bytes]) -> bool:
    """Whether a start goes on from it. ``changed``: other bytes of some objects."""
    store = CloudStore(f"memory://{short_id()}", {})
    for name, data in {**state.objects, **changed}.items():
        store.put(name, [data])
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "a" / "check"
        shutil.copytree(state.checkpoint, checkpoint)
        try:
            controller = Controller.start(store, PLAN, SparkLogFolder(checkpoint))
            try:
                controller.trim_spark_logs()
                recorded = controller.recorded_epoch_config(3)
                assert recorded is None or isinstance(recorded, dict)
                assert controller.recorded_count(3) in (None, (10, 2)) or changed
                decided = SinkManifests(store, "output").read(3)
                assert decided is not None
                assert all(_inside(name) for name in (decided.folder, *decided.files))
                controller.clean()
            finally:
                controller.close()
            return True
        except CheckpointError as error:
            assert len(str(error)) < 3000
            return False
        finally:
            assert os.listdir(folder) == ["a"] and os.listdir(Path(folder) / "a") == ["check"]
            found = {path.relative_to(checkpoint).parts[0] for path in checkpoint.rglob("*")}
            assert found <= {"metadata", ".metadata.crc", "offsets", "commits", "sources", "tailrace-backup"}


def _inside(name: str) -> bool:
    return not name.startswith("/") and all(part not in ("", ".", "..") for part in name.split("/"))


def test_as_it_is_a_start_goes_on(state: State) -> None:
    assert _starts(state, {})


@settings(max_examples=EXAMPLES)
@given(rng=st.randoms(use_true_random=False))
def test_a_start_goes_on_or_is_refused(state: State, rng: random.Random) -> None:
    kinds = sorted({name.split("/")[0] for name in state.objects})
    kind = rng.choice(kinds)
    name = rng.choice(sorted(each for each in state.objects if each.split("/")[0] == kind))
    data = state.objects[name]
    entry = data.startswith(b'{"body":') and rng.randrange(4)
    wrong = wrong_entry(rng, json.loads(data)["body"]) if entry else changed_bytes(rng, data)
    _starts(state, {name: wrong})


def _newest(state: State) -> tuple[str, dict[str, object]]:
    entries = [name for name in state.objects if name.startswith(filenames.LOG_PREFIX)]
    name = max(each for each in entries if json.loads(state.objects[each])["body"]["kind"] == "durable")
    return name, json.loads(state.objects[name])["body"]


def test_a_manifest_that_is_its_own_parent_is_damaged(state: State) -> None:
    """Who follows parents would never come to an end. One of epoch 3 is passed over: Spark replays that epoch."""
    name, body = _newest(state)
    number = filenames.entry_number(name)
    assert number is not None
    for parent in (number, number + 1):
        assert _starts(state, {name: checked_entry(as_json({**body, "parent": parent}))}) is state.durable


@pytest.mark.parametrize("path", ["../../harm", "/tmp/harm", "offsets/../../harm", "sources/0/../../../harm", "harm"])
def test_no_file_is_written_that_is_none_of_sparks_logs(state: State, path: str) -> None:
    """By a manifest, or by a record: both say where a start writes files."""
    name, body = _newest(state)
    logs = body["spark_logs"]
    assert isinstance(logs, dict)
    listing = {**logs, path: next(iter(logs.values()))}
    assert _starts(state, {name: checked_entry(as_json({**body, "spark_logs": listing}))}) is state.durable
    name = max(each for each in state.objects if each.startswith(filenames.SPARK_RECORD_PREFIX))
    body = json.loads(state.objects[name])["body"]
    for more in ({"files": {**body["files"], path: "eJwDAAAAAAE="}}, {"listing": {**body["listing"], path: [name, 1]}}):
        _starts(state, {name: checked_entry(as_json({**body, **more}))})


@pytest.mark.parametrize(
    "wrong", [{"files": ["../../x"]}, {"folder": "/etc"}, {"files": "x"}, {"folder": 5}, {"files": [1]}]
)
def test_a_list_of_files_leads_nowhere_else(state: State, wrong: dict[str, object]) -> None:
    name = filenames.sink_manifest_name("output", 3)
    body = json.loads(state.objects[name])["body"]
    assert not _starts(state, {name: checked_entry(as_json({**body, **wrong}))})
