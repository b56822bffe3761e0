"""What a report says of records: which are laid side by side, with which numbers; and that nothing in one can hurt."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.lab.records import bench_record, run_record
from tailrace.cli import app
from tailrace.errors import TailraceError
from tailrace.lab.records import record
from tailrace.lab.report.charts import charts, number
from tailrace.lab.report.page import page, write_report
from tailrace.lab.report.panels import panels


def test_a_bench_shows_its_newest_record_and_the_rest_as_history() -> None:
    old, new = bench_record(1_000, speedup=2.0), bench_record(2_000, speedup=3.0)
    (panel,) = panels([new, old])
    assert panel.newest == new and panel.history == (old, new)
    assert [one.engine for one in panel.engines] == ["tailrace", "spark-rocksdb", "shuffle-floor"]
    assert all(one.record == new for one in panel.engines)
    assert [one.exact for one in panel.engines] == [True, True, False]
    assert {ratio.name: ratio.span.value for ratio in panel.ratios} == new.summary["ratios"]


def test_what_differs_is_not_laid_side_by_side() -> None:
    plain = bench_record(1_000)
    others = [
        replace(plain, parameters={**plain.parameters, "rows": 7}),
        replace(plain, machine={**plain.machine, "cores": 99}),
        replace(plain, name="overhead"),
        replace(plain, kind="run", parameters={**plain.parameters, "engine": "tailrace"}),
    ]
    assert len(panels([plain, *others])) == 5
    assert len(panels([plain, replace(plain, id="2", machine={**plain.machine, "load_1m": 99.0})])) == 1


def test_a_workload_lays_the_newest_run_of_each_engine_side_by_side() -> None:
    first = run_record(1_000, "tailrace", [9_000, 9_000, 50, 60, 70])
    again = run_record(3_000, "tailrace", [9_000, 9_000, 10, 20, 30])
    peer = run_record(2_000, "spark-rocksdb", [9_000, 9_000, 100, 200, 300], state_rows=None)
    (panel,) = panels([first, again, peer])
    assert [(one.engine, one.record) for one in panel.engines] == [("tailrace", again), ("spark-rocksdb", peer)]
    # The start-up epochs are left out, of the lines too.
    assert panel.engines[0].series["ms"] == [10, 20, 30] and panel.engines[0].first_epoch == 2
    made = {chart.title: chart.figure for chart in charts(panel)}
    assert [line["x"] for line in made["Time of each epoch"]["data"]] == [[2, 3, 4]] * 2
    assert [line["name"] for line in made["State rows after each epoch"]["data"]] == ["tailrace"]


def test_spreads_are_quartiles_epoch_by_epoch() -> None:
    one = bench_record(1_000)
    (panel,) = panels([one])
    ours, peer = (np.array(one.series[name]["ms"], float) for name in ("tailrace", "spark-rocksdb"))
    ratio = panel.ratios[0].span
    assert (ratio.low, ratio.high) == tuple(np.percentile(peer / ours, [25, 75]))
    median = panel.engines[0].median
    assert median.value == one.summary["median_ms"]["tailrace"]
    assert (median.low, median.high) == tuple(np.percentile(ours, [25, 75]))


def test_a_busy_machine_is_said() -> None:
    one = bench_record(1_000)
    assert "busy" not in page([one])
    busy = replace(one, summary={**one.summary, "spread": {"tailrace": 0.3}})
    assert "The machine was busy: the times of tailrace vary" in page([busy])


@pytest.mark.parametrize(
    "records",
    [
        [bench_record(1_000), bench_record(2_000)],
        [run_record(1_000, "tailrace", [5, 5, 1, 2, 3])],
        [run_record(1_000, "spark-memory", [5], state_rows=None)],
    ],
)
def test_plotly_knows_every_word_of_the_figures(records: list[record.Record]) -> None:
    for panel in panels(records):
        for chart in charts(panel):
            go.Figure(chart.figure)  # raises for a property that does not exist, and for wrong values


text = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["</script><b>", "<!--BODY-->", "<!--PLOTLY-->", "<img src=x onerror=alert(1)>", "${x}", '"', "&lt;"]
)
numbers = st.floats(-1e12, 1e12) | st.integers(-(10**12), 10**12)
anything = st.recursive(
    numbers | text | st.none() | st.booleans(), lambda inner: st.dictionaries(text, inner, max_size=3)
)


class Elements(HTMLParser):
    """The names of all elements and attributes, outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, fingerprint: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {fingerprint, *(name for name, _ in attrs)}


def elements(html: str) -> set[str]:
    parser = Elements()
    parser.feed(html)
    return parser.names


@settings(max_examples=30)
@given(text, st.dictionaries(text, anything, max_size=4), st.dictionaries(text, text, max_size=3), st.data())
def test_no_word_of_a_record_becomes_markup(
    name: str, some: dict[str, Any], versions: dict[str, str], data: Any
) -> None:
    plain = bench_record(1_000)
    odd = replace(
        plain,
        kind=data.draw(st.sampled_from(record.KINDS)),
        name=name,
        parameters=some,
        summary={**data.draw(st.sampled_from([{}, plain.summary])), **some, "median_ms": some, "ratios": some},
        versions=versions,
        series={name: {"ms": [1, None, 2]}, "tailrace": {}},
        confs={name: versions},
    )
    made = page([odd, plain], [name])
    assert elements(made) <= elements(page([plain, run_record(1, "tailrace", [1, 2, 3, 4])], ["x"]))
    embedded = re.search(r'<script type="application/json" id="figures">(.*?)</script>', made, re.DOTALL)
    assert embedded is not None
    json.loads(embedded[1])


def test_the_page_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    write_report([bench_record(1_000)], [], out)
    assert [entry.name for entry in out.parent.iterdir()] == ["report.html"]
    before = out.read_text()
    write_report([bench_record(1_000), bench_record(2_000)], [], out)
    assert out.read_text() != before
    with pytest.raises(TailraceError, match="cannot be written to"):
        write_report([bench_record(1_000)], [], tmp_path / "new" / "report.html" / "x.html")
    with pytest.raises(TailraceError, match="no run records"):
        write_report([], [], out)


def test_the_command_reports_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "records"
    record.write(bench_record(1_000), kept)
    (kept / "broken.json").write_text("{")
    monkeypatch.setenv(record.VARIABLE, str(kept))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", "--out", "r.html"])
    assert done.exit_code == 0, done.output
    assert "r.html: 1 run" in done.stdout
    assert "broken.json" in done.stderr.replace("\n", "")
    assert "broken.json" in (tmp_path / "r.html").read_text()
    done = CliRunner().invoke(app, ["report", "nowhere"])
    assert isinstance(done.exception, TailraceError) and "there is no nowhere" in str(done.exception)


def test_without_plotly_the_command_says_what_to_install(tmp_path: Path) -> None:
    record.write(bench_record(1_000), tmp_path)
    hidden = "import sys; sys.modules['plotly'] = None; from tailrace.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "report", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install 'tailrace[lab]'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.56, "1,235"), (12.345, "12.3"), (0.01234, "0.0123"), (7.0, "7"), (0.0, "0")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
