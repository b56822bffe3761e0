"""Which versions are tested, and that the page about them says what was run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.scripts import load_script

script = load_script("test_versions")


def test_every_pyspark_runs_on_the_oldest_python_and_every_python_with_the_oldest_and_newest_pyspark() -> None:
    pythons, minors = ["3.11", "3.12", "3.13"], ["4.0", "4.1", "4.2"]
    found = script.combinations(pythons, minors, False)
    assert set(found) == {
        *(("3.11", minor) for minor in minors),
        *((python, minor) for python in pythons for minor in ("4.0", "4.2")),
    }
    assert len(script.combinations(pythons, minors, True)) == 9


def test_the_newest_patch_of_each_supported_minor_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Said:
        stdout = "pyspark (5.0.0)\nAvailable versions: 5.0.0, 4.10.0, 4.3.1rc1, 4.3.0, 4.1.4, 4.1.3, 4.0.5, 3.5.9\n"

    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: Said)
    monkeypatch.setattr(script, "pyspark_range", lambda: ((4, 0), (5,)))
    assert script.newest_patches() == {"4.10": "4.10.0", "4.3": "4.3.0", "4.1": "4.1.4", "4.0": "4.0.5"}


def test_the_project_declares_a_range_of_pyspark_and_its_pythons() -> None:
    low, high = script.pyspark_range()
    assert low == (4, 0) < high
    assert script.python_minors()[0] == "3.11"


def test_the_page_tells_works_from_fails_and_from_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(script, "MATRIX", page)
    ran: dict[str, Any] = {"pyspark": "4.0.5", "java": "17", "tests": "3 passed", "day": "2026-01-01"}
    results = {
        "3.11:4.0": {**ran, "python": "3.11.7", "works": True},
        "3.13:4.0": {**ran, "python": "3.13.0", "works": False, "tests": "1 failed, 2 passed"},
    }
    script.write_matrix(results, [("3.11", "4.0"), ("3.12", "4.0")], {"4.0": "4.0.5"})
    rows = [line for line in page.read_text().splitlines() if line.startswith("| 4.0.5")]
    assert rows == [
        "| 4.0.5 | 3.11.7 | 17 | works | 3 passed | 2026-01-01 |",
        "| 4.0.5 | 3.12 | | not run yet | | |",
        "| 4.0.5 | 3.13.0 | 17 | **fails** | 1 failed, 2 passed | 2026-01-01 |",
    ]
