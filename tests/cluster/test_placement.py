"""Servers on real executors: one on each, found again, replaced where they are lost."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from support.processes import Sandbox, wait_until
from support.session import DAEMON
from tailrace.env.randomness import new_run_id, new_token
from tailrace.errors import CheckpointError, StateServerError, UnansweredError
from tailrace.server.transport.client import connect, disconnect
from tailrace.server.transport.server_config import ServerAddress, ServerConfig
from tailrace.server.transport.tls import MACHINES_TRUST, Tls
from tailrace.spark import private
from tailrace.spark.servers.executors import _job_error, _one_executor, _spread, _start_here, ensure_servers
from tailrace.spark.servers.placement import Placement


def server(number: int) -> ServerAddress:
    return ServerAddress(f"s{number}", f"grpc+unix:///s{number}", "here", number, number, "")


def servers(*numbers: int) -> list[ServerAddress]:
    return [server(number) for number in numbers]


def new_config(store: Path) -> ServerConfig:
    return ServerConfig(
        run=new_run_id(),
        token=new_token(),
        operators=(),
        store_uri=str(store),
        transport="auto",
        memory_bytes=1 << 24,
        function_timeout_s=60.0,
    )


@pytest.fixture
def config(tmp_path: Path) -> Iterator[ServerConfig]:
    made = new_config(tmp_path)
    yield made
    disconnect(made.run)


def test_one_server_on_a_local_master(spark: SparkSession, config: ServerConfig) -> None:
    found = ensure_servers(spark, config)
    assert len(found) == 1
    assert ensure_servers(spark, config) == found
    process = psutil.Process(found[0].pid)
    jvm = psutil.Process(found[0].executor_pid)
    assert jvm.name() == "java"
    assert connect(found[0], config.access).open(range(4)).pid == process.pid

    # It is a member of the daemon's group, but needs neither the workers nor the forkserver that it comes from.
    daemon = psutil.Process(os.getpgid(process.pid))
    assert DAEMON in daemon.cmdline()
    forkserver = psutil.Process(process.ppid())
    assert "tailrace.server.process.fork" in forkserver.cmdline()
    for each in (forkserver, *daemon.children()):
        os.kill(each.pid, signal.SIGKILL)
    wait_until("adoption", lambda: process.ppid() != forkserver.pid, 10)
    assert ensure_servers(spark, config) == found
    assert connect(found[0], config.access).ping(10.0)

    # Of the worker it holds nothing: no pipe, no connection to Spark.
    assert process.net_connections("inet") == []

    # A dead one is replaced, and so is one that hangs and is named.
    process.kill()
    wait_until("its end", lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 10)
    hung = ensure_servers(spark, config)
    assert len(hung) == 1 and hung[0].server != found[0].server
    os.kill(hung[0].pid, signal.SIGSTOP)
    second = ensure_servers(spark, config, suspects=[found[0].server, hung[0].server])
    assert len(second) == 1 and second[0].server not in (found[0].server, hung[0].server)
    client = connect(second[0], config.access)
    client.open(range(4))
    client.shutdown()
    wait_until("its folder's end", lambda: not Path(second[0].log_path).parent.exists(), 10)


def test_what_goes_wrong_on_an_executor_is_reported(spark: SparkSession, config: ServerConfig) -> None:
    files = Tls(MACHINES_TRUST, chain_path="/nowhere/cert.pem", key_path="/nowhere/key.pem")
    broken = replace(config, transport="tcp", tls=files)
    with pytest.raises(StateServerError, match=r"The end of its log:(.|\n)*/nowhere/cert.pem") as caught:
        ensure_servers(spark, broken)
    assert "\tat org.apache" not in str(caught.value)


def test_a_location_that_an_executor_does_not_see_is_refused(spark: SparkSession, config: ServerConfig) -> None:
    """What a task finds wrong comes out as the same error, without Spark's account of it."""
    with pytest.raises(CheckpointError, match=r"^The executor on localhost does not see .*/log/7 is missing") as caught:
        ensure_servers(spark, replace(config, proof=("log/7", config.run)))
    assert type(caught.value) is CheckpointError
    assert str(caught.value).endswith("with the option stateLocation.")


def test_an_output_that_an_executor_does_not_see_is_refused(
    spark: SparkSession, config: ServerConfig, tmp_path: Path
) -> None:
    """Its files would stay on its machine's own disk, where the driver does not find them."""
    missing = str(tmp_path / "out" / "_tailrace" / "x")
    with pytest.raises(CheckpointError, match=r"^The executor on localhost does not see .*/out/_tailrace/x, which"):
        ensure_servers(spark, replace(config, outputs=(str(tmp_path), missing)))


def test_a_job_that_lost_its_executors_is_a_loss_and_one_that_failed_is_not() -> None:
    lost = "Job aborted due to stage failure: ... ExecutorLostFailure (executor 2 exited caused by ..."
    assert isinstance(_job_error(PySparkException(lost)), UnansweredError)
    assert isinstance(_job_error(PySparkException("[SPARK_JOB_CANCELLED] Job 7 cancelled")), UnansweredError)
    assert type(_job_error(PySparkException("Python in worker has different version"))) is StateServerError


