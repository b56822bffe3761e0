"""``scripts/readme_chart.py``: every number in the chart is a record's, and the newest record of a bench counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tailrace.lab.records.record import Recording, write

SCRIPT = Path(__file__).parents[3] / "scripts" / "readme_chart.py"


def keep(folder: Path, name: str, ratios: dict[str, Any], at: float, **parameters: Any) -> None:
    write(Recording("bench", name, clock=lambda: at).end(parameters, {"ratios": ratios}, {}), folder)


def chart(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_bars_are_the_newest_ratios(tmp_path: Path) -> None:
    keep(tmp_path, "rmw", {"speedup_rocksdb": 3.5}, 1_000, rows=10, keys=20)
    keep(tmp_path, "rmw", {"speedup_rocksdb": 14.25}, 2_000, rows=10, keys=1_000)
    keep(tmp_path, "nexmark", {"q5": 5.125, "q8": 0.5}, 3_000, rows=10)
    keep(tmp_path, "start", {"start_ratio": 4.0, "restart_ratio": 0.5}, 3_000, rows=10)
    done = chart(tmp_path, "--out", tmp_path / "results.svg")
    assert done.returncode == 0, done.stderr
    root = ElementTree.parse(tmp_path / "results.svg").getroot()
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    values = [float(text.removesuffix(" ×")) for text in texts if text.endswith(" ×")]
    assert values == [14.2, 5.12, 0.5, 0.25, 2.0]
    assert "aggregates of 1,000 keys" in texts and any("1970-01-01" in text for text in texts)


def test_without_a_comparison_there_is_no_chart(tmp_path: Path) -> None:
    keep(tmp_path, "rmw", {"over_shuffle_floor": 1.0}, 1_000, rows=10, keys=20)
    done = chart(tmp_path, "--out", tmp_path / "results.svg")
    assert done.returncode == 1 and "RocksDB" in done.stderr
    assert not (tmp_path / "results.svg").exists()
