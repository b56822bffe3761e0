"""One behaviour suite for every object store: local files, a simulated disk, memory, a real S3 server, real HDFS.

The S3 server is the lab's; where it cannot start, tests fail. A bad way to it: ``test_store_faults``.
"""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from support.models.saved_query import Query
from support.models.spark_logs import spark_logs
from support.stores.faulty import FaultyStore, SimulatedCrash, SimulatedDisk
from tailrace.cli import app
from tailrace.commit.controller import Controller
from tailrace.commit.objects import read_sections, write_object
from tailrace.commit.savepoints.moving import copy_savepoint, restore_savepoint
from tailrace.commit.savepoints.savepoint import make_savepoint, savepoints
from tailrace.commit.spark_logs.log_files import BACKUP, SparkLogObjects
from tailrace.env.randomness import short_id
from tailrace.env.stores import cloud_store
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.env.stores.local_copy import copies_of
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.location import open_store, probe_put_if_absent
from tailrace.env.stores.object_store import ObjectStore, StoredObject
from tailrace.errors import CheckpointError, CorruptionError, FencedError
from tailrace.lab.servers.s3 import S3Server
from tailrace.log.filenames import delta_name


@pytest.fixture(scope="session")
def s3_options(s3: S3Server) -> dict[str, str]:
    return s3.options()


@pytest.fixture(params=["local", "simulated", "memory", "s3", pytest.param("hdfs", marks=pytest.mark.long)])
def store(request, tmp_path) -> ObjectStore:
    if request.param == "local":
        return open_store(str(tmp_path / "state"))
    if request.param == "simulated":
        return LocalStore(tmp_path, SimulatedDisk(seed=0))
    if request.param == "memory":
        return open_store(f"memory://{short_id()}")
    if request.param == "hdfs":
        return open_store(request.getfixturevalue("hdfs").uri(short_id()))
    return open_store(f"s3://state/{short_id()}", request.getfixturevalue("s3_options"))


def test_put_get_and_replace(store) -> None:
    assert store.put("a/b.bin", [b"one", memoryview(b"two"), pa.py_buffer(b"three"), b""]) == 11
    assert store.get("a/b.bin") == b"onetwothree"
    store.put("a/b.bin", [b"other"])
    assert store.get("a/b.bin") == b"other"
    store.put("empty", [])
    assert store.get("empty") == b""


def test_put_takes_a_generator_and_leaves_nothing_when_it_fails(store) -> None:
    assert store.put("x", (bytes([each]) * 1000 for each in range(50))) == 50_000
    assert store.get("x") == b"".join(bytes([each]) * 1000 for each in range(50))

    def broken():
        yield b"some"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        store.put("y", broken())
    assert [each.name for each in store.list("")] == ["x"]


def test_a_large_object(store) -> None:
    part = bytes(range(256)) * 4096  # 1 MiB
    count = 40
    assert store.put("large", (part for _ in range(count))) == count * len(part)
    assert store.list("") == [StoredObject("large", count * len(part))]
    assert store.get_range("large", 17 * len(part) + 5, 10) == part[5:15]
    assert store.get("large") == part * count


def test_ranges(store) -> None:
    store.put("r", [b"0123456789"])
    assert store.get_range("r", 0, 10) == b"0123456789"
    assert store.get_range("r", 3, 4) == b"3456"
    assert store.get_range("r", 8, 10) == b"89"
    assert store.get_range("r", 10, 5) == b""
    assert store.get_range("r", 20, 5) == b""
    assert store.get_range("r", 2, 0) == b""


def test_missing_objects(store) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("not/there")
    with pytest.raises(FileNotFoundError):
        store.get_range("not/there", 0, 4)
    store.delete(["not/there"])
    assert store.list("not/") == []


def test_list_is_sorted_and_by_folder(store) -> None:
    for name in ("log/2", "log/1", "logs/3", "objects/x/y", "plan.json"):
        store.put(name, [name.encode()])
    assert store.list("log/") == [StoredObject("log/1", 5), StoredObject("log/2", 5)]
    assert [each.name for each in store.list("")] == ["log/1", "log/2", "logs/3", "objects/x/y", "plan.json"]
    store.delete(["log/1", "objects/x/y", "nothing"])
    store.sweep(lambda: None)
    assert [each.name for each in store.list("")] == ["log/2", "logs/3", "plan.json"]


