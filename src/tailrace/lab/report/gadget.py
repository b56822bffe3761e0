"""Gadget's records as charts, as its paper draws them: traces of state accesses, and how fast stores replay them. Pure.

A record may come from anywhere: what is not a number is left out, and names are escaped. A trace has one colour in all
charts; its shuffled twin has the same, dashed or paler.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.lab.report.figures import PARTS, Chart, is_number, labelled

Traces = Mapping[str, Mapping[str, Any]]
_HEIGHT_PX = 340
_BAR_PX, _AROUND_PX = 34, 110
_OPERATIONS = ("get", "put", "merge", "delete")
_LIVES = ("p50", "p90", "p99.9", "max")
_PALE = 0.45
_LEGEND_PX = 19
_SYMBOLS = ("circle", "diamond")


def gadget_charts(summary: Mapping[str, Any]) -> list[Chart]:
    """Of a record's summary: ``traces``, trace to its metrics; ``batch`` and ``scalar``, workload to store to ops/s."""
    return [*_throughputs(summary), *_trace_charts(summary.get("traces"))]


def _trace_charts(recorded: object) -> list[Chart]:
    if not isinstance(recorded, Mapping):
        return []
    traces = {str(name): each for name, each in recorded.items() if isinstance(each, Mapping)}
    if not traces:
        return []
    made = [
        _composition(traces),
        _amplification(traces),
        _distances_to_input(traces),
        _both(traces, "Mean stack distance", "Keys accessed between two accesses to one key.", _mean_distance),
        _distance_shares(traces),
        _sequences(traces),
        _lives(traces),
        _working_sets(traces),
        _miss_ratios(traces),
    ]
    return [chart for chart in made if chart.figure["data"]]