def only_here(*given: object) -> Iterator[pa.RecordBatch]:
    """Lives in a module that executors do not have, as tailrace may."""
    yield from given[-1]  # type: ignore[misc]


def test_only_a_local_master_has_one_executor() -> None:
    assert all(map(_one_executor, ["local", "local[2]", "local[2,4]", "local[*]"]))
    assert not any(map(_one_executor, ["local-cluster[2,1,1024]", "spark://host:7077", "yarn"]))


@pytest.mark.parametrize(
    ("met", "slots", "waves"),
    [
        ([[1, 2]], [2], 1),  # a server for each task: there is no more to find
        ([[1], [1]], [2, 2], 2),  # fewer slots than was thought
        ([[1], [1, 2, 3, 4]], [2, 4], 2),  # executors that came late
        ([[1, 2], [2, 3], [1, 2]], [8, 8, 8], 3),
        ([[1], [2], [3], [4]], [8, 8, 8], 3),  # and so on, but not for ever
    ],
)
def test_waves_end_when_nothing_new_is_met(met: list[list[int]], slots: list[int], waves: int) -> None:
    stays: list[float] = []

    def visit(tasks: int, stay_s: float) -> set[ServerAddress]:
        assert tasks == slots[len(stays)]
        stays.append(stay_s)
        return set(servers(*met[len(stays) - 1]))

    assert _spread(visit, lambda: slots[len(stays)]) == {server(number) for wave in met[:waves] for number in wave}
    assert len(stays) == waves
    assert stays[0] <= 0.2 and sum(stays) <= 3


def test_tasks_of_a_wave_stay_a_bounded_time_together(config: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tailrace.spark.servers.executors.ensure_server", lambda *_, **__: server(1))
    monkeypatch.setattr("tailrace.spark.servers.executors.clock.now", lambda: 1000.0)
    monkeypatch.setattr("tailrace.spark.servers.executors.clock.sleep", slept.append)
    for until in (1005.0, 1000.25, 900.0):
        list(_start_here(config, frozenset(), None, 1.0, until, iter([])))
    assert slept == [1.0, 0.25, 0.0]


def test_a_copy_of_a_task_lets_the_original_win(config: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tailrace.spark.servers.executors.ensure_server", lambda *_, **__: server(1))
    monkeypatch.setattr("tailrace.spark.servers.executors.clock.sleep", slept.append)
    copy = SimpleNamespace(attemptNumber=lambda: 1)
    monkeypatch.setattr("tailrace.spark.servers.executors.TaskContext", SimpleNamespace(get=lambda: copy))
    list(_start_here(config, frozenset(), None, 0.2, 0.0, iter([])))
    assert slept == [10.0]


def test_a_module_that_executors_lack_is_named(
    spark: SparkSession, config: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.spark.servers.executors._start_here", only_here)
    with pytest.raises(StateServerError, match=r"cannot import (support|tests)\b.*PYSPARK_PYTHON"):
        ensure_servers(spark, config)


def test_one_server_on_each_executor_of_a_cluster() -> None:
    with Sandbox() as sandbox:
        child = sandbox.start(
            Path(__file__), {"store": str(sandbox.root / "store"), "master": "local-cluster[2,1,1024]", "cores": "2"}
        )
        assert child.wait(120) == 0, sandbox.log_tail()
        first, again, opened = (json.loads(line) for line in sandbox.log.read_text().splitlines()[-3:])
        assert len({each["server"] for each in first}) == 2
        assert len({each["executor_pid"] for each in first}) == 2
        assert again == first
        assert opened == [each["server"] for each in first]
        assert sandbox.gone_within(20) == []
        assert not list(sandbox.temporary.glob("tailrace-*/*-*-*"))


@pytest.mark.long
def test_fewer_slots_than_spark_says_are_no_obstacle() -> None:
    """Spark's parallelism is 2 at least, on a cluster of one slot too."""
    with Sandbox() as sandbox:
        child = sandbox.start(
            Path(__file__), {"store": str(sandbox.root / "store"), "master": "local-cluster[1,1,1024]", "cores": "1"}
        )
        assert child.wait(90) == 0, sandbox.log_tail()
        first, again, opened = (json.loads(line) for line in sandbox.log.read_text().splitlines()[-3:])
        assert len(first) == 1
        assert again == first
        assert opened == [first[0]["server"]]
        assert sandbox.gone_within(20) == []


def main() -> None:
    """In a child process: servers of a cluster, as three lines of JSON."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from support.session import session_builder

    given = json.loads(sys.argv[1])
    config = new_config(Path(given["store"]))
    # Every executor must be there when servers are placed: a cluster brings them one by one.
    builder = session_builder(given["master"]).config("spark.cores.max", given["cores"])
    spark = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    first, again = ensure_servers(spark, config), ensure_servers(spark, config)
    placement = Placement.even(first, 10)
    executors_before = private.executors(spark)
    opened = [connect(each, config.access).open(placement.shards_of(each)).server for each in placement.servers]
    spark.stop()
    assert executors_before == {each.executor: True for each in first}
    print()
    print(json.dumps([asdict(each) for each in first]))
    print(json.dumps([asdict(each) for each in again]))
    print(json.dumps(opened))


if __name__ == "__main__":
    main()
