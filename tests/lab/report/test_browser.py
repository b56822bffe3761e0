"""The report in a real browser, at the width of a desk and of a phone: quiet, without network, with the right numbers.

The browser is found, or fetched once, by ``scripts/chromium.sh``; where it cannot start, these tests fail.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from support.lab.records import bench_record, gadget_record, run_record
from tailrace.lab.gadget.traces.trace import Events, Trace
from tailrace.lab.records.record import Record
from tailrace.lab.report.page import write_report

SCRIPT = Path(__file__).parents[3] / "scripts" / "chromium.sh"
WIDTHS = {"desktop": 1280, "phone": 360}
EVIL = '</script><img src="https://example.org/x.png" onerror="window.hurt = 1">'

BENCH_OLD, BENCH = bench_record(1_000, speedup=2.0), bench_record(2_000, speedup=3.0)
OURS = run_record(3_000, "tailrace", [9_000, 9_000, 10, 20, 30])
PEER = run_record(4_000, "spark-rocksdb", [9_000, 9_000, 100, 250, 300], state_rows=None)
_KEYS = np.repeat(np.arange(40), 6)
TRACES = {
    name: Trace(
        np.tile(np.array(operations, np.uint8), 240 // len(operations)),
        _KEYS % keys,
        np.where(np.tile(np.isin(operations, [1, 2]), 240 // len(operations)), 10, 0).astype(np.int32),
        np.arange(240),
        Events(_KEYS[::6], _KEYS[::6]),
    )
    for name, operations, keys in (("a-window", [0, 1, 0, 1, 0, 3], 40), (EVIL, [2, 2, 2, 2, 0, 3], 9))
}
STORES = {"tumbling": {"tailrace": 5e6, "rocksdb": 2e5}, EVIL: {"tailrace": 4e6, EVIL: 1e4}}
GADGET = gadget_record(1_500, TRACES, batch=STORES)
RECORDS = [BENCH_OLD, GADGET, BENCH, OURS, PEER]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = subprocess.run(
        ["bash", str(SCRIPT), f"{sys.prefix}/chromium", sys.executable], stdout=subprocess.PIPE, text=True, check=False
    )
    if found.returncode:
        pytest.fail("no browser to open the report in: see what scripts/chromium.sh says above")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found.stdout.strip())
        yield browser
        browser.close()


@dataclass
class Seen:
    """A page after it was drawn, and what the browser had to say meanwhile."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def chart(self, section: str, title: str) -> Any:
        """A chart's figure as plotly holds it."""
        found = self.page.evaluate(
            """([section, title]) => {
                for (const figure of document.querySelectorAll("section figure")) {
                    const heading = figure.closest("section").querySelector("h2").textContent;
                    if (heading === section && figure.querySelector("h3").textContent === title) {
                        const plot = figure.querySelector(".js-plotly-plot");
                        return JSON.parse(JSON.stringify({data: plot.data, layout: plot.layout}));
                    }
                }
            }""",
            [section, title],
        )
        assert found is not None, f"no chart {title!r} in {section!r}"
        return found


def open_report(browser: Browser, path: Path, records: list[Record], width: int, scheme: str = "light") -> Seen:
    write_report(records, [], path)
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    seen = Seen(page)
    page.on("console", lambda message: seen.console.append(message.text))
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-drawn]", timeout=60_000)
    return seen


