"""``tailrace report``: run records as one HTML page that holds all it needs, plotly too, and fetches nothing.

Every text from a record is escaped: a record may come from anywhere. The page appears whole or not at all.
"""

from __future__ import annotations

import html
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from tailrace.errors import TailraceError
from tailrace.lab.records.record import Record
from tailrace.lab.report.charts import charts, number
from tailrace.lab.report.commit import HEADS, percentile_rows
from tailrace.lab.report.espbench import HEADS as STREAM_HEADS
from tailrace.lab.report.espbench import espbench_rows
from tailrace.lab.report.figures import Chart, colour
from tailrace.lab.report.panels import Panel, RatioNumbers, panels
from tailrace.lab.report.prefetch import HEADS as PREFETCH_HEADS
from tailrace.lab.report.prefetch import prefetch_rows

_PAGE = Path(__file__).with_name("page.html")


def write_report(records: Sequence[Record], problems: Sequence[str], path: Path) -> None:
    if not records:
        raise TailraceError("there are no run records to report: run `tailrace bench rmw` or `tailrace run` first")
    text = page(records, problems)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.making")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            hidden.write_text(text, encoding="utf-8")
            os.replace(hidden, path)
        finally:
            hidden.unlink(missing_ok=True)
    except OSError as error:
        raise TailraceError(
            f"the report cannot be written to {path}: {error.strerror or error}; give another --out"
        ) from error


def page(records: Sequence[Record], problems: Sequence[str] = ()) -> str:
    figures: dict[str, Any] = {}
    body = [_head(records), *(_warning(f"Left out: {problem}") for problem in problems)]
    for at, panel in enumerate(panels(records)):
        body.append(_panel(panel, f"panel-{at}", figures))
    body.append(_runs(records))
    parts = {
        "BODY": "\n".join(body),
        "FIGURES": json.dumps(figures, separators=(",", ":")).replace("<", "\\u003c"),
        "PLOTLY": get_plotlyjs(),
    }
    text = _PAGE.read_text(encoding="utf-8")
    # From the last to the first: what is put in is never searched.
    for name in ("PLOTLY", "FIGURES", "BODY"):
        before, mark, after = text.rpartition(f"<!--{name}-->")
        assert mark, name
        text = before + parts[name] + after
    return text


def _head(records: Sequence[Record]) -> str:
    first, last = _time(records[0].started), _time(records[-1].started)
    when = first if first == last else f"{first} to {last}"
    return f"<header><h1>Tailrace lab report</h1><p class=dim>{_count(len(records), 'run')}, {when} UTC</p></header>"


def _panel(panel: Panel, name: str, figures: dict[str, Any]) -> str:
    parts = [
        f'<section class=card id="{name}">',
        f"<div class=title><h2>{_safe(panel.name)}</h2>"
        f"<span class=kind>{_safe(panel.kind)}</span><span class=dim>{_time(panel.newest.started)} UTC</span></div>",
        f"<p>{_safe(panel.description)}</p>",
        "<ul class=chips>",
        *(f"<li>{_safe(key)} <b>{_safe(_shown(value))}</b></li>" for key, value in panel.parameters.items()),
        "</ul>",
    ]
    if panel.noisy:
        busy = ", ".join(panel.noisy)
        parts.append(_warning(f"The machine was busy: the times of {busy} vary by more than a quarter. Run it again."))
    if panel.kind == "run" and len(panel.engines) > 1:
        parts.append(
            "<p class=caption>Each engine ran by itself, at a time of its own: benches compare more fairly.</p>"
        )
    if panel.ratios:
        parts += ["<div class=tiles>", *(_tile(ratio) for ratio in panel.ratios), "</div>"]
    parts.append("<div class=charts>")
    for at, chart in enumerate(charts(panel)):
        figures[f"{name}-{at}"] = chart.figure
        parts.append(_figure(chart, f"{name}-{at}"))
    parts += [
        "</div>",
        _commits(panel),
        _prefetch(panel),
        _streams(panel),
        _numbers(panel),
        _facts(panel),
        "</section>",
    ]
    return "\n".join(parts)


def _tile(ratio: RatioNumbers) -> str:
    span = ratio.span
    spread = "" if span.low is None or span.high is None else f"<span>{span.low:.2f} to {span.high:.2f}</span>"
    kind = "tile" if ratio.more_is_better else "tile floor"
    return f'<div class="{kind}"><b>{span.value:.2f}×</b><span>{_safe(ratio.words)}</span>{spread}</div>'


def _figure(chart: Chart, name: str) -> str:
    # Its height is kept free before it is drawn, so that the page does not jump.
    return (
        f"<figure{' class=wide' if chart.wide else ''}><h3>{_safe(chart.title)}</h3>"
        f"<figcaption class=caption>{_safe(chart.caption)}</figcaption>"
        f'<div id="{name}" style="height:{chart.figure["layout"]["height"]}px"></div></figure>'
    )


