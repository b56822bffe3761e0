"""How benches go through their engines, with engines that answer at once: who is asked what, and how often.

No Spark: the engine's process is replaced by an object that counts. That real engines agree is tested elsewhere.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tailrace.lab import catalog
from tailrace.lab.bench import comparison, memory, nexmark, overhead, rmw, start
from tailrace.lab.bench.options import (
    MemoryOptions,
    NexmarkOptions,
    OverheadOptions,
    RmwOptions,
    StartOptions,
)
from tailrace.lab.records.bench_record import end_bench
from tailrace.lab.records.record import Recording

catalog.load()


class Engine:
    """In the place of `EngineProcess`. A batch takes as many milliseconds as its engine has had batches."""

    all: ClassVar[list[Engine]] = []

    def __init__(self, workload: str, engine: str, work: Path, *_: Any, name: str | None = None, **__: Any) -> None:
        self.engine, self.name = engine, name or engine
        self.work = work / self.name
        self.confs = {"spark.master": "local[2]"}
        self.asked: list[str] = []
        self.killed = self.closed = False
        Engine.all.append(self)

    def wait_ready(self) -> None:
        self.asked.append("ready")

    def ask(self, do: str, way: str = "query", **arguments: Any) -> dict[str, Any]:
        self.asked.append(do)
        if do == "first_row":
            return {"first_row_ms": 10.0, "start_call_ms": 5.0, "batch_ms": 3}
        if do == "batch" and not Path(arguments["file"]).exists():
            raise AssertionError("a file that is not there")
        ms = self.asked.count("batch")
        own = {"own_ms": {"apply": 1}, "durations_ms": {"addBatch": ms}, "state_rows": 7, "state_bytes": 8}
        return {"ms": ms, "epoch": ms, **own} if do == "batch" else {}

    def cpu_s(self) -> float:
        return float(len(self.asked))

    def peak_memory_bytes(self, module: str) -> int:
        return 100 << 20

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    Engine.all = []
    for module in (comparison, memory, start):
        monkeypatch.setattr(module, "EngineProcess", Engine)
    return Engine.all


def kept(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result as a record has it: everything in it is plain data."""
    record = end_bench(Recording("bench", name), json.loads(json.dumps(result)))
    assert record.series and record.confs
    return record.summary


def test_rmw_gives_every_engine_the_same_batches(tmp_path: Path, engines: list[Engine]) -> None:
    options = RmwOptions(rows=10, keys=20, batches=4, warmup=3, turn=3, check=False)
    steps: list[tuple[int, int]] = []
    result = rmw.run_rmw(options, tmp_path, lambda what, done, of: steps.append((done, of)))
    assert [one.name for one in engines] == list(options.engines)
    assert {Counter(one.asked)["batch"] for one in engines} == {2 + 3 + 2 * 3}, "two to fill, one turn to warm up, two"
    assert {len(series) for series in result["series_ms"].values()} == {4} == {result["batches"]}
    assert result["series_ms"]["tailrace"] == [7, 8, 10, 11], "the first batch of a turn is not counted"
    assert result["over_shuffle_floor"] == result["speedup_rocksdb"] == 1
    assert all(one.closed and not one.killed for one in engines) and steps[-1][0] == steps[-1][1]
    assert set(kept("rmw", result)["ratios"]) == {
        *("speedup_rocksdb", "speedup_memory", "over_shuffle_floor", "over_transfer_floor")
    }


def test_overhead_leaves_out_its_warm_up(tmp_path: Path) -> None:
    options = OverheadOptions(rows=5, keys=5, batches=3, warmup=2, check=False)
    result = overhead.run_overhead(options, tmp_path, lambda *_: None)
    assert result["series_ms"] == {"spark-rocksdb": [3, 4, 5], "tailrace": [3, 4, 5]}
    assert result["p50_ratio"] == 1 and result["tailrace_durations_ms"] == {"apply": 1}
    assert set(kept("overhead", result)["ratios"]) == {"p50_ratio", "p99_ratio"}


def test_memory_compares_three_runs_of_tailrace(tmp_path: Path, engines: list[Engine]) -> None:
    options = MemoryOptions(rows=10, keys=50, batches=2, warmup=3, check=False)
    result = memory.run_memory(options, tmp_path, lambda *_: None)
    assert [(one.name, one.engine) for one in engines] == [(n, "tailrace") for n in ("hot", "tenth", "large")]
    assert result["memory_bytes"] == memory.budgets(50) and result["within_stated"] is True
    assert kept("memory", result)["server_peak_bytes"]["hot"] == 100 << 20


def test_start_starts_every_query_twice(tmp_path: Path, engines: list[Engine]) -> None:
    result = start.run_start(StartOptions(starts=2, warmup=1), tmp_path, lambda *_: None)
    assert {Counter(one.asked)["first_row"] for one in engines} == {6}
    assert result["series_ms"]["tailrace"] == result["series_restart_ms"]["tailrace"] == [10.0, 10.0]
    assert kept("start", result)["ratios"] == {"start_ratio": 1.0, "restart_ratio": 1.0}


def test_nexmark_counts_processor_time_beside_time(tmp_path: Path, engines: list[Engine]) -> None:
    options = NexmarkOptions(queries=("q5", "q8"), rows=100, turns=2, turn=2, warmup=1, check=False)
    result = nexmark.run_nexmark(options, tmp_path, lambda *_: None)
    assert len(engines) == 4 and result["ratios"] == result["cpu_ratios"] == {"q5": 1.0, "q8": 1.0}
    assert result["series_cpu_ms"]["tailrace"] == [1_000] * 4
    assert kept("nexmark", result)["ratios"] == {"q5": 1.0, "q8": 1.0}


def test_an_interrupted_run_kills_and_closes_its_engines(tmp_path: Path, engines: list[Engine]) -> None:
    def interrupt(what: str, done: int, steps: int) -> None:
        if what == "measuring":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rmw.run_rmw(RmwOptions(rows=10, keys=20, batches=4, warmup=3, check=False), tmp_path, interrupt)
    assert engines and all(one.killed and one.closed for one in engines)
