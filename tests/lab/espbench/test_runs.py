"""Whole runs on real servers: each query on each system gives every right result once, also when it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.data.business import Business
from tailrace.lab.espbench.data.files import SensorSource, write_all
from tailrace.lab.espbench.names import QUERIES
from tailrace.lab.espbench.run.one_run import Conduct, RunOptions, one_run
from tailrace.lab.espbench.run.servers import Servers, servers
from tailrace.lab.espbench.systems.process import SystemFailedError, expresses

CONFIG = Config(sending_interval=1_000_000, duration=6, duration_time_unit="s")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_all(Business(1, seed=1, now=int(time.time())), SensorSource(), folder, lambda *_: None)
    return folder


@pytest.fixture(scope="module")
def places() -> Iterator[Servers]:
    with servers(CONFIG, with_database=True) as started:
        yield started


RUNS = iter(range(1, 1_000))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("system", ["tailrace", "spark"])
def test_every_result_is_right(data: Path, places: Servers, tmp_path: Path, system: str, query: str) -> None:
    every_result_is_right(data, places, tmp_path, system, query)


@pytest.mark.long  # Flink's environment takes a minute to make
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("system", ["flink", "spark-real-time"])
def test_every_result_of_others_is_right(data: Path, places: Servers, tmp_path: Path, system: str, query: str) -> None:
    if expresses(system, QUERIES[query]):
        every_result_is_right(data, places, tmp_path, system, query)
    else:
        with pytest.raises(SystemFailedError, match="has no words"):
            every_result_is_right(data, places, tmp_path, system, query)


def every_result_is_right(data: Path, places: Servers, tmp_path: Path, system: str, query: str) -> None:
    config = replace(CONFIG, benchmark_run=next(RUNS))
    options = RunOptions(system, QUERIES[query], config, data, Conduct(patience_s=10, warm_up_s=0))
    found = one_run(options, places, tmp_path, lambda *_: None)
    assert found.pairs.correct and found.pairs.correctness == 100
    assert found.verdict.exactly_once
    assert found.inputs == 6_000 * len(QUERIES[query].inputs)
    assert found.pairs.expected == found.pairs.actual > 3
    assert len(found.latencies_ms) == found.pairs.expected
    topic = f"ESB-{config.benchmark_run}-{QUERIES[query].name}"
    row = found.row(topic, 1_000, "microseconds")
    assert row["Correct"] is True and row["RT-90%ile in ms"] >= row["RT-Min in ms"]  # type: ignore[operator]


@pytest.mark.long
@pytest.mark.parametrize("query", ["q1", "q2", "q3", "q4", "q5", "identity"])
@pytest.mark.parametrize("system", ["tailrace", "flink"])
def test_a_killed_system_loses_nothing(data: Path, places: Servers, tmp_path: Path, system: str, query: str) -> None:
    config = replace(CONFIG, benchmark_run=next(RUNS), duration=40)
    options = RunOptions(system, QUERIES[query], config, data, Conduct(60, 0, kills=2))
    found = one_run(options, places, tmp_path, lambda *_: None)
    assert len(found.kills) == 2 and all(kill.silent_s is not None for kill in found.kills)
    assert found.verdict.exactly_once


@pytest.mark.long
@pytest.mark.parametrize("system", ["tailrace", "flink"])
def test_ctrl_c_leaves_nothing_behind(data: Path, system: str) -> None:
    command = [sys.executable, "-m", "tailrace.cli", "espbench", "run", "q5", "--data", str(data), "--systems", system]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline, started = time.monotonic() + 240, psutil.Process(child.pid)
    seen: dict[int, psutil.Process] = {}
    while time.monotonic() < deadline and not any("sender.process" in " ".join(each) for each in _commands(seen)):
        seen |= {each.pid: each for each in started.children(recursive=True)}
        time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 130, output
    assert [each for each in seen.values() if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


def _commands(processes: dict[int, psutil.Process]) -> list[list[str]]:
    found = []
    for each in processes.values():
        try:
            found.append(each.cmdline())
        except psutil.Error:
            pass
    return found
