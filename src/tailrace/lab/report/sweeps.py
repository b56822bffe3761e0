"""The sweeps of ``bench stores`` as charts: one line or stack a setting. Pure.

A record may come from anywhere: what is not a number is left out, and names are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from tailrace.lab.report.figures import PARTS, Chart, is_number, labelled

Recorded = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Group to setting to what was measured."""

_HEIGHT_PX = 320
_CPU = {"write_cpu_s": "write", "read_cpu_s": "read and delete", "compaction_cpu_s": "compaction"}


def sweep_charts(sweeps: object) -> list[Chart]:
    if not isinstance(sweeps, Mapping):
        return []
    made = []
    for name, of in (("ratio", _ratio), ("amplification", _amplification), ("window", _window)):
        recorded = _clean(sweeps.get(name))
        if recorded:
            made += of(recorded)
    return made


def _clean(sweep: object) -> Recorded:
    if not isinstance(sweep, Mapping):
        return {}
    groups = {group: each for group, each in sweep.items() if isinstance(each, Mapping)}
    return {
        group: {setting: one for setting, one in each.items() if isinstance(one, Mapping)}
        for group, each in groups.items()
    }


def _ratio(recorded: Recorded) -> list[Chart]:
    over_none = {}
    for group, each in recorded.items():
        base = each.get("0", {}).get("rows_per_s")
        if is_number(base) and base:
            over_none[group] = {x: y / base for x, y in _values(each, "rows_per_s").items()}
    hits = {group: _values(each, "hit_ratio") for group, each in recorded.items()}
    return [
        _lines("Throughput by share read ahead", "Over that of the same store without reading ahead.", over_none, "×"),
        _lines("Hit ratio by share read ahead", "Of the lists with rows on disk that were asked for.", hits, ""),
    ]


def _amplification(recorded: Recorded) -> list[Chart]:
    made = []
    for each in recorded.values():
        rates = {"rows a second": _values(each, "rows_per_s")}
        disk = {"MB": {x: y / 1e6 for x, y in _values(each, "disk_bytes_max").items()}}
        made += [
            _lines("Throughput by space amplification", "Of the unaligned store, on sessions.", rates, "rows/s"),
            _stacks("Most bytes on disk by space amplification", "After an epoch.", disk, "MB"),
            _stacks("Store CPU time by space amplification", "Of all rounds that count.", _cpu(each), "s"),
        ]
    return made


def _window(recorded: Recorded) -> list[Chart]:
    rates: dict[str, dict[str, float]] = {}
    for length, each in recorded.items():
        for pattern, rate in _values(each, "rows_per_s").items():
            rates.setdefault(pattern, {})[f"{length} s"] = rate
    longest = list(recorded)[-1]
    return [
        _lines("Throughput by window length", "The same memory for every length.", rates, "rows/s"),
        _stacks(f"Store CPU time, windows of {longest} s", "Of all rounds that count.", _cpu(recorded[longest]), "s"),
    ]


def _cpu(each: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    return {words: _values(each, name) for name, words in _CPU.items()}


def _values(each: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, float]:
    return {setting: one[name] for setting, one in each.items() if is_number(one.get(name))}


def _lines(title: str, caption: str, series: dict[str, dict[str, float]], unit: str) -> Chart:
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": html.escape(name),
            "x": [html.escape(x) for x in points],
            "y": list(points.values()),
            "line": {"color": PARTS[at % len(PARTS)], "width": 2},
            "hovertemplate": f"%{{y:,.3g}} {unit}",
        }
        for at, (name, points) in enumerate(series.items())
    ]
    return Chart(title, caption, _figure(traces, unit))


def _stacks(title: str, caption: str, series: dict[str, dict[str, float]], unit: str) -> Chart:
    traces = [
        {
            "type": "bar",
            "name": html.escape(name),
            "x": [labelled(x) for x in points],
            "y": list(points.values()),
            "marker": {"color": PARTS[at % len(PARTS)]},
            "hovertemplate": f"{html.escape(name)} %{{y:,.3g}} {unit}<extra></extra>",
        }
        for at, (name, points) in enumerate(series.items())
    ]
    figure = _figure(traces, unit)
    figure["layout"] |= {"barmode": "stack", "bargap": 0.3}
    return Chart(title, caption, figure)


def _figure(traces: list[dict[str, Any]], unit: str) -> dict[str, Any]:
    return {
        "data": traces,
        "layout": {
            "height": _HEIGHT_PX,
            "xaxis": {"type": "category", "automargin": True},
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "automargin": True, "separatethousands": True},
            "hovermode": "x unified",
        },
    }
