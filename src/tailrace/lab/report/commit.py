"""The record of ``bench commit`` as charts, with the paper's numbers beside ours. Pure.

A record may come from anywhere: what is not a number is left out, and names are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.lab.bench.commit.timeline import STEPS
from tailrace.lab.report.figures import PARTS, Chart, colour, is_number, labelled

_STEP_COLOURS = {"snapshot": "#f43f5e", "plan": "#cbd5e1"}
_OF_THE_PAPER = {"spark-rocksdb": "Baseline", "buffered": "zStream", "async-checkpoint": "Async.Ckp", "async": "MiSA"}
"""What a target stands for."""
_BEHIND = ("seal", "local", "upload", "log", "snapshot")
_HEIGHT_PX, _ROW_PX = 320, 26
_DRAWN = ("sync", "async-checkpoint", "async")

PAPER_P99_MS = {"lr2": {"Baseline": 9_729, "MiSA": 3_694}}
"""At 1,500 records a second, where the text says."""
PAPER_THROUGHPUT_KB_S = {
    "lr2": {"Baseline": 230, "MiSA": 337.814},
    "lr4": {"Baseline": 206, "MiSA": 1_000.939},
    "cm1": {"Baseline": 175, "zStream": 126.58, "Async.Ckp": 170.99, "MiSA": 1_327.05},
    "cm2": {"Baseline": 98, "MiSA": 500.92},
}
"""At 1,500 records a second; Baseline from the ratios in the text."""
PAPER_RATIOS = {
    "p99": {"lr2": 2.6, "lr4": 4.9, "cm1": 13.4},
    "throughput": {"lr2": 1.47, "lr4": 4.87, "cm1": 7.6, "cm2": 5.1},
}
"""MiSA's over Baseline's; lr4's is the most over any, cm1's p99 over zStream's at 2,500 records a second."""


def commit_charts(summary: Mapping[str, Any]) -> list[Chart]:
    series = _by_query(summary.get("query_series_ms"), _is_series)
    made = [_beside(summary)] if series else []
    for query, recorded in series.items():
        made += [_series(query, recorded), _cdf(query, recorded)]
        made += _percentiles(query, summary)
        made += _throughput(query, summary)
        made += _commits(query, summary)
        made += _timeline(query, summary)
    return made


HEADS: tuple[str, ...] = (
    *("query", "target", "p50 ms", "p95 ms", "p99 ms", "paper's p99", "kB/s", "paper's kB/s"),
    *("waited for", "behind", "requests", "CPU %", "memory %"),
)
_TOLD = (
    *("query_p50_ms", "query_p95_ms", "query_p99_ms", "throughput_kb_s"),
    *("commit_on_path_ms", "commit_behind_ms", "store_requests", "cpu_percent", "memory_percent"),
)


def percentile_rows(summary: Mapping[str, Any]) -> list[list[str | float | None]]:
    """One row a query and target, in the order of ``HEADS``; the paper's own numbers where its text has them."""
    rows: list[list[str | float | None]] = []
    for query, recorded in _by_query(summary.get("query_series_ms"), _is_series).items():
        for target in recorded:
            ours = {name: _numbers(summary, name, query).get(target) for name in _TOLD}
            paper = _OF_THE_PAPER.get(target, "")
            beside = {
                "query_p99_ms": PAPER_P99_MS.get(query, {}).get(paper),
                "throughput_kb_s": PAPER_THROUGHPUT_KB_S.get(query, {}).get(paper),
            }
            row: list[str | float | None] = [query, target]
            for name in _TOLD:
                row += [ours[name], beside[name]] if name in beside else [ours[name]]
            rows.append(row)
    return rows


