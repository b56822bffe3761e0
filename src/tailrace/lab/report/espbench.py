"""ESPBench's records as charts and a table, with what was published of other systems beside ours. Pure.

A record may come from anywhere: what is not a number is left out, and names are escaped. Latencies have logarithmic
axes, since the published ones span six powers of ten.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.lab.espbench.published import CAPACITY, EXACT, MOST_LOAD, TABLE_7
from tailrace.lab.report.figures import PARTS, Chart, is_number, labelled

HEADS = (
    *("query", "system", "messages/s", "runs", "p50 ms", "p90 ms", "p99 ms", "max ms", "seen p50 ms", "seen p90 ms"),
    *("correct %", "missing", "doubled", "cores"),
)
_COLOURS = {"tailrace": "#0d9488", "spark": "#e8772e", "flink": "#8b5cf6", "spark-real-time": "#ca8a04"}
_PUBLISHED = {"Flink": "#c4b5fd", "Jet": "#94a3b8", "Spark": "#fdba74"}
_HEIGHT_PX, _ROW_PX, _AROUND_PX = 340, 26, 110
_PLAIN_SHARE = 0.01
"""A latency of no millisecond has no place on a logarithmic axis."""


def espbench_charts(summary: Mapping[str, Any]) -> list[Chart]:
    """Of a record's summary, as ``lab/espbench/results/summary.py`` makes it."""
    found = summary.get("espbench")
    if not isinstance(found, Mapping):
        return []
    made = [*_percentiles_beside(_maps(found.get("runs"))), *_capacities(_maps(found.get("capacities")))]
    for key, courses in _grouped(_maps(found.get("courses"))).items():
        made += _courses(*key, courses)
    return [chart for chart in made if chart.figure["data"]]


def espbench_rows(summary: Mapping[str, Any]) -> list[list[str | float | None]]:
    """A row for each query, rate and system, in the order of ``HEADS``, and the published ones behind ours."""
    found = summary.get("espbench")
    runs = _maps(found.get("runs")) if isinstance(found, Mapping) else []
    rows: list[list[str | float | None]] = []
    for (query, rate), several in _grouped([run for run in runs if run.get("valid")]).items():
        for system in dict.fromkeys(str(run.get("system")) for run in several):
            for killed in (False, True):
                rows += _row(query, rate, system, killed, several)
        for name, (p90, _, most, _) in TABLE_7.get((_base(query), rate), {}).items():
            exact = EXACT.get((_base(query), rate), {}).get(name)
            p50, p99 = (exact[0], exact[2]) if exact and not _variant(query) else (None, None)
            if not _variant(query):
                rows.append([query, f"{name}, published", rate, None, p50, p90, p99, most, *[None] * 6])
    return rows


def _row(
    query: str, rate: int, system: str, killed: bool, runs: Sequence[Mapping[str, Any]]
) -> Iterator[list[str | float | None]]:
    of_it = [run for run in runs if run.get("system") == system and bool(run.get("kills")) == killed]
    if not of_it:
        return
    names = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "seen_p50_ms", "seen_p90_ms", "correctness", "missing", "doubled")
    cores = [run["cores"].get("system") for run in of_it if isinstance(run.get("cores"), Mapping)]
    means = [_mean([run.get(name) for run in of_it]) for name in names]
    yield [query, f"{system}, killed" if killed else system, rate, len(of_it), *means, _mean(cores)]


