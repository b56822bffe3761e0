"""The records of ``bench prefetch`` as charts and a table, with the paper's numbers beside ours. Pure.

A record may come from anywhere: what is not a number is left out, and names are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.lab.report.figures import Chart, colour, is_number, labelled

_HEIGHT_PX = 320
_PERCENTILES = {"p50": "p50", "p95": "p95", "p99": "p99", "p999": "p99.9"}

PAPER_HINT_SHARE = {"q13": 0.022, "q18": 0.018, "q19": 0.024, "q20": 0.027, "ysb": 0.087}
"""What hints add to the data moved."""

HEADS = (
    *(
        "workload",
        "engine",
        "wait p50 ms",
        "p95",
        "p99",
        "p99.9",
        "batch p50 ms",
        "p99",
        "p99.9",
        "rows/s",
        "hit ratio",
    ),
    *("reads of spilled state", "wasted", "CPU %", "state/memory"),
)
_PLAIN = ("throughput", "hit_ratio", "reader", "wasted_share", "cpu_percent", "state_over_memory")


def prefetch_rows(summary: Mapping[str, Any]) -> list[list[str | float | None]]:
    """One row a workload and engine, in the order of ``HEADS``."""
    rows: list[list[str | float | None]] = []
    times = _deep(summary.get("batch_ms")) if _deep(summary.get("wait_ms")) else {}
    waits = _deep(summary.get("wait_ms"))
    for workload, of in times.items():
        for engine, batch in of.items():
            wait = waits.get(workload, {}).get(engine, {})
            plain = [_numbers(summary.get(name), workload).get(engine) for name in _PLAIN]
            rows.append(
                [
                    workload,
                    engine,
                    *(wait.get(name) for name in _PERCENTILES),
                    *(batch.get(name) for name in ("p50", "p99", "p999")),
                    *plain,
                ]
            )
    return rows


def prefetch_charts(summary: Mapping[str, Any]) -> list[Chart]:
    waits = _deep(summary.get("wait_ms"))
    if not waits:
        return _moving(summary)
    sweeps = _sweeps(summary.get("prefetch_sweeps"))
    if sweeps:
        return sweeps
    made = [
        _together(
            "Wait for spilled state, p99.9", "Of rows; a bar that is missing is no wait.", waits, "p999", "ms", log=True
        ),
        _together("Time of a batch, p99.9", "Of rows.", _deep(summary.get("batch_ms")), "p999", "ms"),
        _throughput(summary),
        _moved(summary),
    ]
    for workload, of in waits.items():
        made.append(_percentiles(workload, of))
        series = _numbers_lists(summary.get("prefetch_series_wait_ms"), workload)
        if series:
            made.append(_waits(workload, series))
    return [chart for chart in made if chart.figure["data"]]


def _together(
    title: str,
    caption: str,
    of: Mapping[str, Mapping[str, Mapping[str, float]]],
    key: str,
    unit: str,
    log: bool = False,
) -> Chart:
    by_engine: dict[str, dict[str, float]] = {}
    for workload, recorded in of.items():
        for engine, each in recorded.items():
            if key in each:
                by_engine.setdefault(engine, {})[workload] = each[key]
    figure = _bars(by_engine, unit)
    if log:
        figure["layout"]["yaxis"] |= {"type": "log", "rangemode": "normal"}
    return Chart(title, caption, figure, wide=True)


def _throughput(summary: Mapping[str, Any]) -> Chart:
    by_engine: dict[str, dict[str, float]] = {}
    recorded = summary.get("throughput")
    for workload in recorded if isinstance(recorded, Mapping) else ():
        for engine, rate in _numbers(recorded, workload).items():
            by_engine.setdefault(engine, {})[str(workload)] = rate
    return Chart("Throughput", "Rows of all counted batches over their time.", _bars(by_engine, "rows/s"), wide=True)


def _moved(summary: Mapping[str, Any]) -> Chart:
    recorded = summary.get("hint_bytes_share")
    ours = (
        {str(name): 100 * share for name, share in recorded.items() if is_number(share)}
        if isinstance(recorded, Mapping)
        else {}
    )
    paper = {name: 100 * share for name, share in PAPER_HINT_SHARE.items() if name in ours}
    caption = (
        "Bytes of hints for a hundred bytes of rows. Grey: the paper's, of its network. Staging's hints are no bytes."
    )
    return Chart(
        "What hints add to the data moved", caption, _bars({"hints": ours, "paper": paper} if ours else {}, "%")
    )


def _percentiles(workload: str, of: Mapping[str, Mapping[str, float]]) -> Chart:
    by_engine = {
        engine: {shown: each[name] for name, shown in _PERCENTILES.items() if name in each}
        for engine, each in of.items()
    }
    caption = "Milliseconds that a row's batch waited for records that were not in memory."
    return Chart(f"{workload}: wait for spilled state", caption, _bars(by_engine, "ms"))


def _waits(workload: str, series: Mapping[str, Sequence[float]]) -> Chart:
    traces = [_line(engine, list(range(len(each))), list(each), "ms") for engine, each in series.items()]
    return Chart(f"{workload}: wait of each batch", "In the order of batches.", _figure(traces, "batch", "ms"))


def _sweeps(recorded: object) -> list[Chart]:
    made = []
    for sweep, workloads in recorded.items() if isinstance(recorded, Mapping) else ():
        for workload, values in workloads.items() if isinstance(workloads, Mapping) else ():
            lines: dict[str, tuple[list[str], list[float]]] = {}
            for value, engines in values.items() if isinstance(values, Mapping) else ():
                for engine, numbers in engines.items() if isinstance(engines, Mapping) else ():
                    wait = numbers.get("wait_p999_ms") if isinstance(numbers, Mapping) else None
                    if is_number(wait):
                        x, y = lines.setdefault(str(engine), ([], []))
                        x.append(html.escape(str(value)))
                        y.append(wait)
            traces = [_line(engine, x, y, "ms", markers=True) for engine, (x, y) in lines.items()]
            if traces:
                figure = _figure(traces, html.escape(str(sweep)), "ms")
                figure["layout"]["xaxis"]["type"] = "category"
                title = f"{workload}: wait at p99.9 by {sweep}"
                made.append(Chart(title, "Of rows, one run for each value.", figure, wide=True))
    return made


def _moving(summary: Mapping[str, Any]) -> list[Chart]:
    recorded = summary.get("lookahead")
    names = recorded.get("lookahead") if isinstance(recorded, Mapping) else None
    phases = recorded.get("phase") if isinstance(recorded, Mapping) else None
    if not isinstance(names, Sequence) or not isinstance(phases, Sequence) or isinstance(names, str):
        return []
    steps = {
        "type": "scatter",
        "mode": "lines+markers",
        "line": {"shape": "hv", "color": "#0d9488", "width": 2},
        "x": list(range(len(names))),
        "y": [html.escape(str(name)) for name in names],
        "hovertemplate": "batch %{x}: %{y}<extra></extra>",
    }
    figure = _figure([steps], "batch", "")
    figure["layout"]["yaxis"] = {"type": "category", "automargin": True}
    changes = [
        {
            "type": "line",
            "x0": at,
            "x1": at,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"dash": "dot", "color": "#94a3b8"},
        }
        for at in range(1, len(phases))
        if phases[at] != phases[at - 1]
    ]
    figure["layout"]["shapes"] = changes
    caption = (
        "Where the hints of each batch came from. At the first dotted line the first step begins to change the keys, "
        "at the second the table becomes fast; the paper's Figure 10."
    )
    made = [Chart("The lookahead", caption, figure, wide=True)]
    missed = recorded.get("miss_ratio") if isinstance(recorded, Mapping) else None
    if isinstance(missed, Sequence) and not isinstance(missed, str) and all(is_number(one) for one in missed):
        line = _line("missed", list(range(len(missed))), [100 * one for one in missed], "%")
        figure = _figure([line], "batch", "%")
        figure["layout"]["shapes"] = changes
        made.append(
            Chart("Missed", "Of the keys that rows asked for, those that were not there yet.", figure, wide=True)
        )
    return made


def _bars(by_engine: Mapping[str, Mapping[str, float]], unit: str) -> dict[str, Any]:
    traces = [
        {
            "type": "bar",
            "name": html.escape(engine),
            "x": [labelled(name) for name in each],
            "y": list(each.values()),
            "marker": {"color": colour(engine)},
            "hovertemplate": f"{html.escape(engine)} %{{y:,.3~g}} {unit}<extra></extra>",
        }
        for engine, each in by_engine.items()
        if each
    ]
    figure = _figure(traces, "", unit)
    figure["layout"] |= {"barmode": "group"}
    figure["layout"]["xaxis"] |= {"type": "category"}
    return figure


def _line(name: str, x: list[Any], y: list[float], unit: str, *, markers: bool = False) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if markers else "lines",
        "name": html.escape(name),
        "x": x,
        "y": y,
        "line": {"color": colour(name), "width": 2},
        "hovertemplate": f"%{{y:,.3~g}} {unit}",
    }


def _figure(traces: list[dict[str, Any]], x: str, y: str) -> dict[str, Any]:
    return {
        "data": traces,
        "layout": {
            "height": _HEIGHT_PX,
            "xaxis": {"title": {"text": x}, "automargin": True},
            "yaxis": {"title": {"text": y}, "rangemode": "tozero", "automargin": True, "separatethousands": True},
        },
    }


def _deep(recorded: object) -> dict[str, dict[str, dict[str, float]]]:
    """Workload to engine to percentile to number."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for workload, of in recorded.items() if isinstance(recorded, Mapping) else ():
        for engine, each in of.items() if isinstance(of, Mapping) else ():
            numbers = {str(q): v for q, v in each.items() if is_number(v)} if isinstance(each, Mapping) else {}
            if numbers:
                found.setdefault(str(workload), {})[str(engine)] = numbers
    return found


def _numbers(recorded: object, workload: str) -> dict[str, float]:
    of = recorded.get(workload) if isinstance(recorded, Mapping) else None
    return {str(name): value for name, value in of.items() if is_number(value)} if isinstance(of, Mapping) else {}


def _numbers_lists(recorded: object, workload: str) -> dict[str, list[float]]:
    of = recorded.get(workload) if isinstance(recorded, Mapping) else None
    return {
        str(name): [one for one in each if is_number(one)]
        for name, each in (of.items() if isinstance(of, Mapping) else ())
        if isinstance(each, Sequence) and not isinstance(each, str)
    }
