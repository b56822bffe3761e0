"""A folder of results as one record of the lab's, which `tailrace report` draws."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.espbench.names import QUERIES, Topics
from tailrace.lab.espbench.results.files import ResultFolder
from tailrace.lab.records.record import Record, Recording

POINTS = 1_500
"""Of a chart's series: single latencies are drawn, every so manieth."""


def record_of(results: ResultFolder, prefix: str) -> Record:
    """``prefix``: of the runs' topics."""
    summaries, capacities = results.summaries(), results.capacities()
    if not summaries and not capacities:
        raise TailraceError(
            f"{results.folder} has no runs: make some by `tailrace espbench all --results {results.folder}`"
        )
    summary = {
        "espbench": {
            "runs": summaries,
            "capacities": capacities,
            "courses": [_course(results.folder, prefix, each) for each in _shown(summaries)],
        }
    }
    parameters = {"results": results.folder.name, "runs": len(summaries)}
    return Recording("bench", "espbench").end(parameters, summary, {})


def _shown(summaries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest valid run of each system, query and rate, with kills and without."""
    newest = {
        (each["query"], each["rate"], each["system"], bool(each["kills"])): each for each in summaries if each["valid"]
    }
    return list(newest.values())


def _course(folder: Path, prefix: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Single latencies, and cores in use, over the time since the first cause."""
    output = Topics(prefix, run["run"]).output(QUERIES[run["query"]])
    latencies = _rows(folder / "logs" / f"{output}_latencies.csv")
    step = max(len(latencies) // POINTS, 1)
    start_ms = min((int(row["caused_ms"]) for row in latencies), default=0)
    used = [row for row in _rows(folder / "logs" / f"{output}_utilisation.csv") if row["process"] == "system"]
    return {
        **{name: run[name] for name in ("system", "query", "rate", "run")},
        "kills_s": [round(kill["at_s"] - start_ms / 1e3, 1) for kill in run["kills"]],
        "step": step,
        "at_s": [round((int(row["caused_ms"]) - start_ms) / 1e3, 3) for row in latencies[::step]],
        "latency_ms": [int(row["latency_ms"]) for row in latencies[::step]],
        "used_at_s": [round(float(row["at_s"]) - start_ms / 1e3, 1) for row in used],
        "cores": [float(row["cpu"]) for row in used],
        "memory_mb": [round(int(row["memory_bytes"]) / 1e6) for row in used],
    }


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
