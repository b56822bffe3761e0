"""The bench of the stores: traces against brute force, every setting gives the same rows, charts of what was found."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.lab.bench.options import StoreOptions
from tailrace.lab.bench.stores import bench as bench_stores
from tailrace.lab.bench.stores import players as store_players
from tailrace.lab.bench.stores import traces as store_traces
from tailrace.lab.records import record
from tailrace.lab.report.charts import charts
from tailrace.lab.report.panels import panels
from tailrace.testing.bench.stores import AppendAligned, AppendUnaligned, ReadModifyWrite, table_of

TINY = StoreOptions(
    rate=1_000, batch=1_000, window_s=20, factors=(0.5,), memory_bytes=50_000, rounds=1, seed=random.randrange(1000)
)
COMMAND = ["bench", "stores", "--window", "20", "--rate", "1k", "--batch", "2k", "--memory", "50k", "--rounds", "1"]


def test_sessions_of_a_trace_are_those_of_a_loop() -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")
    gap = 7
    trace = store_traces.sessions(store_traces.bids(20_000, 1_500, 500, seed), gap)
    bidders, times = trace.bids.column("bidder").tolist(), trace.bids.column("dateTime").tolist()
    found: list[tuple[int, int, list[int]]] = []  # end, bidder, bids
    open_: dict[int, list[int]] = {}
    for number, (bidder, time) in enumerate(zip(bidders, times)):
        held = open_.get(bidder)
        if held is not None and time - times[held[-1]] > gap * 1_000_000:
            found.append((times[held[-1]] + gap * 1_000_000, bidder, open_.pop(bidder)))
        open_.setdefault(bidder, []).append(number)
    found += [(times[held[-1]] + gap * 1_000_000, bidder, held) for bidder, held in open_.items()]
    found.sort()
    assert len(trace.session_edges) == len(found) + 1
    watermark = -1
    for epoch, mark in enumerate(trace.bids.watermarks.tolist()):
        ended = [one for one in found if watermark < one[0] <= mark]
        watermark = mark
        parts = list(trace.sessions_of(epoch))
        assert len(parts) == len(ended)
        assert trace.lists_of(epoch) == ((parts[0][0], parts[-1][1]) if parts else (trace.lists_of(epoch)[0],) * 2)
        for (low, high), (_, bidder, held) in zip(parts, ended):
            assert trace.list_keys.column("bidder")[low:high].to_pylist() == [bidder] * (high - low)
            assert trace.list_panes[low:high].tolist() == sorted({int(trace.panes[number]) for number in held})
        rows = sorted(number for _, _, held in ended for number in held)
        assert trace.rows_read(epoch, epoch + 1).equals(trace.bids.table.take(pa.array(rows, pa.int64())))


def test_windows_of_a_trace_close_once_when_the_watermark_reaches_their_end() -> None:
    trace = store_traces.windows(store_traces.bids(20_000, 1_500, 500, 1), 3)
    ends = np.unique(trace.starts) + 3_000_000
    closed = [start for epoch in range(trace.bids.epochs) for start in trace.closed_by(epoch)]
    assert closed == [int(end) - 3_000_000 for end in ends if end <= trace.bids.watermarks[-1]]
    for epoch, mark in enumerate(trace.bids.watermarks.tolist()):
        assert all(start + 3_000_000 <= mark for start in trace.closed_by(epoch))


def test_stores_hand_out_what_they_were_given(tmp_path: Path) -> None:
    batch = pa.record_batch({"k": pa.array([1, 2, 1, 2]), "s": pa.array(["a", "b", "c", None])})
    starts, numbers = np.array([0, 0, 0, 10]), np.arange(4)
    with AppendUnaligned(batch.schema, ["k"], folder=str(tmp_path), memory_bytes=1 << 20) as lists:
        lists.append(lists.prepared(batch, starts, numbers))
        named = lists.lists(pa.record_batch({"k": pa.array([2, 1, 2])}), np.array([10, 0, 0]))
        found = table_of([lists.take(named[0:1]), lists.take(named[1:3])]).to_pydict()
        assert found == {"window": [10, 0, 0, 0], "k": [2, 1, 1, 2], "s": [None, "a", "c", "b"]}
        assert lists.rows == 0 and len(lists.take(named)) == 0
    with AppendAligned(batch.schema, ["k"], folder=str(tmp_path), memory_bytes=0) as rows:
        for _ in range(3):
            rows.append(rows.prepared(batch, starts))
        assert sorted(table_of(rows.take_window(0))["s"].to_pylist()) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
        assert rows.take_window(0) == [] and len(table_of(rows.take_window(10))) == 3
    sums = pa.record_batch({"k": batch["k"], "n": pa.array([5, 6, 7, 8])})
    with ReadModifyWrite(sums.schema, ["k"], folder=str(tmp_path), memory_bytes=0) as records:
        for _ in range(3):
            records.merge(records.prepared(sums, starts))
        reported = table_of(records.take_window(0)).sort_by("k").to_pydict()
        assert reported == {"window": [0, 0], "k": [1, 2], "count": [6, 3], "n": [36, 18]}
        assert records.take_window(0) == []
    with pytest.raises(ValueError, match="column 'k' is int32"):
        AppendAligned(pa.schema([("k", pa.int32())]), ["k"], folder=str(tmp_path), memory_bytes=0)


def test_every_setting_is_measured_and_drawn(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    result = bench_stores.run_stores(TINY, tmp_path, lambda what, done, steps: reported.append((done, steps)))
    assert list(tmp_path.iterdir()) == [], "a sweep's files go with it"
    assert [done for done, _ in reported] == sorted(done for done, _ in reported) and reported[-1][0] == reported[-1][1]
    ratio = result["sweeps"]["ratio"]
    for how in (bench_stores.BY_SESSION, bench_stores.BY_EPOCH):
        assert list(ratio[how]) == [f"{share:g}" for share in bench_stores.RATIOS]
        assert ratio[how]["0"]["hits"] == 0 < ratio[how]["0.02"]["hits"]
        assert all(one["disk_bytes_max"] > TINY.memory_bytes for one in ratio[how].values())
    assert ratio[bench_stores.BY_SESSION]["0"]["index_scans"] > ratio[bench_stores.BY_EPOCH]["0"]["index_scans"]
    tight, loose = (result["sweeps"]["amplification"][bench_stores.BY_EPOCH][name] for name in ("1.1", "4"))
    assert tight["compactions"] > loose["compactions"] and tight["disk_bytes_max"] < loose["disk_bytes_max"]
    patterns = result["sweeps"]["window"]["10"]
    assert list(patterns) == ["AAR", "AUR", "RMW"]
    assert all(one["write_cpu_s"] > 0 and one["read_cpu_s"] > 0 for one in patterns.values())
    kept = record.Recording("bench", "stores").end({}, {"ratios": {}, "sweeps": result["sweeps"]}, {})
    (panel,) = panels([kept])
    made = charts(panel)
    assert len(made) == 7
    for chart in made:
        assert go.Figure(chart.figure).data, chart.title


def test_a_store_that_loses_a_row_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = AppendUnaligned.take

    def lossy(store: AppendUnaligned, lists: object) -> object:
        found = taken(store, lists)  # type: ignore[arg-type]
        return type(found)(type(found.rows)(found.rows.words[1:], found.rows.heap), found.layout, found.names)

    monkeypatch.setattr(AppendUnaligned, "take", lossy)
    options = StoreOptions(
        sweeps=("amplification",), rate=1_000, batch=1_000, window_s=20, memory_bytes=50_000, rounds=1
    )
    with pytest.raises(store_players.WrongAnswerError, match="not the"):
        bench_stores.run_stores(options, tmp_path, lambda *_: None)


def test_damaged_sweeps_draw_what_is_left() -> None:
    sweeps = {"ratio": {"<b>": {"0": {"rows_per_s": 5}, "0.02": {"rows_per_s": "x"}}, "y": 3}, "window": 7}
    kept = record.Recording("bench", "stores").end({}, {"ratios": {}, "sweeps": sweeps}, {})
    (panel,) = panels([kept])
    assert [chart.figure["data"][0]["name"] for chart in charts(panel)] == ["&lt;b&gt;", "&lt;b&gt;"]


def test_the_command_ends_with_json_and_leaves_a_record(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*COMMAND, "--sweeps", "ratio", "--records", str(tmp_path)])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["answers_equal"] is True and set(result["hit_ratio"]) == {"a session a read", "an epoch a read"}
    (path,) = tmp_path.iterdir()
    kept = record.read(path)
    assert kept.summary["ratios"] == {name: result[name] for name in ("read_ahead", "read_ahead_epoch")}
    assert kept.parameters["window_s"] == 20 and "hit_ratio" not in kept.parameters


def test_an_unknown_sweep_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "stores", "--sweeps", "rato"])
    assert done.exit_code == 2
