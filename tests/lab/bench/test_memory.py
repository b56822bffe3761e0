"""``tailrace bench memory``, tiny: answers are checked inside, numbers are there, nothing is claimed about times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.lab.bench.memory import run_memory
from tailrace.lab.bench.options import MemoryOptions


@pytest.mark.long
def test_three_runs_take_turns_and_answer_alike(tmp_path: Path) -> None:
    stages: list[str] = []
    options = MemoryOptions(keys=20_000, rows=5_000, batches=2, warmup=1, turn=1)
    result = run_memory(options, tmp_path, lambda what, done, steps: stages.append(what))
    assert result["answers_equal"] is True
    assert result["state_rows"] == {"hot": 20_000, "tenth": 20_000, "large": 200_000}
    assert all(peak > 50 << 20 for peak in result["server_peak_bytes"].values()), (
        "a server takes at least its libraries"
    )
    assert {"slow_down", "ten_times_larger", "stated_bytes"} <= result.keys()
    assert result["within_stated"] is True, "so little state stays far below what is stated"
    assert stages[-1] == "done"
