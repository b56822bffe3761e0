"""``tailrace gadget analyze``, ``compare`` and ``advise`` as a user has them: tables, a line of JSON, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.errors import TailraceError
from tailrace.lab.gadget.traces.recording import read_recording
from tailrace.lab.gadget.traces.trace import Events, Trace, read_trace, write_trace
from tailrace.lab.records import record
from tailrace.operators.accesses.recorder import SCHEMA
from tailrace.server.epoch.access_log import AccessLog


@pytest.fixture
def traces(tmp_path: Path) -> dict[str, Path]:
    """Forty windows of one key each: read and written three times, or added to; then read and deleted."""
    paths = {}
    for name, operations in {"windows": [0, 1, 0, 1, 0, 1, 0, 3], "lists": [2, 2, 2, 2, 2, 2, 0, 3]}.items():
        kinds = np.tile(np.array(operations, np.uint8), 40)
        keys = np.repeat(np.arange(40), 8)
        sizes = np.where((kinds == 1) | (kinds == 2), 10, 0).astype(np.int32)
        events = Events(np.repeat(np.arange(4), 30), np.arange(120))
        paths[name] = tmp_path / f"{name}.parquet"
        write_trace(paths[name], Trace(kinds, keys, sizes, np.zeros(320, np.int64), events, {"workload": name}))
    return paths


def run(*words: str | Path) -> tuple[str, Any]:
    result = CliRunner().invoke(app, ["gadget", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, json.loads(result.stdout.splitlines()[-1])


def test_analyze(traces: dict[str, Path], tmp_path: Path) -> None:
    message, found = run(
        "analyze", *traces.values(), "--records", tmp_path / "records", "--out", tmp_path / "found.json"
    )
    assert "windows" in message and "shuffled" in message and "Wasserstein" in message
    assert json.loads((tmp_path / "found.json").read_text()) == found
    windows = found["traces"]["windows"]
    assert windows["composition"] == {"get": 0.5, "put": 0.375, "merge": 0.0, "delete": 0.125}
    assert (windows["event_amplification"], windows["key_space_amplification"]) == (320 / 120, 10)
    assert windows["trace"]["mean_stack_distance"] == 0 < windows["shuffled"]["mean_stack_distance"]
    assert windows["trace"]["unique_sequences"][:2] == [40, 79]
    (kept,) = record.read_all([tmp_path / "records"])[0]
    assert kept.name == "gadget-analyze" and set(kept.summary["traces"]) == {"windows", "lists"}
    assert kept.summary["traces"]["windows"]["miss_ratios"]


def test_traces_of_one_name_are_distinguished(traces: dict[str, Path], tmp_path: Path) -> None:
    same = [traces["windows"]] * 3
    _, found = run("analyze", *same, "--records", tmp_path / "records")
    assert list(found["traces"]) == ["windows", "windows (windows.parquet)", "windows (2)"]


def test_compare(traces: dict[str, Path]) -> None:
    message, same = run("compare", traces["windows"], traces["windows"])
    assert "mean stack distance" in message
    assert same["composition_difference"] == same["sequences_difference"] == same["wasserstein"] == 0
    _, found = run("compare", traces["windows"], traces["lists"])
    assert found["composition_difference"] == pytest.approx(75) and found["sequences_difference"] == 0


def test_advise(traces: dict[str, Path]) -> None:
    message, found = run("advise", traces["windows"])
    assert found["pattern"] == "RMW" and '.store("RMW")' in message and "appending moves" in message
    message, found = run("advise", traces["lists"], "--hits", "0.5")
    assert found["pattern"] == "AUR" and "changing values in place moves" in message
    assert found["cache"]["entries"] == 1 and "advised" in message


def recorded(folder: Path) -> None:
    """Two windows of a key, the first of which is closed, as a state server writes them."""
    rows = [(0, 7, 0, 0), (1, 7, 0, 0), (0, 7, 5, 0), (1, 7, 5, 0), (0, 7, 0, 2), (3, 7, 0, 2)]
    values = [[row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]]
    values += [[8 * (row[0] == 1) for row in rows], [0] * 6, [row[3] or at % 2 for at, row in enumerate(rows)]]
    arrays = [pa.array(column, field.type) for column, field in zip(values, SCHEMA)]
    AccessLog(str(folder), "aggregate", "s1", {"key_bytes": "16"}).write(0, pa.record_batch(arrays, schema=SCHEMA))


def test_a_recording_is_as_good_as_a_trace(tmp_path: Path) -> None:
    recorded(tmp_path / "accesses")
    _, made = run("export", tmp_path / "accesses", "--out", tmp_path / "trace.parquet")
    assert (made["accesses"], made["keys"], made["origin"], made["server"]) == (6, 2, "recorded", "s1")
    kept, read = read_trace(tmp_path / "trace.parquet"), read_recording(tmp_path / "accesses")
    for name in ("operations", "keys", "value_sizes", "times"):
        assert (getattr(kept, name) == getattr(read, name)).all()
    assert kept.operations.tolist() == [0, 1, 0, 1, 0, 3] and kept.keys.tolist() == [0, 0, 1, 1, 0, 0]
    assert kept.events is not None and kept.events.keys.tolist() == [0, 0] and kept.metadata == read.metadata
    _, found = run("compare", tmp_path / "trace.parquet", tmp_path / "accesses" / "aggregate-s1.accesses")
    assert found["composition_difference"] == 0
    recorded(tmp_path / "accesses" / "more")
    (tmp_path / "accesses" / "more" / "aggregate-s1.accesses").rename(tmp_path / "accesses" / "aggregate-s2.accesses")
    with pytest.raises(TailraceError, match=r"holds 2 recordings: name one of aggregate-s1\.accesses, aggregate-s2"):
        CliRunner().invoke(app, ["gadget", "advise", str(tmp_path / "accesses")], catch_exceptions=False)


@pytest.mark.parametrize("command", [("analyze",), ("advise",), ("compare", "windows")])
def test_a_trace_that_is_not_there(command: tuple[str, ...], traces: dict[str, Path], tmp_path: Path) -> None:
    words = [command[0], *(str(traces[name]) for name in command[1:]), str(tmp_path / "none.parquet")]
    with pytest.raises(TailraceError, match=r"there is no trace .*none\.parquet"):
        CliRunner().invoke(app, ["gadget", *words], catch_exceptions=False)