def test_put_if_absent_has_one_winner(store) -> None:
    assert store.put_if_absent("n", b"first")
    assert not store.put_if_absent("n", b"second")
    assert store.get("n") == b"first"
    store.delete(["n"])
    assert store.put_if_absent("n", b"third")


def test_put_if_absent_has_one_winner_among_threads(store) -> None:
    for round_ in range(5):
        barrier, wins = threading.Barrier(6), []

        def race(who: int, name: str, barrier=barrier, wins=wins) -> None:
            barrier.wait()
            if store.put_if_absent(name, str(who).encode()):
                wins.append(who)

        threads = [threading.Thread(target=race, args=(who, f"race/{round_}")) for who in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1
        assert store.get(f"race/{round_}") == str(wins[0]).encode()


def test_names_that_stores_keep_differently_are_refused(store) -> None:
    for name in ("", "/x", "x/", "a//b", "../x", "a/../b", ".tmp/x", "a b", "ä"):
        with pytest.raises(ValueError, match="name"):
            store.put(name, [b""])
        with pytest.raises(ValueError, match="name"):
            store.put_if_absent(name, b"")
    with pytest.raises(ValueError, match="prefix"):
        store.list("log")


def test_the_probe_accepts_it_again_and_again(store) -> None:
    for _ in range(2):
        probe_put_if_absent(store)
    assert store.list("") == [StoredObject("probe", 5)]


def test_the_probe_refuses_a_store_without_put_if_absent() -> None:
    class Careless(CloudStore):
        def put_if_absent(self, name, data):
            self.put(name, [data])
            return True

    class Forgetful(CloudStore):
        def put_if_absent(self, name, data):
            super().put(name, [data])
            return False

    for kind in (Careless, Forgetful):
        careless = kind(f"memory://{short_id()}", {})
        with pytest.raises(
            CheckpointError, match=f"{careless.uri} cannot put an object only if it is absent.*stateLocation"
        ):
            probe_put_if_absent(careless)


def test_a_query_lives_on_it(store) -> None:
    """Start, commit, restart one back, fence: the protocol on this store."""
    batch = pa.record_batch({"__hash": pa.array([1, 2], pa.int64()), "__pane": pa.array([0, 0], pa.int64())})

    def commit(controller: Controller, epoch: int) -> None:
        ref = write_object(
            store,
            run=controller.run,
            try_=0,
            server=0,
            first_epoch=epoch,
            last_epoch=epoch,
            shards=[(0, 64)],
            sections={"op": {3: batch}},
            horizons={"op": 0},
        )
        controller.commit(epoch, 0, [ref])
        controller.clean()

    first = Controller.start(store, {"plan": 1}, spark_logs())
    for epoch in range(3):
        commit(first, epoch)
    first.close()
    second = Controller.start(store, {"plan": 1}, spark_logs([0, 1], [0, 1, 2]))
    assert second.recovery_point.epoch == 1 and second.recovery_point.replay is not None
    ((_, batches, _),) = read_sections(store, second.recovery_point.manifest.objects, "op", [3])
    assert batches == [batch, batch]
    commit(second, 2)
    with pytest.raises(FencedError):
        first.commit(3, 0)
    second.close()
    newest = second.manifest(2).objects[-1]
    store.put(newest.name, [store.get(newest.name)[:-1]])
    with pytest.raises(CorruptionError, match=newest.name):
        list(read_sections(store, [newest], "op", [3]))


def test_addresses(tmp_path) -> None:
    assert open_store(str(tmp_path)).uri == str(tmp_path)
    assert open_store(f"file://{tmp_path}/a%20b").uri == f"{tmp_path}/a b"
    assert open_store(f"file:{tmp_path}/c").uri == f"{tmp_path}/c"
    assert open_store("s3a://bucket/x", {"region": "us-east-1"}).uri == "s3://bucket/x"
    for bad, message in (
        ("ftp://x/y", "ftp"),
        ("hdfs:///y", "no host"),
        ("file://other/x", "another machine"),
        ("", "empty"),
    ):
        with pytest.raises(CheckpointError, match=message):
            open_store(bad)


def test_a_store_that_refuses_says_where_and_what_to_check(s3_options) -> None:
    wrong = open_store("s3://state/x", {**s3_options, "secret_access_key": "wrong"})
    with pytest.raises(CheckpointError, match=r"s3://state/x/a: .*credentials"):
        wrong.put("a", [b""])


def test_a_savepoint_is_copied_to_a_store_and_back(store, tmp_path) -> None:
    query = Query(tmp_path / "query")
    query.run(4)
    copy_savepoint(query.store, make_savepoint(query.store, query.place, "a"), store)
    back = Query(tmp_path / "back")
    (saved,) = savepoints(store)
    restore_savepoint(store, saved, back.store)
    assert {ref.name: back.store.get(ref.name) for ref in saved.manifest.objects} == {
        ref.name: query.store.get(ref.name) for ref in saved.manifest.objects
    }


def test_a_checkpoint_in_s3_can_be_looked_into(s3_options, monkeypatch, tmp_path) -> None:
    """Epoch 0 is durable. 1 is committed by Spark and saved on this machine, 2 is planned."""
    for name, value in s3_options.items():
        monkeypatch.setenv("AWS_ENDPOINT_URL" if name == "endpoint" else f"AWS_{name.upper()}", value)
    location = f"s3a://state/{short_id()}"
    state = open_store(f"{location}/tailrace", s3_options)
    controller = Controller.start(state, {"q": 1}, spark_logs())
    controller.commit(0, 0)
    controller.close()
    checkpoint = open_store(location, s3_options)
    for name in ("commits/0", "commits/1", "offsets/0", "offsets/1", "offsets/2"):
        checkpoint.put(name, [b"v1"])
    copies_of(state, str(tmp_path)).put(delta_name(1, controller.run, 0, 0), [b"x" * 5000])
    command = ["checkpoint", "inspect", location, "--local", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "moving offsets/2 and then commits/1 to a backup" in " ".join(result.output.split())
    assert "0.005" in result.output
    shown = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert [(each["epoch"], each["committed"], each["saved"], each["entry"]) for each in shown["epochs"]] == [
        (0, True, None, 1),
        (1, True, 5000, None),
        (2, False, None, None),
    ]


def test_faulty_store_does_the_same_from_the_same_seed() -> None:
    def trace(seed: int) -> list[str]:
        store = FaultyStore(CloudStore(f"memory://{short_id()}", {}), seed, error_rate=0.5)
        seen = []
        for each in range(50):
            try:
                seen.append(str(store.put_if_absent(f"n{each % 7}", b"x")))
            except CheckpointError as error:
                seen.append(str(error).split(":", 2)[2])
        return seen

    assert trace(3) == trace(3) != trace(4)
    assert cloud_store.SINGLE_PUT_BYTES_MAX < 40 << 20  # so that the large object above goes out in parts


def test_a_rewind_of_sparks_logs_crashes_anywhere_and_is_repeated(store) -> None:
    def bodies(prefix: str) -> dict[str, bytes]:
        return {each.name: store.get(each.name) for each in store.list(prefix)}

    for crash_at in range(8):
        logs = {f"{log}/{epoch}": b"v1\n%d" % epoch for log in ("commits", "offsets") for epoch in range(9, 13)}
        del logs["commits/12"]
        store.delete([each.name for each in store.list("")])
        for name, body in logs.items():
            store.put(name, [body])
        faulty = FaultyStore(store, seed=crash_at, crash_at=crash_at)
        # Spark has committed 11 and planned 12, and 10 is durable.
        steps = ["offsets/12", "commits/11"]
        try:
            for step in steps:
                SparkLogObjects(faulty).move_to_backup(step)
        except SimulatedCrash:
            left = bodies("commits/"), bodies("offsets/")
            assert "commits/11" in left[0] or "offsets/12" not in left[1], "Spark would skip epoch 11"
            for step in steps:
                SparkLogObjects(store).move_to_backup(step)
        else:
            assert crash_at >= 6, "three requests a step"
        assert (SparkLogObjects(store).epochs("commits"), SparkLogObjects(store).epochs("offsets")) == (
            [9, 10],
            [9, 10, 11],
        )
        moved = {f"{BACKUP}/{path}": logs[path] for path in steps}
        assert bodies(f"{BACKUP}/") == moved
