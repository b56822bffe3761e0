"""The eleven state machines: against plain Python ones, against formulas, and against an example worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.gadget_operators import naive, numbered
from tailrace.errors import TailraceError
from tailrace.lab.gadget.events.watermarks import Watermarks, by_events, by_time
from tailrace.lab.gadget.operators.driver import pieces
from tailrace.lab.gadget.operators.windows import Windows
from tailrace.lab.gadget.traces.trace import Events, Operation, Trace, joined
from tailrace.lab.gadget.workloads import NON_KEYED, WORKLOADS, Parameters, UnknownWorkloadError, of_one_key
from tailrace.lab.gadget.workloads import workload as workload_called

S = 1_000_000
LETTERS = "GPMD"
EXAMPLE = Events(np.array([0, 1, 0, 0, 1]), np.array([0.2, 0.7, 1.5, 5.1, 6.0]) * S // 1)
EXAMPLE = Events(EXAMPLE.keys, EXAMPLE.times.astype(np.int64))


def run(workload: str, parameters: Parameters, events: Events, marks: Watermarks, **options: Any) -> Trace:
    return joined(pieces(WORKLOADS[workload].operator(parameters), events, marks, **options))


def shown(trace: Trace) -> str:
    return " ".join(f"{LETTERS[operation]}{key + 1}" for operation, key in zip(trace.operations, trace.keys))


def counts(trace: Trace) -> dict[str, int]:
    found = np.bincount(trace.operations, minlength=4)
    return {letter: int(count) for letter, count in zip(LETTERS, found)}


@pytest.mark.parametrize(
    ("workload", "slide_s", "expected"),
    [
        ("tumbling-incremental", 1, "G1 P1 G2 P2 G1 P1 G1 D1 G2 D2 G3 P3 G4 P4 G3 D3 G4 D4"),
        ("tumbling-holistic", 1, "M1 M2 M1 G1 D1 G2 D2 M3 M4 G3 D3 G4 D4"),
        (
            "sliding-incremental",
            2,
            "G1 P1 G2 P2 G1 P1 G1 D1 G2 D2 G3 P3 G4 P4 G5 P5 G6 P6 G7 P7 G3 D3 G5 D5 G4 D4 G6 D6 G7 D7",
        ),
    ],
)
def test_worked_example(workload: str, slide_s: int, expected: str) -> None:
    marks = by_time(EXAMPLE, S, start_us=0)
    assert shown(run(workload, Parameters(slide=slide_s * S), EXAMPLE, marks)) == expected


def test_sessions_by_hand() -> None:
    """Two sessions of one key, an event between them that makes them one, and the end."""
    events = Events(np.zeros(3, np.int64), np.array([0, 15, 8]) * S)
    trace = run("session-incremental", Parameters(gap=10 * S), events, by_events(events, 100))
    # Key 1 is the metadata, 2 and 3 are the sessions.
    one = "G1 G2 P2 D1 M1"
    two = "G1 G3 P3 D1 M1 M1"
    three = "G1 G3 D3 G2 P2 G2 P2 D1 M1"
    assert shown(trace) == f"{one} {two} {three} G1 G2 D2 D1 D1"
    trace = run("session-holistic", Parameters(gap=10 * S), events, by_events(events, 100), value_sizes=7)
    assert shown(trace) == "G1 M2 D1 M1 G1 M3 D1 M1 M1 G1 G3 D3 M2 M2 D1 M1 G1 G2 D2 D1 D1"
    assert trace.value_sizes[trace.operations == Operation.MERGE].tolist() == [7, 20, 7, 20, 20, 7, 7, 20]


TIMES = st.integers(0, 40)
STREAMS = st.lists(
    st.tuples(st.integers(0, 3), TIMES, st.integers(0, 1), st.integers(0, 2), st.integers(1, 9)), max_size=60
)
PARAMETERS = st.builds(
    lambda bounds, **others: Parameters(lower=min(bounds), upper=max(bounds), **others),
    bounds=st.tuples(st.integers(-9, 9), st.integers(-9, 9)),
    window=st.integers(4, 12),
    slide=st.integers(1, 4),
    gap=st.integers(1, 8),
    lateness=st.sampled_from([0, 0, 3]),
    bucket=st.sampled_from([1, 3]),
)
MARKS = st.lists(st.tuples(st.integers(0, 60), st.integers(-5, 60)), max_size=12)


@pytest.mark.parametrize("workload", WORKLOADS)
@settings(max_examples=40)
@given(stream=STREAMS, parameters=PARAMETERS, marks=MARKS, in_order=st.booleans(), piece=st.integers(1, 80))
def test_equals_the_plain_one(
    workload: str, stream: list[Any], parameters: Parameters, marks: list[Any], in_order: bool, piece: int
) -> None:
    """Any events in any order, any watermarks anywhere, handed out in pieces of any size."""
    if in_order:
        stream = sorted(stream, key=lambda event: event[1])
    marks = sorted((min(place, len(stream)), value) for place, value in marks)
    columns = [np.array([event[at] for event in stream], np.int64) for at in range(5)]
    events = Events(columns[0], columns[1], columns[2].astype(np.uint8), columns[3].astype(np.uint8))
    watermarks = Watermarks(np.array([at for at, _ in marks], np.int64), np.array([v for _, v in marks], np.int64))
    trace = run(workload, parameters, events, watermarks, value_sizes=columns[4], piece=piece)
    by_place: dict[int, list[int]] = {}
    for place, value in marks:
        by_place.setdefault(place, []).append(value)
    expected = numbered(naive(workload, parameters, stream, by_place))
    found = [(LETTERS[o], int(k), int(s)) for o, k, s in zip(trace.operations, trace.keys, trace.value_sizes)]
    assert found == expected
    assert len(trace.events or []) == len(stream)


def stream(rows: int, seed: int = 3, keys: int = 50) -> Events:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(0.1, rows) * S).astype(np.int64)
    sides = (random.random(rows) < 0.7).astype(np.uint8)
    return Events(random.integers(0, keys, rows), times, sides, random.integers(1, 3, rows).astype(np.uint8))


def windows_of(events: Events, length: int, slide: int) -> int:
    """How many (key, window) pairs there are."""
    pairs = set()
    for key, time in zip(events.keys.tolist(), events.times.tolist()):
        first = max(0, (time - length) // slide + 1)
        pairs |= {(key, start) for start in range(first, time // slide + 1)}
    return len(pairs)


def test_formulas_hold() -> None:
    events = stream(3_000)
    marks = by_events(events, 100)
    rows = len(events)
    tumbling = windows_of(events, 5 * S, 5 * S)
    sliding = windows_of(events, 5 * S, S)
    inside = sum(min(5, time // S + 1) for time in events.times.tolist())  # windows of all events
    usual = Parameters()
    expected = {
        "tumbling-incremental": {"G": rows + tumbling, "P": rows, "M": 0, "D": tumbling},
        "tumbling-holistic": {"G": tumbling, "P": 0, "M": rows, "D": tumbling},
        "tumbling-join": {"G": tumbling, "P": 0, "M": rows, "D": tumbling},
        "sliding-incremental": {"G": inside + sliding, "P": inside, "M": 0, "D": sliding},
        "sliding-holistic": {"G": sliding, "P": 0, "M": inside, "D": sliding},
        "sliding-join": {"G": sliding, "P": 0, "M": inside, "D": sliding},
        "aggregation": {"G": rows, "P": rows, "M": 0, "D": 0},
    }
    for workload, numbers in expected.items():
        assert counts(run(workload, usual, events, marks)) == numbers, workload
    buckets = len(set(zip(events.sides.tolist(), events.keys.tolist(), (events.times // 1_000).tolist())))
    assert counts(run("interval-join", usual, events, marks)) == {"G": rows, "P": rows, "M": 0, "D": buckets}
    adds = int(((events.sides == 0) & (events.kinds == 1)).sum())
    ends = int(((events.sides == 0) & (events.kinds == 2)).sum())
    joins = counts(run("continuous-join", usual, events, marks))
    assert joins["P"] == adds and joins["D"] == adds + 2 * ends and joins["G"] == adds + int(events.sides.sum())


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if name.startswith(("tumbling", "sliding"))])
def test_a_window_is_read_and_deleted_once_at_its_end(workload: str) -> None:
    trace = run(workload, Parameters(), stream(2_000), by_events(stream(2_000), 50))
    of_key: dict[int, list[int]] = {}
    for operation, key in zip(trace.operations.tolist(), trace.keys.tolist()):
        of_key.setdefault(key, []).append(operation)
    for operations in of_key.values():
        assert operations.count(Operation.DELETE) == 1
        assert operations[-2:] == [Operation.GET, Operation.DELETE]


def test_times_follow_the_cause() -> None:
    events = Events(stream(500).keys, stream(500).times)
    trace = run("tumbling-incremental", Parameters(), events, by_events(events, 100))
    assert (np.diff(trace.times) >= 0).all()  # events and watermarks are in order, so what they cause is
    puts = trace.times[trace.operations == Operation.PUT]
    assert puts.tolist() == events.times.tolist()


def test_more_live_machines_than_there_was_room_for() -> None:
    rows = 300_000
    events = Events(np.arange(rows), np.arange(rows))
    trace = run("tumbling-holistic", Parameters(), events, by_events(events, 100))
    assert counts(trace) == {"G": rows, "P": 0, "M": rows, "D": rows}
    assert trace.keys[:rows].tolist() == list(range(rows))


@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_a_limit_cuts_the_trace_short(limit: int) -> None:
    events = stream(1_000)
    marks = by_events(events, 100)
    complete, cut = (run("sliding-holistic", Parameters(), events, marks, limit=one) for one in (None, limit))
    assert len(cut) == limit
    assert (cut.keys == complete.keys[:limit]).all() and (cut.operations == complete.operations[:limit]).all()
    assert len(cut.events or []) < len(events)


def test_too_many_windows_for_an_event_are_refused() -> None:
    operator = Windows(10 * S, 10, holistic=False)
    events = Events(np.zeros(1, np.int64), np.array([100 * S]))
    with pytest.raises(TailraceError, match=r"event 1 makes more than 65,536 state machines.*longer slide"):
        list(pieces(operator, events, by_events(events, 100)))


def test_an_operator_without_a_method_is_refused() -> None:
    class Half(tuple):
        def run(self) -> None: ...

    with pytest.raises(TailraceError, match="Half has no method assign_state_machines"):
        next(pieces(Half(), EXAMPLE, by_events(EXAMPLE, 100)))


def test_no_events_make_no_accesses() -> None:
    nothing = Events(np.empty(0, np.int64), np.empty(0, np.int64))
    for workload in WORKLOADS:
        assert len(run(workload, Parameters(), nothing, by_events(nothing, 100))) == 0


def test_columns_of_any_make_are_taken() -> None:
    """Read-only ones, as files give them, and ones with gaps."""
    events = stream(1_000)
    frozen = Events(events.keys[::2], events.times[::2])
    frozen.times.flags.writeable = False
    again = Events(events.keys[::2].copy(), events.times[::2].copy())
    one, other = (run("aggregation", Parameters(), each, by_events(each, 10)) for each in (frozen, again))
    assert one.keys.tolist() == other.keys.tolist() and one.times.tolist() == other.times.tolist()


@pytest.mark.parametrize("name", NON_KEYED)
@given(stream=STREAMS, parameters=PARAMETERS, every=st.integers(1, 7))
@settings(max_examples=15, deadline=None)
def test_over_the_whole_stream_all_events_have_one_key(
    name: str, stream: list[tuple[int, int, int, int, int]], parameters: Parameters, every: int
) -> None:
    columns = np.array(stream, np.int64).reshape(-1, 5)
    events = Events(columns[:, 0], columns[:, 1])
    marks = by_events(events, every)
    reported: dict[int, list[int]] = {}
    for at, value in zip(marks.at.tolist(), marks.values.tolist()):
        reported.setdefault(at, []).append(value)
    operator = NON_KEYED[name].operator(parameters)
    trace = joined(pieces(operator, events, marks, columns[:, 4], keyed=NON_KEYED[name].keyed))
    found = [
        (LETTERS[operation], key, size)
        for operation, key, size in zip(trace.operations.tolist(), trace.keys.tolist(), trace.value_sizes.tolist())
    ]
    same_key = [(0, time, 0, 0, size) for _, time, _, _, size in stream]
    assert found == numbered(naive(of_one_key(name), parameters, same_key, reported))
    if stream:
        assert trace.events is not None and trace.events.keys.max() == len(set(columns[:, 0].tolist())) - 1


def test_names_of_workloads() -> None:
    assert len(WORKLOADS) == 11 and len(NON_KEYED) == 7
    assert workload_called("tumbling.all.incremental") is NON_KEYED["tumbling-incremental-all"]
    assert workload_called("sliding.all.holistic") is NON_KEYED["sliding-holistic-all"]
    assert workload_called("session-holistic-all").operator is WORKLOADS["session-holistic"].operator
    for wrong in ("", "tumbling-join-all", "continuous.aggregation.all"):
        with pytest.raises(UnknownWorkloadError, match="aggregation-all"):
            workload_called(wrong)