def _percentiles_beside(runs: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """One chart a rate: 90th percentiles, ours full, published ones pale."""
    made = []
    usable = [run for run in runs if run.get("valid") and not run.get("kills")]
    for rate in dict.fromkeys(rate for _, rate in _grouped(usable)):
        of_rate = [run for run in usable if run.get("rate") == rate]
        queries = list(dict.fromkeys(str(run.get("query")) for run in of_rate))
        data = []
        for system in dict.fromkeys(str(run.get("system")) for run in of_rate):
            values = {
                query: _mean([r.get("p90_ms") for r in of_rate if (r.get("query"), r.get("system")) == (query, system)])
                for query in queries
            }
            data.append(_dots(system, values, _colour(system), "circle"))
        for name, colour in _PUBLISHED.items():
            values = {
                query: TABLE_7[query, rate][name][0]
                for query in queries
                if (query, rate) in TABLE_7 and name in TABLE_7[query, rate]
            }
            data.append(_dots(f"{name}, published", values, colour, "diamond"))
        figure = _figure([each for each in data if each["x"]], _AROUND_PX + 2 * _ROW_PX * len(queries))
        figure["layout"] |= {"xaxis": _LOG_MS, "yaxis": {"type": "category", "autorange": "reversed"}}
        caption = "Until the broker had the result. Diamonds: Table 7 of the paper, on other and more machines."
        made.append(Chart(f"90th percentile of latency, {rate:,} messages a second", caption, figure, wide=True))
    return made


def _capacities(found: Sequence[Mapping[str, Any]]) -> list[Chart]:
    systems = list(dict.fromkeys(str(each.get("system")) for each in found))
    queries = list(dict.fromkeys(str(each.get("query")) for each in found))
    data = []
    for system in systems:
        rates = {str(each.get("query")): each.get("rate") for each in found if each.get("system") == system}
        data.append(_dots(system, rates, _colour(system), "circle"))
    best = {
        query: CAPACITY[_base(query)][2] / CAPACITY[_base(query)][1] for query in queries if _base(query) in CAPACITY
    }
    data.append(_dots("best published", best, _PUBLISHED["Jet"], "diamond"))
    figure = _figure([each for each in data if each["x"]], _AROUND_PX + 2 * _ROW_PX * len(queries))
    scale = {"type": "log", "title": {"text": "messages a second and stream"}}
    figure["layout"] |= {"xaxis": scale, "yaxis": {"type": "category", "autorange": "reversed"}}
    caption = (
        "The highest rate at which latency does not grow. Published: what queries 2, 4 and 5 did in a second "
        "while they queued, as messages."
    )
    return [Chart("Capacity", caption, figure, wide=True)] if found else []


def _courses(query: str, rate: int, courses: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """As Figure 6 of the paper: single latencies, and what the system used, over time."""
    latencies, loads, shapes = [], [], []
    for course in courses:
        system = str(course.get("system"))
        killed = [at for at in course.get("kills_s") or () if is_number(at)]
        name = f"{system}, killed" if killed else system
        points = [max(each, _PLAIN_SHARE) for each in course.get("latency_ms") or () if is_number(each)]
        shown = {"mode": "markers", "marker": {"size": 3, "color": _colour(system)}, "type": "scattergl"}
        if killed:
            shown["marker"] = {"size": 4, "color": _colour(system), "symbol": "x"}
        latencies.append({**shown, "name": html.escape(name), "x": course.get("at_s"), "y": points})
        shapes += [_line(at, across=False, colour=_colour(system)) for at in killed]
        line = {"color": _colour(system), "dash": "dot" if killed else "solid"}
        used = {"type": "scatter", "mode": "lines", "line": line, "name": html.escape(name)}
        loads.append({**used, "x": course.get("used_at_s"), "y": course.get("cores")})
    exact = {} if _variant(query) else EXACT.get((query, rate), {})
    shapes += [_line(p90, across=True, colour=_PUBLISHED[name]) for name, (_, p90, _) in exact.items()]
    single, load = _figure(latencies, _HEIGHT_PX), _figure(loads, _HEIGHT_PX)
    single["layout"] |= {"xaxis": _SECONDS, "yaxis": _LOG_MS, "shapes": shapes}
    load["layout"] |= {"xaxis": _SECONDS, "yaxis": {"title": {"text": "cores"}, "rangemode": "tozero"}}
    said = ", ".join(f"{name} {p90:,.0f} ms" for name, (_, p90, _) in exact.items())
    step = max((course["step"] for course in courses if is_number(course.get("step"))), default=1)
    most = ", ".join(f"{name} {most:g}" for name, most in MOST_LOAD.get((query, rate), {}).items())
    return [
        Chart(
            f"{query} at {rate:,}/s: single latencies",
            (f"Every {step:,}th result. " if step > 1 else "")
            + (f"Lines: published 90th percentiles, {said}." if said else ""),
            single,
        ),
        Chart(
            f"{query} at {rate:,}/s: processor time of the system",
            f"Highest load of one server in the paper: {most}." if most else "",
            load,
        ),
    ]


_SECONDS = {"title": {"text": "seconds"}, "rangemode": "tozero"}
_LOG_MS = {"type": "log", "title": {"text": "ms"}, "automargin": True}


def _dots(name: str, values: Mapping[str, Any], colour: str, symbol: str) -> dict[str, Any]:
    known = {query: max(value, _PLAIN_SHARE) for query, value in values.items() if is_number(value)}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": html.escape(name),
        "x": list(known.values()),
        "y": [labelled(query) for query in known],
        "marker": {"color": colour, "size": 11, "symbol": symbol},
        "hovertemplate": f"{html.escape(name)} %{{x:,.4g}}<extra></extra>",
    }


def _line(at: float, *, across: bool, colour: str) -> dict[str, Any]:
    place = {"y0": at, "y1": at, "x0": 0, "x1": 1, "xref": "paper"} if across else {}
    upright = {} if across else {"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **place, **upright, "line": {"dash": "dot", "width": 1.5, "color": colour}}


def _figure(data: list[dict[str, Any]], height: int) -> dict[str, Any]:
    return {"data": data, "layout": {"height": height, "showlegend": True, "legend": {"orientation": "h", "y": -0.25}}}


def _grouped(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for each in found:
        if isinstance(rate := each.get("rate"), int):
            groups.setdefault((str(each.get("query")), rate), []).append(each)
    return dict(sorted(groups.items()))


def _maps(found: object) -> list[Mapping[str, Any]]:
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _mean(values: Sequence[object]) -> float | None:
    known = [float(value) for value in values if is_number(value)]
    return sum(known) / len(known) if known else None


def _colour(system: str) -> str:
    return _COLOURS.get(system) or PARTS[sum(system.encode()) % len(PARTS)]


def _base(query: str) -> str:
    return query.partition("-")[0]


def _variant(query: str) -> bool:
    """The published systems had no copies, and updated row by row: ``q5-rows`` is what they did."""
    return query not in ("q1", "q2", "q3", "q4", "q5-rows") and query != "q5"
