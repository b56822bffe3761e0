"""Panels as plotly figures: plain dicts, as ``Plotly.newPlot`` takes them. Pure.

Colours of the paper, the text and the grid are left out: the page sets them, for light and for dark.
"""

from __future__ import annotations

import html
from typing import Any

from tailrace.lab.report.commit import commit_charts
from tailrace.lab.report.espbench import espbench_charts
from tailrace.lab.report.figures import PARTS, Chart, colour, labelled
from tailrace.lab.report.gadget import gadget_charts
from tailrace.lab.report.panels import EngineNumbers, Panel, Span
from tailrace.lab.report.prefetch import prefetch_charts
from tailrace.lab.report.sweeps import sweep_charts

_RATIO = "#0d9488"
_BAR_PX, _AROUND_PX = 44, 70
_PARTS_SHOWN = 7
_ROOM = 1.35  # of the longest bar: its text stands beyond its end

_METRICS = {
    "ms": ("Time of each epoch", "ms"),
    "rows_per_s": ("Rows a second in each epoch", "rows/s"),
    "state_rows": ("State rows after each epoch", "rows"),
}


_NAMES = {"autorange": "reversed", "automargin": True, "type": "category", "showgrid": False}


def _scale(unit: str) -> dict[str, Any]:
    suffix = unit if unit == "×" else f" {unit}"
    return {"rangemode": "tozero", "ticksuffix": suffix, "nticks": 5, "separatethousands": True}


def charts(panel: Panel) -> list[Chart]:
    made = []
    commits = commit_charts(panel.newest.summary)
    waits = prefetch_charts(panel.newest.summary)
    if panel.ratios and not commits and not waits:  # those are shown beside the paper's, or with what they are of
        made.append(_ratios(panel))
    traces = gadget_charts(panel.newest.summary)
    streams = espbench_charts(panel.newest.summary)
    sweeps = sweep_charts(panel.newest.summary.get("sweeps")) or commits or traces or waits or streams
    if sweeps:  # settings of one engine: more than their times describes them
        return [*made, *sweeps, *([_history(panel)] if panel.ratios and len(panel.history) > 1 else [])]
    made.append(_medians(panel))
    for metric, (title, unit) in _METRICS.items():
        if any(value is not None for one in panel.engines for value in one.series.get(metric, [])):
            made.append(_series(panel, metric, title, unit))
    if panel.parts_ms:
        made.append(_parts(panel))
    if panel.own_parts_ms:
        made.append(_own_parts(panel))
    if panel.kind == "bench" and panel.ratios and len(panel.history) > 1:
        made.append(_history(panel))
    return made


def number(value: float) -> str:
    """As many digits as can be trusted, and no more.

    >>> number(1234.56), number(12.345), number(0.01234)
    ('1,235', '12.3', '0.0123')
    """
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ratios(panel: Panel) -> Chart:
    ratios = panel.ratios
    figure = _bars(
        labels=[labelled(ratio.words) for ratio in ratios],
        spans=[ratio.span for ratio in ratios],
        colours=[_RATIO if ratio.more_is_better else "#94a3b8" for ratio in ratios],
        texts=[f"{ratio.span.value:.2f}×" for ratio in ratios],
        unit="×",
    )
    figure["layout"]["shapes"] = [
        {
            "type": "line",
            "x0": 1,
            "x1": 1,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"dash": "dot", "width": 1.5, "color": "#94a3b8"},
        }
    ]
    caption = "Of the medians. The line across a bar: the middle half of the ratios epoch by epoch. "
    if any(not ratio.more_is_better for ratio in ratios):
        caption += "Grey: less is better. "
    return Chart("Ratios of Tailrace", caption + "Dotted: 1×.", figure)


def _medians(panel: Panel) -> Chart:
    engines = panel.engines
    # The number stands beside the name: at a bar's end it would meet the line and the diamond.
    labels = [f"{labelled(one.engine)}<br><b>{number(one.median.value)} ms</b>" for one in engines]
    figure = _bars(labels, [one.median for one in engines], [colour(one.engine) for one in engines], [], "ms")
    caption = "Median. The line across a bar: the middle half of the epochs."
    tails = [(one.p99, label) for one, label in zip(engines, labels) if one.p99 is not None]
    if tails:
        figure["data"].append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "p99",
                "x": [value for value, _ in tails],
                "y": [label for _, label in tails],
                "marker": {"symbol": "diamond", "size": 9, "color": "#ef4444"},
                "hovertemplate": "p99 %{x:,.0f} ms<extra></extra>",
            }
        )
        caption += " Diamond: p99."
    return Chart("Time of an epoch", caption, figure)


