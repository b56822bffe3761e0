"""A folder of results as a record and a page: what was measured, and what was published beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tailrace.errors import TailraceError
from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.results.files import ResultFolder
from tailrace.lab.espbench.results.summary import POINTS, record_of
from tailrace.lab.espbench.results.utilisation import Sample
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.run.recovery import Kill
from tailrace.lab.espbench.sender.process import Sent
from tailrace.lab.espbench.sender.senders import StreamSent
from tailrace.lab.espbench.validator.compare import Pairs, Verdict
from tailrace.lab.records.record import read, write
from tailrace.lab.report.espbench import HEADS, espbench_charts, espbench_rows
from tailrace.lab.report.page import page

START_MS = 1_700_000_000_000


def outcome(system: str, run: int, latency_ms: int, count: int = 40, kills: tuple[Kill, ...] = ()) -> Outcome:
    latencies = [latency_ms + number % 5 for number in range(count)]
    caused = (START_MS + np.arange(count) * 100).tolist()
    late = {"p50": 0.1, "p90": 0.2, "p99": 0.3, "max": 0.4}
    used = [Sample(START_MS / 1e3 + number, "system", 1.5, 5_000_000, 0, 0) for number in range(5)]
    streams = [StreamSent(1, (Sent(count, count, 0, "", 4.0, late, {}),))]
    verdict = Verdict(0, 0, 0, 0, 0, dict(enumerate(latencies)))
    pairs = Pairs(expected=count, actual=count, latencies_ms=latencies)
    seen = [each + 300.0 for each in latencies]
    of_run = (system, "q3", 1_000, run, count, pairs, verdict, latencies, caused, seen, streams, 0.1, 0.2, used)
    return Outcome(*of_run, kills=kills)


@pytest.fixture
def results(tmp_path: Path) -> ResultFolder:
    kept = ResultFolder(tmp_path / "results")
    kept.add(outcome("tailrace", 1, 400), Config())
    kept.add(outcome("tailrace", 2, 200), Config())
    kept.add(outcome("<b>flink", 3, 5, count=4 * POINTS), Config())
    kept.add(outcome("tailrace", 4, 900, kills=(Kill(START_MS / 1e3 + 2, 1.5, 3.0),)), Config())
    kept.add_capacity({"query": "q2", "system": "tailrace", "rate": 9_000, "at_least": False, "trials": []})
    kept.add_capacity({"query": "q2", "system": "tailrace", "rate": 12_000, "at_least": False, "trials": []})
    return kept


def test_a_record_outlives_its_file_and_has_the_newest_course_of_each(results: ResultFolder, tmp_path: Path) -> None:
    record = record_of(results, "ESB")
    assert read(write(record, tmp_path / "records")).summary == record.summary
    found = record.summary["espbench"]
    assert [(each["system"], each["run"], each["kills_s"]) for each in found["courses"]] == [
        ("tailrace", 2, []),
        ("<b>flink", 3, []),
        ("tailrace", 4, [2.0]),
    ]
    course = found["courses"][1]
    assert course["step"] == 4 and len(course["at_s"]) == len(course["latency_ms"]) == POINTS
    assert course["cores"] == [1.5] * 5 and course["memory_mb"] == [5] * 5
    assert [each["rate"] for each in found["capacities"]] == [12_000]


def test_rows_have_the_published_ones_behind_ours(results: ResultFolder) -> None:
    rows = [dict(zip(HEADS, row, strict=True)) for row in espbench_rows(record_of(results, "ESB").summary)]
    assert [row["system"] for row in rows] == [
        *("tailrace", "tailrace, killed", "<b>flink"),
        *("Flink, published", "Jet, published", "Spark, published"),
    ]
    assert rows[0]["runs"] == 2 and rows[0]["p50 ms"] == 302 and rows[0]["seen p50 ms"] == 602
    assert rows[3]["p90 ms"] == 11 and rows[3]["p50 ms"] == 3


def test_the_page_draws_them_and_runs_nothing_of_them(results: ResultFolder) -> None:
    record = record_of(results, "ESB")
    charts = espbench_charts(record.summary)
    titles = [chart.title for chart in charts]
    assert titles[:2] == ["90th percentile of latency, 1,000 messages a second", "Capacity"]
    assert titles[2:] == ["q3 at 1,000/s: single latencies", "q3 at 1,000/s: processor time of the system"]
    names = [trace["name"] for trace in charts[0].figure["data"]]
    assert names == ["tailrace", "&lt;b&gt;flink", "Flink, published", "Jet, published", "Spark, published"]
    text = page([record])
    assert "<b>flink" not in text and "seen p50 ms" in text


@pytest.mark.parametrize("broken", [{}, [], {"runs": 7, "courses": [3], "capacities": None}, {"runs": [{"rate": "x"}]}])
def test_what_is_no_result_is_left_out(broken: object) -> None:
    summary = json.loads(json.dumps({"espbench": broken}))
    assert espbench_charts(summary) == [] and espbench_rows(summary) == []


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match="has no runs"):
        record_of(ResultFolder(tmp_path), "ESB")
