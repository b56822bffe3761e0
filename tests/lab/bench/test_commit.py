"""``bench commit``: what needs no engine, and one small run of it against a slow folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lab import catalog
from tailrace.lab.bench.commit.bench import QUERIES, Stream, values_of, with_targets
from tailrace.lab.bench.commit.buffering import BatchTimes, Buffering
from tailrace.lab.bench.commit.numbers import Measured, result, throughput_kb_s
from tailrace.lab.bench.commit.timeline import steps_of
from tailrace.lab.bench.options import CommitOptions
from tailrace.lab.records import record
from tailrace.lab.records.bench_record import end_bench
from tailrace.lab.records.record import Recording
from tailrace.lab.registry import ParameterError, UnknownNameError
from tailrace.lab.report.commit import HEADS, commit_charts, percentile_rows
from tailrace.lab.report.page import page
from tailrace.lab.report.panels import panels

catalog.load()
RATE = 1_000


def rows(first: int, until: int) -> int:
    return (until - first) * RATE


# Buffering -----------------------------------------------------------------------------------------------------------


def follow(policy: Buffering, time_s: Any, batches: int) -> list[tuple[int, int]]:
    taken = []
    for _ in range(batches):
        first, until = policy.next_batch()
        policy.done(rows(first, until), time_s(rows(first, until)))
        taken.append((first, until))
    return taken


def test_a_light_query_is_given_as_much_as_arrives_within_the_deadline() -> None:
    taken = follow(Buffering(3.0, rows), lambda n: 0.2 + n * 1e-5, 10)
    assert [until - first for first, until in taken] == [3] * 10


def test_a_heavy_query_is_given_what_it_can_do_within_the_deadline() -> None:
    policy = Buffering(3.0, rows)
    taken = follow(policy, lambda n: n * 0.0015, 60)  # two seconds of traffic take three
    assert [until - first for first, until in taken[-20:]] == [2] * 20
    assert policy.backlog_s > 30


def test_after_a_slow_while_the_backlog_is_worked_off_in_larger_batches() -> None:
    policy = Buffering(3.0, rows)
    follow(policy, lambda n: 12.0, 3)
    assert policy.backlog_s > 10
    sizes = [until - first for first, until in follow(policy, lambda n: 0.1 + n * 1e-4, 60)]
    assert max(sizes) > 3 and policy.backlog_s < 3


def test_what_was_measured_before_can_be_forgotten() -> None:
    policy = Buffering(3.0, rows)
    follow(policy, lambda n: 20.0, 5)
    policy.forget()
    assert policy.backlog_s == 0
    assert [until - first for first, until in follow(policy, lambda n: 0.2, 5)] == [3] * 5


@given(st.floats(0.1, 5), st.floats(0, 4), st.floats(0, 0.003), st.integers(1, 40))
def test_every_second_of_traffic_is_taken_once(deadline: float, price: float, a_row: float, batches: int) -> None:
    taken = follow(Buffering(deadline, rows), lambda n: price + a_row * n, batches)
    assert taken[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(taken))
    assert all(until > first for first, until in taken)


def test_a_batch_time_is_expected_on_the_line_through_the_others() -> None:
    times = BatchTimes()
    assert times.expected_s(1_000_000) == 0
    times.add(1_000, 2.0)
    assert times.expected_s(5_000) == 10.0
    times.add(3_000, 4.0)
    assert times.expected_s(5_000) == pytest.approx(6.0, rel=0.01)
    falling = BatchTimes()
    falling.add(1_000, 4.0)
    falling.add(3_000, 2.0)
    assert falling.expected_s(100_000) == pytest.approx(3.0)


# Numbers and pages ---------------------------------------------------------------------------------------------------


def batch(ms: float, own: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "ms": ms,
        "trigger_ms": ms + 5,
        "rows": 4_500,
        "durations_ms": {"triggerExecution": ms + 5, "walCommit": 10, "commitOffsets": 20},
        "state_commit_ms": 100.0,
        "own_ms": own or {},
        "began_s": more.get("began_s", 0.0),
    }


def measured() -> Measured:
    ours = {"commit": 30.0, "asyncCommit": 230.0}
    batches = {
        "spark-rocksdb": [batch(1_000 + at, began_s=6.0 * at) for at in range(100)],
        "sync": [batch(400, {"commit": 250.0, "asyncCommit": 240.0}) for _ in range(100)],
        "async": [batch(100 + at % 2, ours) for at in range(100)],
        "async-free-store": [batch(100, ours) for _ in range(100)],
    }
    steps = [[4, "ingest", 0.0, 0.1], [4, "upload", 0.1, 0.3], [5, "ingest", 0.15, 0.2], [5, "gate", 0.2, 0.3]]
    return Measured(batches, 60.0, {"async": 6.0}, {"async": 2**30}, {"async": steps}, 12, {})


def test_the_numbers_of_a_run() -> None:
    found = result({"lr4": measured()})
    assert found["p99_ratio"]["lr4"] == pytest.approx(1_098 / 101, rel=0.001)
    assert found["p99_over_free_store"] == {"lr4": 1.01}
    assert found["p99_ratio_without_logs"]["lr4"] == pytest.approx(1_068 / 71, rel=0.001)
    assert found["p99_ratio_with_source"]["lr4"] == pytest.approx(1_103 / 106, rel=0.001)
    assert found["commit_on_path_ms"]["lr4"] == {
        "spark-rocksdb": 130.0,
        "sync": 280.0,
        "async": 60.0,
        "async-free-store": 60.0,
    }
    assert found["commit_behind_ms"]["lr4"]["async"] == 200 and found["commit_behind_ms"]["lr4"]["sync"] == 0
    assert found["commit_behind_ms"]["lr4"]["spark-rocksdb"] is None
    assert found["interval_s"]["lr4"]["spark-rocksdb"] == 6.0
    assert found["throughput_kb_s"]["lr4"]["sync"] == pytest.approx(4_500 * 65 / 400, rel=0.001)


def test_throughput_is_the_mean_of_the_batches_own() -> None:
    assert throughput_kb_s([{"rows": 100, "ms": 10.0}, {"rows": 100, "ms": 1_000.0}]) == round(65 * (10 + 0.1) / 2, 2)


def test_a_record_becomes_a_page_with_the_paper_beside_it() -> None:
    reported = end_bench(
        Recording("bench", "commit"), {**result({"lr4": measured()}), "rate": 1_500, "answers_equal": True}
    )
    text = page([reported])
    assert "Beside the paper" in text and "lr4, async: epochs and their commits" in text
    (panel,) = panels([reported])
    rows = {row[1]: dict(zip(HEADS, row, strict=True)) for row in percentile_rows(panel.newest.summary)}
    assert rows["async"]["paper's kB/s"] == 1_000.939 and rows["sync"]["paper's kB/s"] is None
    assert rows["spark-rocksdb"]["p50 ms"] == 1_049.5 and rows["async"]["behind"] == 200
    titles = [chart.title for chart in commit_charts(panel.newest.summary)]
    assert len(titles) == len(set(titles)) == 7


def test_a_damaged_record_is_no_error() -> None:
    odd: dict[str, Any] = {
        "query_series_ms": {"<b>": {"<i>": [1, 2], "x": ["no"]}, "y": 3},
        "query_p99_ms": {"<b>": [1]},
        "timelines": {"<b>": {"async": [[1, 2, 3, 4], "what", [1, "<s>", 0, 1]]}},
        "p99_ratio": 5,
    }
    assert percentile_rows(odd) == [["<b>", "<i>", *[None] * (len(HEADS) - 2)]]
    figures = json.dumps([chart.figure for chart in commit_charts(odd)])
    assert "<i>" not in figures and "<s>" not in figures


def test_steps_are_reported_once_and_from_the_first_on() -> None:
    reports = [
        {"batchId": 7, "timeline": [[6, "upload", 9.0, 12.0], [7, "ingest", 10.0, 11.0]]},
        {"batchId": 8, "timeline": [[7, "upload", 11.0, 13.0], [8, "ingest", 12.0, 12.5], [7, "ingest", 10.0, 11.0]]},
    ]
    assert steps_of(reports) == [(7, "ingest", 0.0, 1.0), (7, "upload", 1.0, 3.0), (8, "ingest", 2.0, 2.5)]
    assert steps_of([]) == []


# The bench -----------------------------------------------------------------------------------------------------------


def test_wrong_names_are_reported_before_anything_starts() -> None:
    with pytest.raises(UnknownNameError, match="no query is called 'lr3'"):
        with_targets(CommitOptions(queries=("lr3",)))
    with pytest.raises(UnknownNameError, match="no target is called 'misa'"):
        with_targets(CommitOptions(targets=("misa",)))
    with pytest.raises(UnknownNameError, match="--store proxy"):
        with_targets(CommitOptions(targets=("spark-rocksdb",), store="shaped"))
    with pytest.raises(ParameterError, match="no parameter 'job'"):
        values_of(CommitOptions(given=("job=3",)), "cm1")
    assert values_of(CommitOptions(given=("jobs=3",), rate=7), "lr2")["rate"] == 7
    able = with_targets(CommitOptions(store="shaped")).targets
    assert "async" in able and "spark-rocksdb" not in able


def test_files_are_stretches_of_the_same_traffic(tmp_path: Path) -> None:
    query = QUERIES["cm1"]
    stream = Stream(query, values_of(CommitOptions(rate=50), "cm1"), 3, tmp_path)
    complete = pq.read_table(stream.file(0, 6))["value"].to_pylist()
    parts = [pq.read_table(stream.file(first, first + 2))["value"].to_pylist() for first in (0, 2, 4)]
    assert complete == list(chain(*parts)) and stream.rows(0, 6) == len(complete)
    assert stream.file(0, 6) is stream.file(0, 6)


def bench(tmp: Path, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "TMPDIR": str(tmp), "COLUMNS": "140", "TAILRACE_RECORDS": str(tmp / "records")}
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", "bench", "commit", *arguments],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
        env=environment,
        cwd=tmp,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


SMALL = ("--batches", "1", "--warmup", "1", "--rate", "60", "--seed", "5")


@pytest.mark.long
def test_a_small_run_on_a_slow_folder(tmp_path: Path) -> None:
    found = bench(tmp_path, *SMALL, "--queries", "cm1", "--store", "shaped", "--latency", "5", "--targets", "async")
    assert found["answers_equal"] is True and found["rows_checked"]["cm1"] > 0
    assert found["p99_ratio"] == {}
    names = {step[1] for step in found["timelines"]["cm1"]["async"]}
    assert {"ingest", "sink", "upload"} <= names
    (reported,) = record.read_all([tmp_path / "records"])[0]
    assert len(reported.series["async"]["ms"]) == 1


@pytest.mark.long
@pytest.mark.parametrize("query", QUERIES)
def test_all_targets_answer_alike_behind_one_proxy(tmp_path: Path, query: str) -> None:
    found = bench(tmp_path, *SMALL, "--queries", query, "--latency", "5")
    assert found["answers_equal"] is True and found["rows_checked"][query] > 0
    assert found["p99_ratio"][query] > 0 and found["store_requests"][query]["spark-rocksdb"] > 10
