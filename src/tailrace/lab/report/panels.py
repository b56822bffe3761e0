"""Run records sorted into panels: what may be laid side by side, and the numbers that are shown of it. Pure.

A panel holds runs of one bench or workload with the same parameters on the same machine. A bench's engines took turns
in one run, so its panel shows the newest record alone and the older ones as history. A workload runs on one engine at
a time, so its panel lays the newest record of each engine side by side, and says that they are of different times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.lab import catalog, registry
from tailrace.lab.records.record import Record
from tailrace.lab.registry import Ratio

catalog.load()

NOISY = 0.25
"""A spread above this says that the machine was busy: see ``measure.spread``."""


@dataclass(frozen=True)
class Span:
    """A number and the middle half of what it is the middle of, where that is known."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class EngineNumbers:
    """One engine in one record. Times in milliseconds."""

    engine: str
    record: Record
    median: Span
    p99: float | None
    spread: float | None
    rows_per_s: float | None
    series: dict[str, list[float | None]]
    """Metric to one value for each epoch that counts."""
    first_epoch: int
    """How many epochs before them do not."""
    exact: bool
    """Whether it answers the query at all."""


@dataclass(frozen=True)
class RatioNumbers:
    name: str
    words: str
    span: Span
    more_is_better: bool


@dataclass(frozen=True)
class Panel:
    kind: str
    name: str
    description: str
    parameters: dict[str, object]
    engines: tuple[EngineNumbers, ...]
    ratios: tuple[RatioNumbers, ...]
    parts_ms: dict[str, dict[str, float]]
    """Engine to where Spark says that its milliseconds go, by part; for a bench that knows."""
    own_parts_ms: dict[str, float]
    """Where Tailrace says that its own go."""
    history: tuple[Record, ...]
    """Every record of the panel, oldest first."""

    @property
    def newest(self) -> Record:
        return self.history[-1]

    @property
    def noisy(self) -> list[str]:
        return [one.engine for one in self.engines if one.spread is not None and one.spread > NOISY]


def panels(records: Sequence[Record]) -> list[Panel]:
    """Benches first; among them, and among workloads, the one that ran last first."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.started_s, record.id)):
        groups.setdefault(_group(record), []).append(record)
    made = [_panel(group) for group in groups.values()]
    return sorted(made, key=lambda panel: (panel.kind != "bench", -panel.newest.started_s))


def _group(record: Record) -> str:
    machine = {name: value for name, value in record.machine.items() if name != "load_1m"}
    return json.dumps([record.kind, record.name, _parameters(record), machine], sort_keys=True)


def _parameters(record: Record) -> dict[str, object]:
    return {name: value for name, value in record.parameters.items() if record.kind == "bench" or name != "engine"}


def _panel(group: list[Record]) -> Panel:
    newest = group[-1]
    if newest.kind == "bench":
        shown = dict.fromkeys(newest.engines, newest)
    else:
        shown = {engine: record for record in group for engine in record.engines}
    return Panel(
        kind=newest.kind,
        name=newest.name,
        description=_description(newest),
        parameters=_parameters(newest),
        engines=tuple(_numbers(engine, shown[engine]) for engine in sorted(shown, key=_place)),
        ratios=tuple(_ratios(newest)),
        parts_ms=_parts(newest),
        own_parts_ms=_only_parts(newest.summary.get("tailrace_durations_ms")),
        history=tuple(group),
    )


def _description(record: Record) -> str:
    if record.kind == "bench":
        found = registry.bench(record.name)
        return found.description if found else ""
    known = {workload.name: workload.description for workload in registry.workloads()}
    text = known.get(record.name, "")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _place(engine: str) -> tuple[int, str]:
    """Tailrace first, then the engines in the order in which they are registered, then those of other times."""
    known = [one.name for one in registry.engines()]
    return (known.index(engine) if engine in known else len(known), engine)


def _numbers(engine: str, record: Record) -> EngineNumbers:
    skip = _whole(record.summary.get("warmup")) if record.kind == "run" else 0
    series = {metric: values[skip:] for metric, values in record.series[engine].items()}
    ms = [value for value in series.get("ms", []) if value is not None]
    median = _of(record, "median_ms", engine)
    if median is None:
        median = _of(record, "p50_ms", engine)
    if median is None:
        median = float(np.median(ms)) if ms else 0.0
    rate = _of(record, "rows_per_s", engine)
    if rate is None and median and _whole(record.parameters.get("rows")):
        rate = _whole(record.parameters["rows"]) / median * 1e3
    return EngineNumbers(
        engine=engine,
        record=record,
        median=_span(median, ms),
        p99=_of(record, "p99_ms", engine),
        spread=_of(record, "spread", engine),
        rows_per_s=rate,
        series=series,
        first_epoch=skip,
        exact=all(one.exact for one in registry.engines() if one.name == engine),
    )


def _span(value: float, series: Sequence[float]) -> Span:
    if len(series) < 2:
        return Span(value)
    low, high = np.percentile(series, [25, 75])
    return Span(value, min(value, float(low)), max(value, float(high)))


def _ratios(record: Record) -> list[RatioNumbers]:
    values = record.summary.get("ratios")
    if not isinstance(values, dict):
        return []
    bench = registry.bench(record.name)
    known = {ratio.name: ratio for ratio in bench.ratios} if bench else {}
    found = []
    for name, value in values.items():
        ratio = known.get(name)
        if not _is_number(value):
            continue
        if ratio is None:
            found.append(RatioNumbers(name, name.replace("_", " "), Span(value), True))
        else:
            found.append(RatioNumbers(name, ratio.words, _ratio_span(value, ratio, record), ratio.more_is_better))
    return found


def _ratio_span(value: float, ratio: Ratio, record: Record) -> Span:
    """Engines take turns, so the ratios epoch by epoch are fair, and their middle half says how sure the number is."""
    over = record.series.get(ratio.over, {}).get("ms", [])
    under = record.series.get(ratio.under, {}).get("ms", [])
    if ratio.quantile != 50 or len(over) != len(under):
        return Span(value)
    return _span(value, [a / b for a, b in zip(over, under) if a is not None and b])


_WHOLE = ("triggerExecution", "total")
_INSIDE = ("combine", "transfer")  # parts of Tailrace's ``ingest``


def _parts(record: Record) -> dict[str, dict[str, float]]:
    recorded = record.summary.get("durations_ms")
    if not isinstance(recorded, dict):
        return {}
    return {engine: _only_parts(recorded[engine]) for engine in sorted(recorded, key=_place)}


def _only_parts(recorded: object) -> dict[str, float]:
    if not isinstance(recorded, dict):
        return {}
    left_out = (*_WHOLE, *_INSIDE)
    return {part: ms for part, ms in recorded.items() if part not in left_out and _is_number(ms) and ms > 0}


def _of(record: Record, name: str, engine: str) -> float | None:
    values = record.summary.get(name)
    value = values.get(engine) if isinstance(values, dict) else None
    return float(value) if isinstance(value, int | float) and _is_number(value) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