def _throughputs(summary: Mapping[str, Any]) -> list[Chart]:
    """A row for each workload, a dot for each store: more stores than bars could show."""
    made = []
    for mode, caption in (("batch", "Accesses in micro-batches."), ("scalar", "One call for each access.")):
        recorded = {str(name): each for name, each in _inner(summary, mode).items() if isinstance(each, Mapping)}
        stores = list(dict.fromkeys(str(store) for each in recorded.values() for store in each))
        data = []
        for at, store in enumerate(stores):
            rates = {name: each.get(store) for name, each in recorded.items()}
            known = {name: rate for name, rate in rates.items() if is_number(rate) and rate > 0}
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": html.escape(store),
                    "x": list(known.values()),
                    "y": [labelled(name) for name in known],
                    "marker": {"color": PARTS[at % len(PARTS)], "size": 10, "symbol": _SYMBOLS[at // len(PARTS) % 2]},
                    "hovertemplate": f"{html.escape(store)} %{{x:,.4s}} ops/s<extra></extra>",
                }
            )
        figure = _figure(data, height=_AROUND_PX + _BAR_PX * len(recorded) + _LEGEND_PX * len(stores) // 4)
        figure["layout"] |= {"xaxis": {"type": "log", "title": {"text": "ops/s"}, "automargin": True}, "yaxis": _NAMES}
        made.append(Chart(f"Throughput of stores, {mode} mode", caption, figure, wide=True))
    return [chart for chart in made if chart.figure["data"]]


def _composition(traces: Traces) -> Chart:
    data = []
    for at, operation in enumerate(_OPERATIONS):
        shares = {name: _inner(each, "composition").get(operation) for name, each in traces.items()}
        data.append(_bars(operation, shares, PARTS[at], "%{x:.1%}", across=True))
    figure = _figure(data, height=_AROUND_PX + _BAR_PX * len(traces))
    figure["layout"] |= {"barmode": "stack", "xaxis": {"tickformat": ".0%", "range": [0, 1]}, "yaxis": _NAMES}
    return Chart("Composition", "The share of each operation.", figure)


def _amplification(traces: Traces) -> Chart:
    words = {"event_amplification": "accesses an event", "key_space_amplification": "state keys an event key"}
    data = [
        _bars(said, {name: each.get(field) for name, each in traces.items()}, PARTS[at], "%{x:,.3g}", across=True)
        for at, (field, said) in enumerate(words.items())
    ]
    figure = _figure(data, height=_AROUND_PX + 2 * _BAR_PX * len(traces))
    figure["layout"] |= {"barmode": "group", "xaxis": {"type": "log"}, "yaxis": _NAMES}
    return Chart("Amplification", "How many accesses an event makes, and how many state keys an event key.", figure)


def _distances_to_input(traces: Traces) -> Chart:
    shown = {name: each.get("ks_distance") for name, each in traces.items()}
    data = [_bars("D", shown, PARTS[0], "%{x:.3f}", across=True)]
    figure = _figure(data, height=_AROUND_PX + _BAR_PX * len(traces))
    figure["layout"] |= {"showlegend": False, "xaxis": {"range": [0, 1]}, "yaxis": _NAMES}
    caption = "Largest distance between the distributions of state keys and of event keys, both by first appearance."
    return Chart("Kolmogorov-Smirnov distance from the input", caption, figure)


def _mean_distance(order: Mapping[str, Any]) -> object:
    return order.get("mean_stack_distance")


def _both(traces: Traces, title: str, caption: str, value: Callable[[Mapping[str, Any]], object]) -> Chart:
    """A number of each trace and of its shuffled twin."""
    data = []
    for which, said, opacity in (("trace", "as it is", 1.0), ("shuffled", "shuffled", _PALE)):
        shown = {name: value(_inner(each, which)) for name, each in traces.items()}
        bars = _bars(said, shown, PARTS[0], "%{x:,.4g}", across=True)
        data.append({**bars, "opacity": opacity})
    figure = _figure(data, height=_AROUND_PX + 2 * _BAR_PX * len(traces))
    figure["layout"] |= {"barmode": "group", "xaxis": {"type": "log"}, "yaxis": _NAMES}
    return Chart(title, f"{caption} Pale: the same accesses in random order.", figure)


def _distance_shares(traces: Traces) -> Chart:
    def points(order: Mapping[str, Any]) -> tuple[list[float], list[float]]:
        counted = _pairs(order.get("stack_distances"))
        total, so_far, shares = sum(count for _, count in counted), 0.0, []
        for _, count in counted:
            so_far += count
            shares.append(so_far / total if total else 0.0)
        return [bound + 1 for bound, _ in counted], shares  # a logarithm has no 0

    figure = _lines(traces, points, "keys between + 1", "share of accesses")
    figure["layout"]["xaxis"]["type"] = "log"
    return Chart("Stack distances", "How many accesses are at most so far from the last one. " + _DASHED, figure)


def _sequences(traces: Traces) -> Chart:
    def points(order: Mapping[str, Any]) -> tuple[list[float], list[float]]:
        counts = _numbers(order.get("unique_sequences"))
        return [length + 1.0 for length in range(len(counts))], counts

    figure = _lines(traces, points, "keys in a sequence", "different sequences")
    return Chart("Unique sequences", "Fewer means that keys follow each other in the same order. " + _DASHED, figure)


def _lives(traces: Traces) -> Chart:
    data = []
    for at, (name, each) in enumerate(traces.items()):
        for which, said, opacity in (("trace", name, 1.0), ("shuffled", f"{name}, shuffled", _PALE)):
            lives = _inner(_inner(each, which), "time_to_live")
            shown = {life: lives.get(life) for life in _LIVES}
            bars = _bars(said, shown, PARTS[at % len(PARTS)], "%{y:,} steps")
            data.append({**bars, "opacity": opacity, "showlegend": which == "trace"})
    figure = _figure(data, _high(traces))
    figure["layout"] |= {"barmode": "group", "yaxis": {"type": "log", "title": {"text": "steps"}, "automargin": True}}
    return Chart("Time to live", "Accesses between a key's first and last, over a sample of keys. " + _PALER, figure)


def _working_sets(traces: Traces) -> Chart:
    def points(order: Mapping[str, Any]) -> tuple[list[float], list[float]]:
        active = _numbers(order.get("working_set"))
        return [at / max(1, len(active) - 1) for at in range(len(active))], active

    figure = _lines(traces, points, "through the trace", "active keys", shuffled=False)
    figure["layout"]["xaxis"]["tickformat"] = ".0%"
    return Chart("Working set", "Keys that were accessed and not deleted since.", figure)


def _miss_ratios(traces: Traces) -> Chart:
    data = []
    for at, (name, each) in enumerate(traces.items()):
        curve = _pairs(each.get("miss_ratios"))
        if curve:
            data.append(_line(name, [x for x, _ in curve], [y for _, y in curve], at))
    figure = _figure(data, _high(traces))
    figure["layout"] |= {
        "xaxis": {"type": "log", "title": {"text": "entries of the cache"}, "automargin": True},
        "yaxis": {"tickformat": ".0%", "rangemode": "tozero", "title": {"text": "misses"}, "automargin": True},
    }
    return Chart("Miss ratio by cache size", "Of a cache that evicts what was used least recently.", figure)


_NAMES = {"autorange": "reversed", "automargin": True, "type": "category", "showgrid": False}
_DASHED = "Dashed: the same accesses in random order."
_PALER = "Pale: the same accesses in random order."


def _lines(
    traces: Traces,
    points: Callable[[Mapping[str, Any]], tuple[list[float], list[float]]],
    x: str,
    y: str,
    shuffled: bool = True,
) -> dict[str, Any]:
    data = []
    for at, (name, each) in enumerate(traces.items()):
        for which in ("trace", "shuffled")[: 1 + shuffled]:
            xs, ys = points(_inner(each, which))
            if xs:
                said = name if which == "trace" else f"{name}, shuffled"
                data.append(_line(said, xs, ys, at, dashed=which == "shuffled"))
    figure = _figure(data, _high(traces))
    figure["layout"] |= {
        "xaxis": {"title": {"text": x}, "automargin": True},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero", "automargin": True, "separatethousands": True},
    }
    return figure


def _line(name: str, xs: Sequence[float], ys: Sequence[float], at: int, dashed: bool = False) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(name),
        "x": list(xs),
        "y": list(ys),
        "line": {"color": PARTS[at % len(PARTS)], "width": 2, "dash": "dot" if dashed else "solid"},
        "showlegend": not dashed,
        "hovertemplate": f"{html.escape(name)}: %{{y:,.4g}}<extra></extra>",
    }