def _by_query(recorded: object, fits: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(recorded, Mapping):
        return {}
    found = {}
    for query, of in recorded.items():
        if isinstance(of, Mapping):
            found[str(query)] = {str(name): each for name, each in of.items() if fits(each)}
    return {query: of for query, of in found.items() if of}


def _is_series(each: object) -> bool:
    return isinstance(each, Sequence) and bool(each) and all(is_number(one) for one in each)


def _numbers(summary: Mapping[str, Any], name: str, query: str) -> dict[str, float]:
    return _by_query(summary.get(name), is_number).get(query, {})


def _series(query: str, recorded: Mapping[str, Sequence[float]]) -> Chart:
    traces = [_line(name, list(range(len(each))), list(each), "%{y:,.0f} ms") for name, each in recorded.items()]
    caption = "Processing and commit, as the engine sees it, batch after batch."
    return Chart(f"{query}: time of each batch", caption, _figure(traces, "batch", "ms"), wide=True)


def _cdf(query: str, recorded: Mapping[str, Sequence[float]]) -> Chart:
    traces = []
    for name, each in recorded.items():
        shares = [100 * (at + 1) / len(each) for at in range(len(each))]
        traces.append(_line(name, sorted(each), shares, "%{x:,.0f} ms") | {"line": _pen(name) | {"shape": "hv"}})
    return Chart(f"{query}: share of batches done within", "", _figure(traces, "ms", "%"))


def _percentiles(query: str, summary: Mapping[str, Any]) -> list[Chart]:
    of = {words: _numbers(summary, f"query_{words}_ms", query) for words in ("p50", "p95", "p99")}
    paper = PAPER_P99_MS.get(query, {})
    caption = "Milliseconds."
    if paper:
        said = ", ".join(f"{name} {ms:,}" for name, ms in paper.items())
        caption += f" The paper's p99 at 1,500 records a second, on its own cluster: {said}."
    return [Chart(f"{query}: percentiles", caption, _groups(of, "ms"))] if of["p99"] else []


def _throughput(query: str, summary: Mapping[str, Any]) -> list[Chart]:
    ours = _numbers(summary, "throughput_kb_s", query)
    if not ours:
        return []
    paper = PAPER_THROUGHPUT_KB_S.get(query, {})
    names = [*ours, *(f"paper: {name}" for name in paper)]
    trace = {
        "type": "bar",
        "x": [labelled(name) for name in names],
        "y": [*ours.values(), *paper.values()],
        "marker": {"color": [colour(name) for name in ours] + ["#cbd5e1"] * len(paper)},
        "hovertemplate": "%{y:,.0f} kB/s<extra></extra>",
    }
    figure = _figure([trace], "", "kB/s")
    figure["layout"] |= {"showlegend": False, "xaxis": {"type": "category", "automargin": True}}
    caption = "The mean over batches of a batch's bytes over its time, as the paper defines it. Grey: the paper's own."
    return [Chart(f"{query}: throughput", caption, figure)]


def _commits(query: str, summary: Mapping[str, Any]) -> list[Chart]:
    of = {
        "waited for": _numbers(summary, "commit_on_path_ms", query),
        "behind": _numbers(summary, "commit_behind_ms", query),
    }
    if not of["waited for"]:
        return []
    figure = _groups(of, "ms")
    figure["layout"]["barmode"] = "stack"
    caption = "Medians. What batches wait for, and what goes on behind them. Spark does not report what it does behind."
    return [Chart(f"{query}: the commit", caption, figure)]


def _timeline(query: str, summary: Mapping[str, Any]) -> list[Chart]:
    recorded = _by_query(summary.get("timelines"), lambda each: isinstance(each, Sequence)).get(query, {})
    return [
        _picture(query, name, steps)
        for name in _DRAWN
        if (steps := [step for step in recorded.get(name, ()) if _is_step(step)])
    ]


def _is_step(step: object) -> bool:
    return (
        isinstance(step, Sequence)
        and len(step) == 4
        and is_number(step[0])
        and isinstance(step[1], str)
        and all(is_number(each) for each in step[2:])
    )


def _picture(query: str, target: str, steps: Sequence[Any]) -> Chart:
    """A row for what each epoch does itself and one for its commit: what overlaps stands one above the other."""
    epochs = sorted({int(step[0]) for step in steps})
    rows = [label for epoch in epochs for label in (f"epoch {epoch}", f"its commit {epoch}")]
    names = sorted({step[1] for step in steps}, key=lambda name: (STEPS.index(name) if name in STEPS else 99, name))
    traces = []
    for at, name in enumerate(names):
        mine = [step for step in steps if step[1] == name]
        row = "its commit" if name in _BEHIND else "epoch"
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": html.escape(name),
                "y": [f"{row} {int(step[0])}" for step in mine],
                "base": [1e3 * step[2] for step in mine],
                "x": [max(0.0, 1e3 * (step[3] - step[2])) for step in mine],
                "marker": {"color": _STEP_COLOURS.get(name) or PARTS[at % len(PARTS)]},
                "hovertemplate": f"{html.escape(name)} %{{x:,.1f}} ms, from %{{base:,.0f}} ms<extra></extra>",
            }
        )
    figure = {
        "data": traces,
        "layout": {
            "height": 130 + _ROW_PX * len(rows),
            "barmode": "overlay",
            "bargap": 0.25,
            "xaxis": {"title": {"text": "ms"}, "rangemode": "tozero", "separatethousands": True},
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": rows,
                "autorange": "reversed",
                "automargin": True,
                "showgrid": False,
            },
        },
    }
    caption = (
        "Batches one right after the other. Below each epoch its commit: what overlaps stands one above the other. "
        "Between two epochs Spark commits the one and plans the next."
    )
    return Chart(f"{query}, {target}: epochs and their commits", caption, figure, wide=True)