def _bars(
    labels: list[str],
    spans: list[Span],
    colours: list[str],
    texts: list[str],
    unit: str,
) -> dict[str, Any]:
    known = [span.low is not None for span in spans]
    ends = [max(span.value, span.high or 0) for span in spans]
    bar: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": [span.value for span in spans],
        "y": labels,
        "marker": {"color": colours},
        "hovertemplate": f"%{{x:,.2f}} {unit}<extra></extra>",
    }
    if any(known):
        bar["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [None if span.high is None else span.high - span.value for span in spans],
            "arrayminus": [None if span.low is None else span.value - span.low for span in spans],
            "thickness": 1.6,
            "width": 5,
        }
    return {
        "data": [bar],
        "layout": {
            "height": _AROUND_PX + _BAR_PX * len(labels),
            "showlegend": False,
            "bargap": 0.35,
            "xaxis": _scale(unit) | ({"range": [0, max(ends) * _ROOM or 1]} if texts else {}),
            "annotations": [
                {"x": end, "y": label, "text": text, "xanchor": "left", "xshift": 7, "showarrow": False}
                for end, label, text in zip(ends, labels, texts)
            ],
            "yaxis": _NAMES,
        },
    }


def _series(panel: Panel, metric: str, title: str, unit: str) -> Chart:
    lines = []
    for one in panel.engines:
        values = one.series.get(metric, [])
        if not any(value is not None for value in values):
            continue
        lines.append(_line(one, values, unit))
    many = max(len(line["x"]) for line in lines) > 40
    for line in lines:
        line["mode"] = "lines" if many else "lines+markers"
    figure = {
        "data": lines,
        "layout": {
            "height": 320,
            "xaxis": {"title": {"text": "epoch"}, "rangemode": "normal"},
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "automargin": True, "separatethousands": True},
            "hovermode": "x unified",
        },
    }
    skipped = max(one.first_epoch for one in panel.engines)
    caption = f"Without the first {skipped} epochs, in which Spark starts up." if skipped else "Without the warm-up."
    if metric == "state_rows" and len(lines) > 1:
        caption += " Each engine counts records of its own kind."
    return Chart(title, caption, figure, wide=metric == "ms" and bool(panel.ratios))


def _line(one: EngineNumbers, values: list[float | None], unit: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": html.escape(one.engine),
        "x": list(range(one.first_epoch, one.first_epoch + len(values))),
        "y": values,
        "line": {"color": colour(one.engine), "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"%{{y:,.0f}} {unit}",
    }


def _parts(panel: Panel) -> Chart:
    engines = list(panel.parts_ms)
    sizes: dict[str, float] = {}
    for parts in panel.parts_ms.values():
        for part, ms in parts.items():
            sizes[part] = sizes.get(part, 0) + ms
    traces = []
    for at, part in enumerate(sorted(sizes, key=lambda part: -sizes[part])):
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": html.escape(part),
                "x": [panel.parts_ms[engine].get(part, 0) for engine in engines],
                "y": [labelled(engine) for engine in engines],
                "marker": {"color": PARTS[at % len(PARTS)]},
                "hovertemplate": f"{html.escape(part)} %{{x:,.1f}} ms<extra></extra>",
            }
        )
    figure = {
        "data": traces,
        "layout": {
            "height": _AROUND_PX + 90 + _BAR_PX * len(engines),
            "barmode": "stack",
            "bargap": 0.3,
            "xaxis": _scale("ms"),
            "yaxis": _NAMES,
        },
    }
    return Chart("Where the time goes", "The median of each part, as Spark reports it.", figure)


def _own_parts(panel: Panel) -> Chart:
    parts = sorted(panel.own_parts_ms.items(), key=lambda part: -part[1])[:_PARTS_SHOWN]
    figure = _bars(
        labels=[labelled(part) for part, _ in parts],
        spans=[Span(ms) for _, ms in parts],
        colours=[colour("tailrace")] * len(parts),
        texts=[f"{number(ms)} ms" for _, ms in parts],
        unit="ms",
    )
    return Chart("Inside Tailrace", "The median of each part, as Tailrace reports it.", figure)


def _history(panel: Panel) -> Chart:
    lines = []
    for at, ratio in enumerate(panel.ratios):
        recorded = [(record, record.summary.get("ratios", {}).get(ratio.name)) for record in panel.history]
        points = [(record.started, value) for record, value in recorded if isinstance(value, int | float)]
        lines.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": html.escape(ratio.words),
                "x": [when for when, _ in points],
                "y": [value for _, value in points],
                "line": {"color": PARTS[at % len(PARTS)], "width": 2},
                "hovertemplate": "%{y:.2f}×",
            }
        )
    figure = {
        "data": lines,
        "layout": {
            "height": 340,
            "xaxis": {"type": "date"},
            "yaxis": {"ticksuffix": "×", "rangemode": "tozero", "automargin": True},
            "hovermode": "x unified",
        },
    }
    return Chart("Ratios over time", f"All {len(panel.history)} runs with these parameters.", figure, wide=True)