def _bars(name: str, shown: Mapping[str, object], colour: str, hover: str, across: bool = False) -> dict[str, Any]:
    known = {label: value for label, value in shown.items() if is_number(value)}
    labels, values = [labelled(label) for label in known], list(known.values())
    return {
        "type": "bar",
        "name": html.escape(name),
        "orientation": "h" if across else "v",
        "x": values if across else labels,
        "y": labels if across else values,
        "marker": {"color": colour},
        "hovertemplate": f"{html.escape(name)} {hover}<extra></extra>",
    }


def _figure(data: list[dict[str, Any]], height: int = _HEIGHT_PX) -> dict[str, Any]:
    return {"data": [each for each in data if each["x"]], "layout": {"height": height, "xaxis": {}, "yaxis": {}}}


def _high(traces: Traces) -> int:
    """With room for a line of the legend for each trace."""
    return _HEIGHT_PX + _LEGEND_PX * max(0, len(traces) - 4)


def _inner(each: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = each.get(name)
    return found if isinstance(found, Mapping) else {}


def _numbers(values: object) -> list[float]:
    return [value for value in values if is_number(value)] if isinstance(values, list | tuple) else []


def _pairs(values: object) -> list[tuple[float, float]]:
    pairs = [_numbers(value) for value in values] if isinstance(values, list | tuple) else []
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