def _numbers(panel: Panel) -> str:
    rows = [
        [
            f'<span class=dot style="background:{colour(one.engine)}"></span>{_safe(one.engine)}',
            number(one.median.value),
            "" if one.p99 is None else number(one.p99),
            "" if one.spread is None else f"{one.spread:.0%}",
            "" if one.rows_per_s is None else f"{one.rows_per_s:,.0f}",
            str(len(one.series.get("ms", []))),
            _answer(one.record) if one.exact else "none: a floor",
        ]
        for one in panel.engines
    ]
    if not rows:
        return ""
    return _table(["engine", "median ms", "p99 ms", "spread", "rows/s", "epochs", "answer"], rows, numeric=range(1, 6))


def _commits(panel: Panel) -> str:
    """The percentiles of ``bench commit``, query by query, the paper's beside them."""
    return _percentiles(HEADS, percentile_rows(panel.newest.summary))


def _prefetch(panel: Panel) -> str:
    """The percentiles of ``bench prefetch``, workload by workload."""
    return _percentiles(PREFETCH_HEADS, prefetch_rows(panel.newest.summary))


def _streams(panel: Panel) -> str:
    """ESPBench's runs, query by query, the published ones beside them."""
    return _percentiles(STREAM_HEADS, espbench_rows(panel.newest.summary))


def _percentiles(heads: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    cells = [
        ["" if cell is None else number(cell) if isinstance(cell, float | int) else _one_line(cell) for cell in row]
        for row in rows
    ]
    return _table(list(heads), cells, numeric=range(2, len(heads))) if rows else ""


def _one_line(text: str) -> str:
    return f"<span style='white-space:nowrap'>{_safe(text)}</span>"


def _answer(record: Record) -> str:
    return "<span class=good>checked</span>" if record.summary.get("answers_equal") is True else "not checked"


def _facts(panel: Panel) -> str:
    """Machine, versions and confs. What the engines of a panel share is shown once."""
    records = {record.id: record for record in [one.record for one in panel.engines] or [panel.newest]}.values()
    rows: dict[tuple[str, str], list[str]] = {}
    for record in records:
        for name, value in (*record.machine.items(), *record.versions.items()):
            rows.setdefault((name, _shown(value)), []).extend(record.engines)
        for engine, confs in record.confs.items():
            for name, value in confs.items():
                rows.setdefault((name, value), []).append(engine)
    everybody = {one.engine for one in panel.engines}
    cells = [
        [_safe(name), _safe(value), "" if set(engines) >= everybody else _safe(", ".join(dict.fromkeys(engines)))]
        for (name, value), engines in rows.items()
    ]
    return f"<details><summary>Machine, versions and confs</summary>{_table(['', '', 'only'], cells)}</details>"


def _runs(records: Sequence[Record]) -> str:
    rows = []
    for record in reversed(records):
        ratios = record.summary.get("ratios")
        ratios = ratios if isinstance(ratios, dict) else {}
        said = ", ".join(f"{_safe(name)} {_safe(_shown(value))}" for name, value in ratios.items())
        medians = record.summary.get("median_ms") or record.summary.get("p50_ms") or {}
        if not said and isinstance(medians, dict):
            said = ", ".join(f"{number(value)} ms" for value in medians.values() if isinstance(value, int | float))
        rows.append(
            [
                f"<span style='white-space:nowrap'>{_time(record.started)}</span>",
                f"{_safe(record.name)} <span class=kind>{_safe(record.kind)}</span>",
                _safe(", ".join(record.engines)),
                said,
                _answer(record),
                f"{max(0.0, record.ended_s - record.started_s):,.0f}",
                _safe(_shown(record.machine.get("load_1m", ""))),
                f"<code>{_safe(record.id)}</code>",
            ]
        )
    heads = ["started (UTC)", "name", "engines", "result", "answer", "seconds", "load before", "id"]
    return f"<section class=card id=runs><h2>All runs</h2>{_table(heads, rows, numeric=(5, 6))}</section>"


def _table(heads: list[str], rows: Iterable[list[str]], numeric: Iterable[int] = ()) -> str:
    """``rows`` are HTML already."""
    right = set(numeric)
    mark = [" class=n" if at in right else "" for at in range(len(heads))]
    head = "".join(f"<th{mark[at]}>{_safe(text)}</th>" for at, text in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{mark[at]}>{cell}</td>" for at, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _warning(text: str) -> str:
    return f"<p class=warn>{_safe(text)}</p>"


def _time(text: str) -> str:
    return _safe(text[:16].replace("T", " "))


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _safe(text: object) -> str:
    return html.escape(str(text))
