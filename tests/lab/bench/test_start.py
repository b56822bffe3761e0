"""``tailrace bench start``: its numbers, and, tiny, the bench itself. Nothing is claimed about times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.lab.bench.options import StartOptions
from tailrace.lab.bench.start import _result, run_start


def starts(first_row_ms: list[float]) -> list[dict[str, float]]:
    return [{"first_row_ms": ms, "start_call_ms": ms / 2, "batch_ms": 7} for ms in first_row_ms]


def test_ratios_are_those_of_the_medians() -> None:
    found = {
        "start": {"spark-rocksdb": starts([300, 100, 200]), "tailrace": starts([500, 400, 900])},
        "restart": {"spark-rocksdb": starts([50]), "tailrace": starts([25])},
    }
    result = _result(StartOptions(), found)
    assert (result["start_ratio"], result["restart_ratio"]) == (2.5, 0.5)
    assert result["median_ms"] == {"spark-rocksdb": 200, "tailrace": 500}
    assert result["restart_call_ms"]["tailrace"] == 12.5 and result["first_batch_ms"]["tailrace"] == 7
    assert result["series_ms"]["tailrace"] == [500, 400, 900]
    alone = {kind: {"tailrace": engines["tailrace"]} for kind, engines in found.items()}
    assert "start_ratio" not in _result(StartOptions(engines=("tailrace",)), alone)


@pytest.mark.long
def test_queries_start_and_start_again(tmp_path: Path) -> None:
    result = run_start(StartOptions(starts=2, warmup=1, engines=("tailrace",)), tmp_path, lambda *_: None)
    for series in ("series_ms", "series_restart_ms"):
        assert len(result[series]["tailrace"]) == 2 and min(result[series]["tailrace"]) > 0
