"""Input streams: distributions have their shape, late events are late, files and stand-ins are read."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.lab.gadget.events import distributions as d
from tailrace.lab.gadget.events.event_files import FORMATS, EventFileError, Mapping, load
from tailrace.lab.gadget.events.source import UNIT_US, Kind, Stream, Synthetic, woven
from tailrace.lab.gadget.events.stand_ins import stand_in
from tailrace.lab.gadget.events.watermarks import by_events, by_time
from tailrace.lab.gadget.generate import generation as planned
from tailrace.lab.gadget.generate import key_sizes, settings_of, trace_of
from tailrace.lab.gadget.traces.trace import Events

ROWS = 200_000


def drawn(of: d.Draws, rows: int = ROWS) -> np.ndarray:
    return of.draw(np.random.default_rng(7), rows)


def shares(values: np.ndarray) -> dict[int, float]:
    return {key: count / len(values) for key, count in Counter(values.tolist()).items()}


def test_numbers_have_their_shape() -> None:
    assert drawn(d.Exponential(10)).mean() == pytest.approx(0.1, rel=0.02)
    normal = drawn(d.Normal(5, 1))
    assert (normal.mean(), normal.std()) == pytest.approx((5, 1), rel=0.02)
    uniform = drawn(d.Uniform(2, 4))
    assert uniform.min() >= 2 and uniform.max() <= 4 and uniform.mean() == pytest.approx(3, rel=0.01)
    assert set(drawn(d.Constant(3), 5)) == {3}
    assert drawn(d.Normal(0, 5)).min() == 0
    assert d.sizes(d.Normal(0, 1), np.random.default_rng(1), 1_000).min() == 1
    assert d.sizes(d.Constant(10.4), np.random.default_rng(1), 3).tolist() == [10, 10, 10]


def test_keys_have_their_shape() -> None:
    zipf = shares(drawn(d.Zipf(1, 100)))
    total = sum(1 / rank for rank in range(1, 101))
    for rank in (1, 2, 10):
        assert zipf[rank] == pytest.approx(1 / rank / total, rel=0.05)
    assert set(zipf) <= set(range(1, 101))
    uniform = drawn(d.UniformKeys(20, 5, 9))
    assert set(uniform.tolist()) == {5, 6, 7, 8, 9}
    hot = drawn(d.Hotspot(0.2, 0.8, 50))
    assert np.mean(hot < 10) == pytest.approx(0.8, abs=0.01) and set(hot.tolist()) == set(range(50))
    assert drawn(d.Sequential(), 4).tolist() == [1, 2, 3, 4]
    assert drawn(d.Sequential(3), 5).tolist() == [1, 2, 3, 1, 2]
    assert set(drawn(d.ConstantKey(8), 4).tolist()) == {8}
    falling = drawn(d.ExponentialKeys(1_000))
    assert falling.max() < 1_000 and np.mean(falling < 300) > np.mean((falling >= 300) & (falling < 600)) > 0.15
    latest = drawn(d.Latest(100, 0.1))
    newest = np.maximum.accumulate(latest)
    assert np.mean(latest == newest) > 0.25 and (newest - latest).max() < 100


def test_a_users_distribution(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text("40,0.25\n41,0.25\n42,1.0\n")
    found = shares(drawn(d.EmpiricalKeys(str(path))))
    assert set(found) == {40, 42} and found[40] == pytest.approx(0.25, abs=0.01)
    path.write_text("0.5\n1\n")
    assert set(drawn(d.EmpiricalKeys(str(path))).tolist()) == {0, 1}
    for text, message in (
        ("0.5\n0.4\n", "line 2 of .*0.4 is no cumulative"),
        ("a,b\n", "line 1 of"),
        ("", "no cumulative"),
    ):
        path.write_text(text)
        with pytest.raises(d.Problem, match=message):
            d.EmpiricalKeys(str(path))


@settings(max_examples=25)
@given(late=st.sampled_from([0, 10, 100]), lateness=st.integers(0, 4), seed=st.integers(0, 1000))
def test_late_events_come_in_a_later_unit(late: int, lateness: int, seed: int) -> None:
    stream = Synthetic(300, d.Zipf(1, 20), d.Exponential(5), late, lateness).stream(seed)
    events, arrivals = stream.events, stream.arrivals
    assert arrivals is not None
    delay = arrivals // UNIT_US - events.times // UNIT_US
    assert delay.min() >= 0 and delay.max() <= lateness
    assert (np.diff(arrivals // UNIT_US) >= 0).all()
    if late == 100 and lateness:
        assert delay.min() >= 1
    if not late or not lateness:
        assert (np.diff(events.times) >= 0).all()
    again = Synthetic(300, d.Zipf(1, 20), d.Exponential(5), late, lateness).stream(seed)
    assert again.events.times.tolist() == events.times.tolist()


def test_the_papers_figure_8_example() -> None:
    stream = Synthetic(ROWS, d.Zipf(1, 1_000), d.Exponential(10), 2, 3).stream(1)
    assert stream.arrivals is not None
    late = stream.arrivals // UNIT_US > stream.events.times // UNIT_US
    assert late.mean() == pytest.approx(0.02, abs=0.002)


def naive_marks(events: Events, every: int) -> list[tuple[int, int]]:
    """Watermarks by events, one event after the other; of two inputs, the earlier of both."""
    sides = [0] * len(events) if events.sides is None else events.sides.tolist()
    inputs = sorted(set(sides)) if events.sides is None else [0, 1]
    left = {side: sides.count(side) for side in inputs}
    latest = {side: float("-inf") for side in inputs}
    ends = {side: float("-inf") if left[side] else float("inf") for side in inputs}
    seen = dict.fromkeys(inputs, 0)
    found, now = [], float("-inf")
    for place, (side, time) in enumerate(zip(sides, events.times.tolist())):
        seen[side] += 1
        latest[side] = max(latest[side], time)
        if seen[side] % every == 0:
            ends[side] = latest[side]
        if events.sides is not None and seen[side] == left[side]:
            ends[side] = float("inf")
        mark = min(ends.values())
        if now < mark < float("inf"):
            now = mark
            found.append((place + 1, mark))
    return found


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1)), max_size=40),
    every=st.integers(1, 5),
    two=st.booleans(),
)
def test_watermarks_by_events(rows: list[tuple[int, int]], every: int, two: bool) -> None:
    times, sides = np.array([t for t, _ in rows], np.int64), np.array([s for _, s in rows], np.uint8)
    events = Events(np.zeros(len(rows), np.int64), times, sides if two else None)
    marks = by_events(events, every)
    best, now = [], float("-inf")
    for at, value in zip(marks.at.tolist(), marks.values.tolist()):
        if value > now:
            now = value
            best.append((at, value))
    assert best == naive_marks(events, every)


def test_watermarks_by_time() -> None:
    events = Events(np.zeros(5, np.int64), np.array([100, 350, 320, 620, 1_000]))
    marks = by_time(events, 100)
    assert list(zip(marks.at.tolist(), marks.values.tolist())) == [
        (1, 200), (1, 300), (3, 400), (3, 500), (3, 600), (4, 700), (4, 800), (4, 900), (4, 1_000),
    ]  # fmt: skip


def test_two_inputs_are_woven() -> None:
    left = Stream(Events(np.array([1, 2]), np.array([5, 30]) * 100_000), None, 0)
    right = Stream(Events(np.array([3, 4, 5]), np.array([1, 5, 6]) * 100_000), None, 0)
    assert woven(left, right, "time").events.keys.tolist() == [3, 1, 4, 5, 2]
    assert woven(left, right, "unit").events.keys.tolist() == [1, 3, 4, 5, 2]
    assert woven(left, right, "unit").events.sides is not None


JOBS = """6001,150936493603,SCHEDULE,u=,n=,l=,0
6002,150938765556,FINISH,u=,n=,l=,1
6001,150941336569,SUBMIT,u=,n=,l=,0
"""
TASKS_2011 = """150936493603,,6001,3,,0,u=,0,9,0.06,0.01,0.0001,
150936493604,,6002,3,88,4,u=,0,9,0.06,0.01,0.0001,0
"""


def test_borg_files(tmp_path: Path) -> None:
    plain = tmp_path / "jobs.txt"
    plain.write_text(JOBS)
    with zipfile.ZipFile(tmp_path / "jobs.zip", "w") as archive:
        archive.writestr("jobs.txt", JOBS)
    with gzip.open(tmp_path / "jobs.csv.gz", "wt") as out:
        out.write(JOBS)
    for path in (plain, tmp_path / "jobs.zip", tmp_path / "jobs.csv.gz"):
        events = load(path, FORMATS["borg-jobs"]).events
        assert events.keys.tolist() == [6001, 6002, 6001]
        assert events.times.tolist() == [150936493603, 150938765556, 150941336569]
        assert events.kinds is not None and events.kinds.tolist() == [Kind.DATA, Kind.END, Kind.ADD]
    (tmp_path / "part.csv").write_text(TASKS_2011)
    events = load(tmp_path / "part.csv", FORMATS["borg-2011-tasks"]).events
    assert events.keys.tolist() == [6001, 6002] and events.kinds is not None
    assert events.kinds.tolist() == [Kind.ADD, Kind.END]
    (tmp_path / "text.txt").write_text(
        "1   6001   0   32  1  280 0 9 0.063 0.006 0.000 0\n 2 6002 1 3 4 3 0 2 0.0 0.0 0.0 1\n"
    )
    events = load(tmp_path / "text.txt", FORMATS["borg-tasks-text"]).events
    assert events.keys.tolist() == [6001, 6002] and events.times.tolist() == [1_000_000, 2_000_000]


def test_taxi_and_azure_files(tmp_path: Path) -> None:
    (tmp_path / "trips.csv").write_text(
        "medallion, hack_license, pickup_datetime, dropoff_datetime\n"
        "AB,x,2013-01-01 00:10:00,2013-01-01 00:20:00\nCD,y,2013-01-01 00:00:00,2013-01-01 00:15:00\n"
    )
    events = load(tmp_path / "trips.csv", FORMATS["taxi-trips"]).events
    assert [int(one) for one in np.diff(events.times) // UNIT_US] == [600, 300, 300]
    assert events.keys[0] == events.keys[2] and events.keys[1] == events.keys[3] and events.kinds is not None
    assert events.kinds.tolist() == [Kind.ADD, Kind.ADD, Kind.END, Kind.END]
    (tmp_path / "fares.csv").write_text("medallion,pickup_datetime\nCD,2013-01-01 00:00:00\n")
    assert load(tmp_path / "fares.csv", FORMATS["taxi-fares"]).events.keys[0] == events.keys[0]
    (tmp_path / "vms.csv").write_text("vm,sub==,dep,600,900,1,2,3,Delay,4,32\nvm2,sub==,dep,0,900,1,2,3,Delay,4,32\n")
    events = load(tmp_path / "vms.csv", FORMATS["azure-vms"]).events
    assert events.times.tolist() == [600_000_000, 0] and len(set(events.keys.tolist())) == 1


def test_a_parquet_file_with_a_mapping(tmp_path: Path) -> None:
    table = pa.table(
        {"who": ["a", "b", "a"], "at": pa.array([1, 2, 3], pa.timestamp("ms")), "what": ["x", "new", "old"]}
    )
    pq.write_table(table, tmp_path / "e.parquet")
    mapping = Mapping("who", "at", "what", "timestamp", add_types=("new",), end_types=("old",))
    events = load(tmp_path / "e.parquet", mapping).events
    assert events.times.tolist() == [1_000, 2_000, 3_000] and events.keys[0] == events.keys[2] != events.keys[1]
    assert events.kinds is not None and events.kinds.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "mapping", "message"),
    [
        ("1,2\n1,x\n", Mapping("0", "1"), "line 2 of .*e.csv: 'x' in column '1' is not a number"),
        ("k,t\n1,2\n1,x\n", Mapping("k", "t", header=True), "line 3 of .*: 'x' in column 't'"),
        ("1,2\n1,\n", Mapping("0", "1"), "line 2 of .* has nothing in column '1'"),
        (",2\n", Mapping("0", "1"), "line 1 of .* has nothing in column 'key'"),
        ("1,2\n", Mapping("0", "7"), "has no column '7'; it has 0, 1"),
        ("1,2\n1,2,3\n", Mapping("0", "1"), "cannot be read as CSV: .*Row #2"),
        ("1,yesterday\n", Mapping("0", "1", time_unit="timestamp"), "line 1 .*'yesterday' .* is not a date and time"),
        ("1,inf\n", Mapping("0", "1", time_unit="s"), "line 1 .*'inf' in column '1' is no time"),
        ("1,2\n", Mapping("0", "1", time_unit="weeks"), "no unit of time is called 'weeks'"),
        ("1,5\n2,9000000000000000000\n", Mapping("0", "1"), "line 2 .* is no time"),
        ("1,5\n2,99999999999999999999\n", Mapping("0", "1"), "line 2 .* is no time"),
        (JOBS, FORMATS["azure-vms"], "has 7 columns, not 11"),
    ],
)
def test_wrong_event_files_are_named(tmp_path: Path, text: str, mapping: Mapping, message: str) -> None:
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(EventFileError, match=message):
        load(tmp_path / "e.csv", mapping)


def test_borgs_rows_after_the_trace_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(f"1,0\n2,{(1 << 63) - 1}\n3,7\n")
    assert load(tmp_path / "e.csv", Mapping("0", "1")).events.keys.tolist() == [1, 3]


def test_streams_without_end_are_refused() -> None:
    with pytest.raises(TailraceError, match="too long: take shorter gaps"):
        Synthetic(1_000, d.ConstantKey(), d.Constant(1e12)).stream(1)
    with pytest.raises(TailraceError, match="more than 50,000,000"):
        by_time(Events(np.zeros(2, np.int64), np.array([0, 10**12])), 1)
    with pytest.raises(d.Problem, match=r"keyspacesize: .* too many"):
        d.Zipf(1, 1 << 40)


def test_a_missing_event_file(tmp_path: Path) -> None:
    with pytest.raises(EventFileError, match="there is no event file"):
        load(tmp_path / "none.csv", Mapping("0", "1"))


@pytest.mark.parametrize("name", ["borg", "taxi", "azure"])
def test_stand_ins_come_from_their_seed(name: str) -> None:
    one, other, different = (stand_in(name, seed, 5_000)[0].events for seed in (1, 1, 2))
    assert len(one) == 5_000 and ((np.diff(one.times) >= 0).all() or name == "azure")  # where events come late
    assert one.times.tolist() == other.times.tolist() != different.times.tolist()
    assert one.keys.tolist() == other.keys.tolist()


def test_a_generation_gives_the_same_twice_and_says_what_it_is() -> None:
    size = "operator_value_size_distrib"
    sizes = {f"{size}_type": "uniform", f"{size}_params_a": 5, f"{size}_params_b": 50}
    made = planned(settings_of("tumbling-join", "borg", 3_000, seed=5, **sizes))
    one, other = ([piece.keys.tolist() for piece in made.pieces(500)] for _ in range(2))
    assert one == other and len(one) > 3
    first = next(made.pieces())
    written = first.value_sizes[first.value_sizes > 0]
    assert 5 <= written.min() < written.max() <= 50
    assert first.metadata["source"] == "synthetic stand-in borg" and first.metadata["workload"] == "tumbling-join"
    assert first.metadata["seed"] == "5" and first.key_bytes == 10


def test_lateness_reaches_the_operators() -> None:
    """Late events are lost with windows, unless those are kept for them."""
    common = {
        "first_event_generator_outoforder_percentage": 20, "first_event_generator_lateness_threshold": 8,
        "first_event_generator_watermark_frequency": 1,
    }  # fmt: skip
    lost, kept = (trace_of("tumbling-holistic", "gadget", 20_000, lateness_length=s, **common) for s in (0, 8))
    merges = [int((one.operations == 2).sum()) for one in (lost, kept)]
    assert merges[0] < merges[1] == 20_000


def test_sizes_of_state_keys() -> None:
    size = "operator_key_size_distrib"
    sizes = {f"{size}_type": "uniform", f"{size}_params_a": 4, f"{size}_params_b": 20}
    trace = trace_of("aggregation", "gadget", 5_000, **sizes)
    found = key_sizes(trace)
    assert len(found) == trace.distinct_keys and found.min() == 4 and found.max() == 20
    assert trace.key_bytes == 12 and found.tolist() == key_sizes(trace).tolist()
    assert set(key_sizes(trace_of("aggregation", "gadget", 100)).tolist()) == {10}


@pytest.mark.skipif("TAILRACE_SAMPLES" not in os.environ, reason="TAILRACE_SAMPLES names no folder of real samples")
def test_the_real_job_events() -> None:
    """The artifact's job file makes so many puts and deletes of a continuous join, whatever the tasks are."""
    jobs = Path(os.environ["TAILRACE_SAMPLES"]) / "borg_jobs.zip"
    left = {"first_event_generator_type": "tracefile", "first_event_generator_file_path": jobs}
    trace = trace_of("continuous-join", "borg", 1_000, **left, first_event_generator_file_format="borg-jobs")
    counts = np.bincount(trace.operations, minlength=4)
    assert counts[1] == 8_709 and counts[3] == 18_185
    assert len(load(jobs, FORMATS["borg-jobs"]).events) == 26_250