@pytest.fixture(scope="module", params=list(WIDTHS))
def seen(request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    path = tmp_path_factory.mktemp("report") / "report.html"
    seen = open_report(browser, path, RECORDS, WIDTHS[request.param])
    yield seen
    seen.page.close()


def test_it_is_quiet_and_asks_for_nothing(seen: Seen) -> None:
    assert seen.console == []
    assert seen.requests == [seen.page.url]


def test_ratios_with_their_spread(seen: Seen) -> None:
    bar = seen.chart("rmw", "Ratios of Tailrace")["data"][0]
    ratios = BENCH.summary["ratios"]
    assert bar["x"] == [ratios["speedup_rocksdb"], ratios["over_shuffle_floor"]]
    ours, peer = (np.array(BENCH.series[name]["ms"], float) for name in ("tailrace", "spark-rocksdb"))
    low, high = np.percentile(peer / ours, [25, 75])
    assert bar["error_x"]["array"][0] == pytest.approx(max(0, high - bar["x"][0]))
    assert bar["error_x"]["arrayminus"][0] == pytest.approx(max(0, bar["x"][0] - low))
    drawn = seen.page.locator("#panel-0-0 .annotation-text").all_text_contents()
    assert drawn == [f"{value:.2f}×" for value in bar["x"]]
    tiles = seen.page.locator("#panel-0 .tile b").all_inner_texts()
    assert tiles == drawn


def test_medians_of_a_bench(seen: Seen) -> None:
    bar = seen.chart("rmw", "Time of an epoch")["data"][0]
    engines = ["tailrace", "spark-rocksdb", "shuffle-floor"]
    assert [label.split("<br>")[0] for label in bar["y"]] == engines
    assert bar["x"] == [BENCH.summary["median_ms"][name] for name in engines]


def test_series_overlay_the_engines(seen: Seen) -> None:
    lines = {line["name"]: line["y"] for line in seen.chart("rmw", "Time of each epoch")["data"]}
    assert lines == {name: metrics["ms"] for name, metrics in BENCH.series.items()}
    runs = {line["name"]: (line["x"], line["y"]) for line in seen.chart("bids-window", "Time of each epoch")["data"]}
    assert runs == {"tailrace": ([2, 3, 4], [10, 20, 30]), "spark-rocksdb": ([2, 3, 4], [100, 250, 300])}


def test_history_and_parts(seen: Seen) -> None:
    history = seen.chart("rmw", "Ratios over time")["data"][0]
    assert history["y"] == [one.summary["ratios"]["speedup_rocksdb"] for one in (BENCH_OLD, BENCH)]
    own = seen.chart("rmw", "Inside Tailrace")["data"][0]
    assert dict(zip(own["y"], own["x"])) == {"ingest": 60.0, "apply": 15.5}


def test_medians_and_tails_of_runs(seen: Seen) -> None:
    bar, tail = seen.chart("bids-window", "Time of an epoch")["data"]
    assert bar["x"] == [20, 250]
    assert tail["x"] == [record.summary["p99_ms"][record.engines[0]] for record in (OURS, PEER)]


def test_traces_as_the_paper_draws_them(seen: Seen) -> None:
    reported = GADGET.summary["traces"]

    def lines(title: str) -> list[Any]:
        return seen.chart("gadget-analyze", title)["data"]

    for bar in lines("Composition"):
        assert bar["x"] == [each["composition"][bar["name"]] for each in reported.values() if bar["x"]]
    assert [bar["name"] for bar in lines("Amplification")] == ["accesses an event", "state keys an event key"]
    means = lines("Mean stack distance")
    assert [bar["x"] for bar in means] == [
        [each[which]["mean_stack_distance"] for each in reported.values()] for which in ("trace", "shuffled")
    ]
    drawn = lines("Unique sequences")
    assert [line["y"] for line in drawn] == [
        each[which]["unique_sequences"] for each in reported.values() for which in ("trace", "shuffled")
    ]
    assert [line["line"]["dash"] for line in drawn] == ["solid", "dot"] * 2
    assert all(line["y"][-1] == 1 for line in lines("Stack distances"))
    dots = lines("Throughput of stores, batch mode")
    assert [dot["x"] for dot in dots] == [[5e6, 4e6], [2e5], [1e4]] and dots[0]["y"][0] == "tumbling"
    assert lines("Working set")[0]["y"] == reported["a-window"]["trace"]["working_set"]
    assert lines("Time to live")[0]["y"] == list(reported["a-window"]["trace"]["time_to_live"].values())
    assert lines("Miss ratio by cache size")[0]["y"] == [ratio for _, ratio in reported["a-window"]["miss_ratios"]]
    assert lines("Kolmogorov-Smirnov distance from the input")[0]["x"] == [
        each["ks_distance"] for each in reported.values()
    ]


def test_every_chart_is_drawn_where_it_can_be_read(seen: Seen) -> None:
    page = seen.page
    plots = page.locator(".js-plotly-plot")
    assert plots.count() == int(page.locator("body").get_attribute("data-drawn") or 0) == page.locator("figure").count()
    width = page.viewport_size["width"] if page.viewport_size else 0
    for at in range(plots.count()):
        box = plots.nth(at).locator("svg.main-svg").first.bounding_box()
        outer = plots.nth(at).bounding_box()
        assert box is not None and outer is not None
        assert box["width"] > min(280, width * 0.7) and box["height"] > 100
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        assert box["height"] <= outer["height"] + 1  # it does not run into what follows
        assert plots.nth(at).locator(".bars path, .scatterlayer path").count() > 0
    # Wide tables scroll inside themselves; the page itself never does.
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_runs_machine_and_versions_are_reported(seen: Seen) -> None:
    rows = seen.page.locator("#runs tbody tr").all_inner_texts()
    assert len(rows) == len(RECORDS)
    assert PEER.id in rows[0] and BENCH_OLD.id in rows[-1]  # the newest first
    facts = seen.page.locator("#panel-0 details")
    facts.locator("summary").click()
    words = facts.inner_text()
    for word in ("cores", "pyspark", "4.0", "spark.sql.shuffle.partitions"):
        assert word in words
    facts.locator("summary").click()


def _lightness(page: Page, selector: str, property_name: str) -> float:
    found = page.evaluate(
        "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]", [selector, property_name]
    )
    return float(np.mean([float(part) for part in found.strip("rgba()").split(",")[:3]]))


def test_it_follows_the_readers_light(browser: Browser, tmp_path: Path) -> None:
    seen = open_report(browser, tmp_path / "report.html", [OURS], WIDTHS["desktop"], "dark")
    page = seen.page
    for scheme in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_function("scheme => matchMedia(`(prefers-color-scheme: ${scheme})`).matches", arg=scheme)
        page.wait_for_timeout(200)  # the charts are drawn again
        paper, text = _lightness(page, "body", "backgroundColor"), _lightness(page, "body", "color")
        ticks = _lightness(page, "#panel-0-0 .xtick text", "fill")
        assert (paper < text) == (paper < ticks) == (scheme == "dark")
        assert abs(paper - ticks) > 120
    assert seen.console == []
    page.close()


def test_a_hostile_record_is_only_text(browser: Browser, tmp_path: Path) -> None:
    odd = replace(BENCH, name=EVIL, parameters={EVIL: EVIL}, versions={EVIL: EVIL}, series={EVIL: {"ms": [1, 2, 3]}})
    seen = open_report(browser, tmp_path / "report.html", [odd], WIDTHS["desktop"])
    assert seen.console == [] and seen.requests == [seen.page.url]
    assert seen.page.evaluate("window.hurt === undefined && document.images.length === 0")
    assert EVIL in seen.page.inner_text("#panel-0 h2")
    seen.page.close()
