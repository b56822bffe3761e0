"""The benchmarks from end to end, small: every engine answers alike, the last line is JSON, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tailrace.lab.records import record

SIZES = ("--rows", "2000", "--keys", "5000", "--batches", "2", "--warmup", "1", "--turn", "2")


def environment(tmp: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp), "COLUMNS": "100", "TAILRACE_RECORDS": str(tmp / "records")}


def run(tmp: Path, *arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=environment(tmp),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def left_behind(tmp: Path) -> list[str]:
    """Processes that work in ``tmp``, and the folders of runs and of state servers in it."""
    found = [str(entry) for pattern in ("tailrace-lab-*", f"tailrace-{os.getuid()}/*") for entry in tmp.glob(pattern)]
    for process in psutil.process_iter():
        try:
            if any(str(tmp) in word for word in process.cmdline()) or process.cwd().startswith(str(tmp)):
                found.append(f"{process.pid}: {' '.join(process.cmdline())[:200]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def wait_until_nothing_is_left(tmp: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left_behind(tmp) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_behind(tmp) == []


def test_rmw_gives_one_checked_result(short_path: Path) -> None:
    out = short_path / "result.json"
    result = run(short_path, "bench", "rmw", *SIZES, "--engines", "tailrace,shuffle-floor", "--out", str(out))
    assert json.loads(out.read_text()) == result
    assert result["answers_equal"] is True
    assert "over_shuffle_floor" in result and "speedup_rocksdb" not in result
    (path,) = (short_path / "records").iterdir()
    kept = record.read(path)
    assert (kept.kind, kept.name, kept.parameters["rows"]) == ("bench", "rmw", 2_000)
    assert kept.summary["ratios"] == {"over_shuffle_floor": result["over_shuffle_floor"]}
    assert {engine: metrics["ms"] for engine, metrics in kept.series.items()} == result["series_ms"]
    wait_until_nothing_is_left(short_path, 20)


@pytest.mark.long
def test_rmw_compares_all_engines(short_path: Path) -> None:
    result = run(short_path, "bench", "rmw", *SIZES)
    assert result["answers_equal"] is True
    medians = result["median_ms"]
    assert isinstance(medians, dict)
    for ratio, above, below in (
        ("speedup_rocksdb", "spark-rocksdb", "tailrace"),
        ("speedup_memory", "spark-memory", "tailrace"),
        ("over_shuffle_floor", "tailrace", "shuffle-floor"),
        ("over_transfer_floor", "tailrace", "transfer-floor"),
    ):
        assert result[ratio] == pytest.approx(medians[above] / medians[below], abs=1e-3)
    wait_until_nothing_is_left(short_path, 20)


@pytest.mark.long
def test_overhead_says_where_the_time_goes(short_path: Path) -> None:
    result = run(short_path, "bench", "overhead", "--batches", "4", "--warmup", "2")
    assert {"p50_ratio", "p99_ratio"} <= set(result)
    parts = result["tailrace_durations_ms"]
    assert isinstance(parts, dict) and {"ingest", "apply", "commit", "sink"} <= set(parts)
    wait_until_nothing_is_left(short_path, 20)


def test_the_demo_ends_with_equal_answers(short_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", "demo", "--rows", "2000", "--auctions", "100"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=environment(short_path),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Same answers" in done.stdout
    wait_until_nothing_is_left(short_path, 20)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupted_run_leaves_nothing(short_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tailrace.cli", "bench", "rmw", *SIZES, "--engines", "tailrace"]
    with subprocess.Popen(
        command, env=environment(short_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        # Well under way: the engine has seen its first file.
        while not list(short_path.glob("tailrace-lab-*/tailrace/*/feed/*/*.parquet")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(number)
        _, message = process.communicate(timeout=60)
    assert process.returncode in (1, 130, 143)
    assert "Traceback" not in message
    wait_until_nothing_is_left(short_path, 30)