def _beside(summary: Mapping[str, Any]) -> Chart:
    """Ours over Spark's RocksDB store beside the paper's over its own baseline."""
    traces = []
    for at, (what, paper) in enumerate(PAPER_RATIOS.items()):
        ours = summary.get(f"{what}_ratio")
        ours = (
            {str(name): value for name, value in ours.items() if is_number(value)} if isinstance(ours, Mapping) else {}
        )
        for who, of, shade in (
            (f"{what}, here", ours, PARTS[at]),
            (f"{what}, paper", paper, ("#cbd5e1", "#94a3b8")[at]),
        ):
            traces.append(
                {
                    "type": "bar",
                    "name": who,
                    "x": [html.escape(name) for name in of],
                    "y": list(of.values()),
                    "marker": {"color": shade},
                    "hovertemplate": f"{who} %{{y:.2f}}×<extra></extra>",
                }
            )
    figure = _figure(traces, "", "×")
    figure["layout"] |= {"barmode": "group", "xaxis": {"type": "category"}}
    caption = (
        "Spark's RocksDB store over the asynchronous commit. The paper's: MiSA and its baseline on another machine, a "
        "Spark of 2023; lr4's p99 is its best over any, cm1's p99 is over zStream at 2,500 records a second."
    )
    return Chart("Beside the paper", caption, figure, wide=True)


def _groups(of: Mapping[str, Mapping[str, float]], unit: str) -> dict[str, Any]:
    traces = [
        {
            "type": "bar",
            "name": words,
            "x": [labelled(name) for name in each],
            "y": list(each.values()),
            "marker": {"color": PARTS[at % len(PARTS)]},
            "hovertemplate": f"{words} %{{y:,.0f}} {unit}<extra></extra>",
        }
        for at, (words, each) in enumerate(of.items())
    ]
    figure = _figure(traces, "", unit)
    figure["layout"] |= {"barmode": "group", "xaxis": {"type": "category", "automargin": True}}
    return figure


def _line(name: str, x: list[Any], y: list[Any], shown: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(name),
        "x": x,
        "y": y,
        "line": _pen(name),
        "hovertemplate": shown,
    }


def _pen(name: str) -> dict[str, Any]:
    return {"color": colour(name), "width": 2, **({"dash": "dot"} if name == "async-free-store" else {})}


def _figure(traces: list[dict[str, Any]], x: str, y: str) -> dict[str, Any]:
    return {
        "data": traces,
        "layout": {
            "height": _HEIGHT_PX,
            "xaxis": {"title": {"text": x}, "automargin": True, "separatethousands": True},
            "yaxis": {"title": {"text": y}, "rangemode": "tozero", "automargin": True, "separatethousands": True},
        },
    }
