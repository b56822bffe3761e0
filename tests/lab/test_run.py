"""``tailrace run`` from end to end: a checked answer, one JSON line, one record; nothing left behind after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.lab.engines.process import EngineError
from tailrace.lab.records import record
from tailrace.lab.run import Epoch, _summary, rows_made, with_rows_made
from tailrace.lab.run_check import WrongAnswerError, check_rows
from tailrace.lab.workloads.events import write_batch

SMALL = ("--events", "2500", "--rows", "400", "--seed", "7")


def environment(tmp: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp), "COLUMNS": "100", "TAILRACE_RECORDS": str(tmp / "records")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailrace.cli", *arguments]


def run(tmp: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=280, check=False, env=environment(tmp), cwd=tmp
    )


def left_behind(tmp: Path) -> list[str]:
    """Processes that work in ``tmp`` and whatever is in it but records and results."""
    found = [str(path) for path in tmp.rglob("*") if path.is_file() and path.suffix != ".json"]
    for process in psutil.process_iter():
        try:
            if any(str(tmp) in word for word in process.cmdline()) or process.cwd().startswith(str(tmp)):
                found.append(f"{process.pid}: {' '.join(process.cmdline())[:200]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def wait_until_nothing_is_left(tmp: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while left_behind(tmp) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_behind(tmp) == []


def check_run(tmp: Path, workload: str, engine: str, *more: str) -> dict[str, Any]:
    out = tmp / "result.json"
    done = run(tmp, "run", workload, "--engine", engine, *SMALL, *more, "--out", str(out))
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(out.read_text()) == result
    assert (result["run"], result["engine"], result["events"], result["epochs"]) == (workload, engine, 2500, 7)
    assert result["series"]["rows"] == [400] * 6 + [100]  # the files in the order in which they were made
    assert len(result["series"]["ms"]) == 7 and all(ms > 0 for ms in result["series"]["ms"])
    (path,) = (tmp / "records").iterdir()
    kept = record.read(path)
    assert (kept.kind, kept.name, kept.engines) == ("run", workload, (engine,))
    assert kept.series[engine] == result["series"]
    assert kept.summary["median_ms"] == {engine: result["median_ms"]}
    assert kept.parameters["events"] == 2500 and kept.parameters["seed"] == 7
    assert kept.ended_s > kept.started_s
    assert str(path) in done.stderr.replace("\n", "")
    wait_until_nothing_is_left(tmp)
    return result


def test_a_run_is_checked_and_leaves_a_record(short_path: Path) -> None:
    result = check_run(short_path, "bids-window", "tailrace", "--set", "auctions=50")
    assert result["answers_equal"] is True and result["rows_checked"] > 0
    assert result["auctions"] == 50
    assert result["series"]["state_rows"][-1] > 0


@pytest.mark.long
@pytest.mark.drawn(2)
@pytest.mark.parametrize("engine", ["tailrace", "spark-rocksdb", "spark-memory"])
@pytest.mark.parametrize("workload", ["bids-window", "keyed-sums"])
def test_every_workload_is_right_on_every_engine(short_path: Path, workload: str, engine: str) -> None:
    result = check_run(short_path, workload, engine)
    assert result["answers_equal"] is True and result["rows_checked"] > 0
    # Spark's RocksDB store is spared counting its rows.
    assert (result["state_rows_max"] is None) == (engine == "spark-rocksdb")


@pytest.mark.long
def test_an_unchecked_run_says_so(short_path: Path) -> None:
    result = check_run(short_path, "keyed-sums", "tailrace", "--no-check")
    assert result["answers_equal"] is None and result["sink"] == "noop"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bid-window",), "did you mean bids-window"),
        (("bids-window", "--engine", "spark-rockdb"), "did you mean spark-rocksdb"),
        (("bids-window", "--engine", "transfer-floor"), "cannot run on transfer-floor"),
        (("bids-window", "--events", "lots"), "'lots' is no size"),
        (("bids-window", "--rows", "0"), "at least 1"),
        (("bids-window", "--set", "auction=3"), "did you mean auctions"),
    ],
)
def test_wrong_options_exit_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["run", "workloads", "report"])
def test_help_has_examples(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0 and "Examples" in done.stdout


@pytest.mark.long
def test_an_interrupted_run_leaves_nothing(short_path: Path) -> None:
    arguments = command("run", "keyed-sums", "--events", "10k", "--rows", "100", "--out", str(short_path / "out.json"))
    with subprocess.Popen(
        arguments, env=environment(short_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 90
        # Well under way: the engine has emitted its first rows.
        while not list(short_path.glob("tailrace-lab-*/rows/epoch=0/*.parquet")) and time.monotonic() < deadline:
            if process.poll() is not None:
                pytest.fail(f"the run ended by itself with {process.returncode}: {process.communicate()[1][-3000:]}")
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in message
    wait_until_nothing_is_left(short_path)
    assert not (short_path / "records").exists() and not (short_path / "out.json").exists()


rows = st.lists(st.tuples(st.integers(0, 3) | st.none(), st.sampled_from(["a", "b"])), max_size=8)


def table(found: list[tuple[int | None, str]]) -> pa.Table:
    columns = {"n": pa.array([n for n, _ in found], pa.int64()), "s": pa.array([s for _, s in found], pa.string())}
    return pa.table(columns)


@given(rows, rows, st.randoms(use_true_random=False))
def test_answers_are_compared_as_multisets(a: list[Any], b: list[Any], randomly: Any) -> None:
    shuffled = list(a)
    randomly.shuffle(shuffled)
    check_rows("same", table(shuffled).select(["s", "n"]), table(a))
    key = repr
    if sorted(a, key=key) == sorted(b, key=key):
        check_rows("same", table(b), table(a))
    else:
        with pytest.raises(WrongAnswerError, match=f"{len(b)} rows, expected {len(a)}"):
            check_rows("other", table(b), table(a))


def test_a_wrong_answer_shows_the_first_difference() -> None:
    expected = pa.table({"key": [1, 2, 3], "n": [10, None, 30]})
    with pytest.raises(
        WrongAnswerError, match=r"first at row 1: \{'key': 2, 'n': 0\}, expected \{'key': 2, 'n': None\}"
    ):
        check_rows("w", pa.table({"key": [3, 2, 1], "n": [30, 0, 10]}), expected)
    with pytest.raises(WrongAnswerError, match=r"2 rows, expected 3; .* row 2: no row, expected \{'key': 3, 'n': 30\}"):
        check_rows("w", expected.slice(0, 2), expected)
    with pytest.raises(WrongAnswerError, match="has the columns key; expected key, n"):
        check_rows("w", expected.select(["key"]), expected)
    check_rows("w", expected.cast(pa.schema([("key", pa.int32()), ("n", pa.int16())])), expected)
    with pytest.raises(WrongAnswerError, match="does not fit"):
        check_rows("w", pa.table({"key": [1.5], "n": [1]}), expected)


def test_medians_leave_out_the_start() -> None:
    epochs = [Epoch(number, 100, ms, number) for number, ms in enumerate([5000, 900, 10, 20, 30])]
    found = _summary(epochs, wall_s=6.0)
    assert (found["median_ms"], found["rows_per_s"], found["warmup"], found["epochs"]) == (20, 5_000, 2, 5)
    assert found["state_rows_max"] == 4
    short = _summary([Epoch(0, 100, 50, None)], wall_s=1.0)
    assert (short["median_ms"], short["warmup"], short["state_rows_max"]) == (50, 0, None)


def test_rows_are_counted_where_they_were_made(tmp_path: Path) -> None:
    sizes = {"a": [3, 5], "b": [0, 2]}
    files = {
        feed: [write_batch(pa.table({"x": range(rows)}), tmp_path / feed, str(rows), 1) for rows in many]
        for feed, many in sizes.items()
    }
    assert rows_made(files) == [3, 7]
    epochs = [Epoch(0, 6, 10, None), Epoch(1, 1, 10, None)]  # a feed read twice; a filter that spared most of it
    assert [epoch.rows for epoch in with_rows_made(epochs, [3, 7])] == [3, 7]
    with pytest.raises(EngineError, match=r"3 files of events .* there were 2 with rows"):
        with_rows_made(epochs, [3, 7, 1])
