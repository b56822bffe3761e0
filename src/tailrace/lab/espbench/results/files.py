"""Files of runs, named and laid out as the original's: a row a run, its latencies one a line, and means over a series.

``<prefix>_<run>_<time>.csv`` has a run's row, ``logs/<output topic>_responseTimes.csv`` its latencies in the order of
answers, ``logs/<output topic>_latencies.csv`` the moments of their causes too, ``series.csv`` the means over all
runs of a system, query and rate. ``summaries.jsonl`` says which runs there are; it is written last.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.names import QUERIES, Topics
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.sender.result_row import result_row

MEANS = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "seen_p50_ms", "seen_p90_ms", "seen_p99_ms")
SUMMARIES = "summaries.jsonl"
SERIES = "series.csv"
CAPACITIES = "capacities.json"


@dataclass(frozen=True)
class ResultFolder:
    """A folder of results. Runs are known by system, query, rate and number, so that a series can be taken up again."""

    folder: Path

    def add(self, outcome: Outcome, config: Config, now: datetime | None = None) -> None:
        topics = Topics(config.topic_prefix, outcome.run)
        output = topics.output(QUERIES[outcome.query])
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        _write(logs / f"{output}_responseTimes.csv", "".join(f"{each}\n" for each in outcome.latencies_ms))
        rows = ({"caused_ms": caused, "latency_ms": ms} for caused, ms in zip(outcome.caused_ms, outcome.latencies_ms))
        _write(logs / f"{output}_latencies.csv", _csv(list(rows)))
        stamp = f"{now or datetime.now(UTC):%Y%m%d%H%M%S}"
        interval = (config.sending_interval, config.sending_interval_time_unit)
        name = f"{config.topic_prefix}_{outcome.run}_{stamp}"
        _write(self.folder / f"{name}_sender.csv", _csv([result_row(config, outcome.sent)]))
        _write(self.folder / f"{name}.csv", _csv([{"System": outcome.system, **outcome.row(output, *interval)}]))
        if outcome.utilisation:
            _write(logs / f"{output}_utilisation.csv", _csv([asdict(sample) for sample in outcome.utilisation]))
        summaries = [*self.summaries(), outcome.summary()]
        _write(self.folder / SERIES, _csv(series(summaries)))
        lines = (json.dumps(each, separators=(",", ":")) + "\n" for each in summaries)
        _write(self.folder / SUMMARIES, "".join(lines))

    def summaries(self) -> list[dict[str, Any]]:
        """Of all runs, in the order in which they ended. A last line that was cut short is no run."""
        path = self.folder / SUMMARIES
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1] if line]

    def runs(self, system: str, query: str, rate: int, kills: int = 0) -> int:
        """How many valid runs there are with so many kills."""
        wanted = (system, query, rate, kills)
        return sum(
            each["valid"] and (each["system"], each["query"], each["rate"], len(each["kills"])) == wanted
            for each in self.summaries()
        )

    def add_capacity(self, found: Mapping[str, Any]) -> None:
        """Of a query and a system; what was found for them before is replaced."""
        kept = [
            each for each in self.capacities() if (each["query"], each["system"]) != (found["query"], found["system"])
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / CAPACITIES, json.dumps([*kept, found], indent=1) + "\n")

    def capacities(self) -> list[dict[str, Any]]:
        path = self.folder / CAPACITIES
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return found

    def next_run(self, first: int) -> int:
        return max([each["run"] + 1 for each in self.summaries()], default=first)


def series(summaries: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Of each system, query and rate: means over the valid runs without kills, and whether all were right."""
    found: dict[tuple[str, int, str], list[Mapping[str, Any]]] = {}
    for each in summaries:
        if each["valid"] and not each["kills"]:
            found.setdefault((each["query"], each["rate"], each["system"]), []).append(each)
    return [
        {
            "query": query,
            "rate": rate,
            "system": system,
            "runs": len(runs),
            **{name: _mean([run[name] for run in runs]) for name in MEANS},
            "correctness": _mean([run["correctness"] for run in runs]),
            "all_correct": all(run["correct"] for run in runs),
            "exactly_once": all(run["exactly_once"] for run in runs),
        }
        for (query, rate, system), runs in sorted(found.items())
    ]


def _mean(values: Sequence[float | None]) -> float | str:
    known = [value for value in values if value is not None and not np.isnan(value)]
    return round(float(np.mean(known)), 3) if known else ""


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
