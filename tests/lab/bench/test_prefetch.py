"""``bench prefetch``: what needs no engine, one small run of it, and answers over spilled state in every mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from support.draw import drawn
from support.lab.same_rows import same_rows
from tailrace.lab import catalog, registry
from tailrace.lab.bench.prefetch.bench import _runs
from tailrace.lab.bench.prefetch.moving import MovingOptions
from tailrace.lab.bench.prefetch.moving import _result as moving_result
from tailrace.lab.bench.prefetch.numbers import (
    Measured,
    batch_of,
    cached_row_bytes,
    ratio_error,
    result,
    tables,
    totals,
    weighted,
)
from tailrace.lab.bench.prefetch.options import PrefetchOptions, check_names, sweeps_of
from tailrace.lab.bench.prefetch.workloads import CASES, MODES, case
from tailrace.lab.records import record
from tailrace.lab.records.bench_record import end_bench
from tailrace.lab.records.record import Recording
from tailrace.lab.registry import OURS, ParameterError, Settings, UnknownNameError
from tailrace.lab.report.page import page
from tailrace.lab.report.prefetch import HEADS, prefetch_charts, prefetch_rows
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.nexmark.workloads import FEED, PREFIX, VERSIONS
from tailrace.testing.shaped_reads import shaped_reads

catalog.load()
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
MODES_OF_OURS = [mode for mode in MODES.values() if mode.engine == OURS]

# Numbers and pages ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), min_size=1, max_size=12), st.integers(0, 1000))
def test_percentiles_are_those_of_rows(batches: list[tuple[int, int]], tenths: int) -> None:
    """As if every row had waited as long as its batch."""
    values, rows = zip(*batches, strict=True)
    of_rows = np.repeat(values, rows)
    expected = np.percentile(of_rows, tenths / 10, method="inverted_cdf")
    assert weighted(values, rows, tenths / 10) == expected


def progress_of(ms: float, wait: float, hits: int, misses: int, **more: Any) -> dict[str, Any]:
    metrics = {
        "spilledWaitMs": wait,
        "spilledHits": hits,
        "spilledMisses": misses,
        "hintsFetched": hits,
        "hintsWasted": hits / 10,
    }
    metrics |= {"spilledFetchMsP99": 3.5, "spaceAmplification": 2.0}
    operator = {"customMetrics": metrics, "diskUsedBytes": 160 << 20, "operatorKind": "top n", "numRowsTotal": 5}
    return {
        "ms": ms,
        "rows": 1_000,
        "operators": [operator],
        "budget_bytes": 8 << 20,
        "staged_bytes": 50_000,
        "lookahead": [{"lookahead": "ingest", "hintBytes": 1_000}],
        "cpu_ms": 100,
        **more,
    }


def measured() -> Measured:
    waits = {"lru": 50.0, "clock": 40.0, "async-io": 20.0, "hints": 2.0}
    batches: dict[str, list[dict[str, Any]]] = {}
    for name, wait in waits.items():
        before: dict[str, float] = {}
        for at in range(1, 11):
            one = progress_of(300 + wait, wait * at, 90 * at if name == "hints" else 0, 10 * at)
            batches.setdefault(name, []).append(batch_of(one, before))
            before = totals(one)
    peer = {**progress_of(900, 0, 0, 0), "operators": [], "lookahead": []}
    batches["spark-rocksdb"] = [batch_of(peer, {}) for _ in range(10)]
    return Measured(case("q18", 4_000_000), batches, 8 << 20, 2, {}, 7, {})


def test_how_far_a_ratio_may_be_off() -> None:
    steady, uneven = [{"ms": 100.0}] * 16, [{"ms": 80.0}, {"ms": 120.0}] * 8
    assert ratio_error(steady, steady) == 0.0
    assert ratio_error(steady, uneven) == pytest.approx(0.2 / 4)
    assert ratio_error(uneven, uneven) == pytest.approx(0.2 / 4 * 2**0.5, abs=0.001)


def test_the_numbers_of_a_run() -> None:
    found = result({"q18": measured()})
    assert found["wait_p999_ratio_lru"] == {"q18": 25.0} and found["wait_p999_ratio_async_io"] == {"q18": 10.0}
    assert found["wait_ms"]["q18"]["clock"] == dict.fromkeys(("p50", "p95", "p99", "p999"), 40.0)
    assert found["throughput_ratio"]["q18"] == pytest.approx(320 / 302, rel=0.01)
    assert found["batch_p50_ratio"]["q18"] == pytest.approx(320 / 302, rel=0.01)
    assert found["throughput_ratio_error"] == {"q18": 0.0}, "all batches took the same time"
    assert found["throughput_ratio_spark"]["q18"] == pytest.approx(900 / 302, rel=0.01)
    assert found["hint_bytes_share"] == {"q18": 0.02} and found["lookaheads"] == {"q18": {"ingest": 10}}
    assert found["hit_ratio"]["q18"] == {"lru": 0, "clock": 0, "async-io": 0, "hints": 0.9}
    assert found["wasted_share"]["q18"]["hints"] == 0.1 and found["wasted_share"]["q18"]["lru"] is None
    assert found["state_over_memory"]["q18"]["lru"] == 10.0, "half of what lies on disk is needed"
    assert found["cpu_percent"]["q18"]["spark-rocksdb"] == pytest.approx(100 / 900 / 2 * 100, rel=0.01)
    assert "spark-rocksdb" not in found["wait_ms"]["q18"]
    shown = tables({**found, "read_ms": 1.0, "read_depth": dict.fromkeys(found["batch_ms"], 32)})
    assert shown["q18: 1 ms a read, 32 at once"]["wait p99.9 ms"]["lru"] == 50.0


def test_a_lookup_table_is_as_large_as_its_copies_would_be() -> None:
    first = progress_of(5, 1, 0, 40)
    first["operators"][0]["customMetrics"]["cacheBytes"] = 4_000.0
    assert cached_row_bytes(first) == 100.0
    one, table = measured(), case("q13", 4_000_000)
    found = result({"q13": replace(one, case=table, cached_row_bytes=dict.fromkeys(one.batches, 100.0))})
    assert found["state_over_memory"]["q13"]["lru"] == round(table.table_rows * 100 / (8 << 20), 2)


def test_what_was_not_waited_for_makes_no_infinite_ratio() -> None:
    one = measured()
    for batch in one.batches["hints"]:
        batch["wait_ms"] = 0.0
    assert result({"q18": one})["wait_p999_ratio_lru"] == {"q18": 5_000.0}


def test_records_become_pages() -> None:
    numbers = {**result({"q18": measured()}), "answers_equal": True, "ratios": {"q18 throughput": 1.1}}
    numbers["prefetch_sweeps"] = {}
    made = end_bench(Recording("bench", "prefetch"), {**numbers, "series_ms": {"hints": [1.0, 2.0]}})
    text = page([made])
    assert "Wait for spilled state, p99.9" in text and "q18: wait of each batch" in text
    rows = {row[1]: dict(zip(HEADS, row, strict=True)) for row in prefetch_rows(made.summary)}
    assert rows["hints"]["hit ratio"] == 0.9 and rows["spark-rocksdb"]["reads of spilled state"] is None
    sweep = {"skew": {"q13": {"0": {"lru": {"wait_p999_ms": 5}}, "50": {"lru": {"wait_p999_ms": 3}}}}}
    (chart,) = prefetch_charts({**made.summary, "prefetch_sweeps": sweep})
    assert chart.title == "q13: wait at p99.9 by skew" and chart.figure["data"][0]["y"] == [5, 3]
    batches = [{**batch_of(progress_of(5, 1, 1, 1), {}), "phase": phase} for phase in (0, 0, 1, 2)]
    moved = end_bench(Recording("bench", "prefetch-moving"), moving_result(MovingOptions(), batches))
    text = page([moved])
    assert "The lookahead" in text and "those that were not there yet" in text


def test_a_damaged_record_is_no_error() -> None:
    odd: dict[str, Any] = {
        "wait_ms": {"<b>": {"<i>": {"p999": 3, "p50": "no"}, "x": 4}, "y": 3},
        "batch_ms": {"<b>": {"<i>": {"p50": 1}}},
        "throughput": {"<b>": 5},
        "hint_bytes_share": [1],
        "prefetch_series_wait_ms": {"<b>": {"<i>": ["no"], "j": 3}},
        "prefetch_sweeps": {"skew": {"q": 5}},
    }
    assert len(prefetch_rows(odd)) == 1
    assert "<i>" not in json.dumps([chart.figure for chart in prefetch_charts(odd)])
    assert prefetch_charts({"lookahead": {"lookahead": "staging", "phase": 3}}) == []


# Options ------------------------------------------------------------------------------------------------------------


def test_wrong_names_are_reported_before_anything_starts() -> None:
    with pytest.raises(UnknownNameError, match="no workload 'q5'"):
        check_names(PrefetchOptions(workloads=("q5",)))
    with pytest.raises(UnknownNameError, match="no mode is called 'fifo'"):
        check_names(PrefetchOptions(modes=("fifo",)))
    with pytest.raises(ParameterError, match="no parameter 'hot'"):
        check_names(PrefetchOptions(given=("hot=3",)))
    with pytest.raises(ParameterError, match=r"at least 1\.1M"):
        check_names(PrefetchOptions(memory_bytes=1_000))
    for wrong in ("speed=3", "skew", "skew=much", "memory=10"):
        with pytest.raises(ParameterError):
            sweeps_of([wrong])
    assert sweeps_of(["skew=0,50", "memory=2M"]) == {"skew": ("0", "50"), "memory": ("2M",)}
    with pytest.raises(ParameterError, match=r"rows '2M' is no number: a multiple of a batch"):
        sweeps_of(["rows=1,2M"])
    with pytest.raises(ParameterError, match="batches need rows"):
        sweeps_of(["rows=0"])
    swept = PrefetchOptions(workloads=("q20",), sweeps=sweeps_of(["rows=0.5,1,2"]))
    sizes = [one.rows / swept.case_of("q20").rows for _, one, _ in _runs(swept)]
    assert sizes == pytest.approx([0.5, 1, 2], rel=0.01)
    given = PrefetchOptions(given=("hot_auctions=90", "ads=5"))
    check_names(given)
    assert given.case_of("q13").values["hot_auctions"] == 90 and given.case_of("ysb").values["ads"] == 5
    assert given.options_of(MODES["async-io"], 7)["prefetch"] == "async-io"


@pytest.mark.parametrize("name", CASES)
def test_streams_go_on_where_filling_ends(name: str) -> None:
    """Keys that were filled are looked up, event times do not go back, and numbers are given once."""
    one = case(name, 1_100_000)
    workload = registry.workload(one.workload)
    (feed,) = workload.feeds
    values = {**workload.values(), **one.values}
    if one.fill_events:
        events = min(one.fill_events, 250_000)
        (filled,) = workload.inputs(Settings(events, events, 1, {**values, **one.filling}))
    (going_on,) = workload.inputs(Settings(one.rows, one.rows, 1, values))
    rows = going_on[feed]
    assert rows.num_rows == one.rows
    if not one.fill_events:
        assert one.table_rows > 0
        return
    before = filled[feed]
    assert before["number"][-1].as_py() < rows["number"][0].as_py()
    assert before["dateTime"][-1].as_py() < rows["dateTime"][0].as_py()
    known = set(before["bid_auction"].to_pylist())
    if "auction_id" in rows.column_names:
        known |= set(before["auction_id"].to_pylist())
    requested = [auction for auction in rows["bid_auction"].to_pylist() if auction is not None]
    assert np.mean([auction in known for auction in requested]) > 0.1


# Runs ----------------------------------------------------------------------------------------------------------------


_COLD: dict[str, tuple[dict[str, Any], int]] = {
    "q18": (
        {
            "auctions": 1,
            "bids": 5_000,
            "auctions_in_flight": 80,
            "active_people": 80,
            "first_event": 80 * 5_002,
            "hot_auctions": 0,
            "hot_bidders": 0,
        },
        6_000,
    ),
    "q19": ({"auctions": 3, "bids": 40, "auctions_in_flight": 1_000_000, "hot_auctions": 10}, 4_000),
    "q20-kept": ({"auctions": 40, "bids": 20, "auctions_in_flight": 1_000_000, "hot_auctions": 10}, 6_000),
}
_RUNS = [(query, mode.name) for query in _COLD for mode in MODES_OF_OURS]


@pytest.mark.parametrize(("query", "mode"), _RUNS if LONG else drawn(_RUNS, __name__))
def test_spilled_state_changes_no_answer(spark: SparkSession, tmp_path: Path, query: str, mode: str) -> None:
    """As little memory as there may be, so that records are read from disk in every batch but the first."""
    given, rows = _COLD[query]
    workload = registry.workload(PREFIX + query)
    values = {**workload.values(), **given}
    settings = Settings(4 * rows, rows, 3, values)
    feed = tmp_path / "feed"
    files = [write_batch(batch[FEED], feed, f"{n:03d}", 1) for n, batch in enumerate(workload.inputs(settings))]
    for n, path in enumerate(files):
        os.utime(path, (n, n))
    outputs: list[pa.Table] = []

    def keep(frame: DataFrame, epoch: int) -> None:
        rows = frame.toArrow()
        outputs.append(rows.append_column("epoch", pa.array([epoch] * rows.num_rows, pa.int64())))

    frame = spark.readStream.schema(workload.feeds[FEED]).option("maxFilesPerTrigger", 1).parquet(str(feed))
    stream = registry.query(workload, OURS)({FEED: frame}, values)
    options = {"memory": "1MB", **MODES[mode].options}
    with shaped_reads(spark, 10e-6):
        run = (
            stream.options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(keep)
            .start()
        )
        run.awaitTermination()
    metrics = run.lastProgress["stateOperators"][0]["customMetrics"]
    assert metrics["spilledHits"] + metrics["spilledMisses"] > 100, metrics
    found = workload.final(workload.finish[OURS](pa.concat_tables(outputs), values))
    oracle = workload.oracle_of(OURS)
    assert oracle is not None and query in VERSIONS[OURS]
    same_rows(found, oracle({FEED: files}, settings))


def bench(tmp: Path, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "TMPDIR": str(tmp), "COLUMNS": "140", "TAILRACE_RECORDS": str(tmp / "records")}
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", "bench", "prefetch", *arguments],
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


SMALL = ("--quick", "--turns", "1", "--turn", "1", "--warmup", "1", "--seed", "5")


@pytest.mark.long
def test_a_small_run(short_path: Path) -> None:
    found = bench(short_path, *SMALL, "--workloads", "q13", "--engines", "hints", "--set", "side_rows=20000")
    assert found["answers_equal"] is True and found["rows_checked"]["q13"] > 0
    assert found["reader"]["q13"]["hints"] > 100 and found["state_over_memory"]["q13"]["hints"] > 1
    assert found["wait_p999_ratio_lru"] == {} and found["read_depth"] == {"q13": 128}
    (kept,) = record.read_all([short_path / "records"])[0]
    assert len(kept.series["hints"]["ms"]) == 1


@pytest.mark.long
@pytest.mark.parametrize("workload", CASES)
def test_all_engines_answer_alike(short_path: Path, workload: str) -> None:
    found = bench(short_path, *SMALL, "--workloads", workload, "--engines", ",".join(MODES))
    assert found["answers_equal"] is True and found["rows_checked"][workload] > 0
    assert found["wait_p999_ratio_lru"][workload] > 0 and found["throughput_ratio"][workload] > 0
    assert all(times >= 8 for times in found["state_over_memory"][workload].values())


@pytest.mark.long
@pytest.mark.parametrize("workload", CASES)
def test_with_all_in_cache_there_are_no_hints(short_path: Path, workload: str) -> None:
    found = bench(short_path, *SMALL, "--workloads", workload, "--all-in-cache", "--warmup", "8")
    assert found["all_in_cache_hints"] == {workload: 0} and found["all_in_cache_ratio"][workload] > 0


@pytest.mark.long
def test_the_lookahead_moves(short_path: Path) -> None:
    found = bench(short_path, "--quick", "--moving")
    assert found["answers_equal"] is True and len(found["lookaheads"]) > 1
    assert found["moves"]["moves"]
