"""A bench's result as a record: which of its numbers is a ratio, a parameter, a series."""

from __future__ import annotations

from typing import Any

from tailrace.lab import catalog, registry
from tailrace.lab.records.record import Record, Recording

catalog.load()

_SERIES = "series_"
_OF_THE_RECORD = ("bench", "machine", "versions", "confs")


def end_bench(recording: Recording, result: dict[str, Any]) -> Record:
    """Known ratios go to the summary's ``ratios``, and ``series_ms`` becomes every engine's series ``ms``. Other plain
    values are parameters; other values by engine belong to the summary."""
    known = registry.bench(recording.name)
    ratios = [ratio.name for ratio in known.ratios] if known else []
    parameters: dict[str, Any] = {}
    summary: dict[str, Any] = {"ratios": {name: result[name] for name in ratios if name in result}}
    series: dict[str, dict[str, list[float | None]]] = {}
    for name, value in result.items():
        if name in _OF_THE_RECORD or name in ratios:
            continue
        if name.startswith(_SERIES):
            for engine, values in value.items():
                series.setdefault(engine, {})[name.removeprefix(_SERIES)] = values
        elif isinstance(value, dict) or name == "answers_equal":
            summary[name] = value
        else:
            parameters[name] = value
    return recording.end(parameters, summary, series, result.get("confs"))
