"""Panes of windows against a count of every moment, and how many there are where a slide does not divide the size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.window_scenario import TYPES, Row, batch_of, spec_of
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.registry import ingest_of
from tailrace.operators.resources import Resources
from tailrace.operators.windows.time_window import TimeWindowSpec

SECOND = 1_000_000
DAY = 86_400 * SECOND


@st.composite
def windows(draw: st.DrawFn) -> TimeWindowSpec:
    slide = draw(st.integers(1, 15))
    size = draw(st.integers(slide, 60))
    return TimeWindowSpec(Micros(size), Micros(slide), Micros(draw(st.integers(0, slide - 1))))


@settings(max_examples=100, deadline=None)
@given(windows(), st.integers(-200, 200))
def test_panes_are_the_widest_spans_that_no_window_cuts(window: TimeWindowSpec, first: int) -> None:
    times = np.arange(first, first + 150)
    starts = [
        {s for s in range(window.offset - 300 * window.slide, t + 1, window.slide) if t < s + window.size}
        for t in times
    ]
    panes = window.panes.of(times)
    for at in range(1, len(times)):
        same_windows = starts[at] == starts[at - 1]
        assert (panes[at] == panes[at - 1]) == same_windows
    assert (panes <= times).all()
    at, found = window.holding(panes, -(10**6))
    for number, held in enumerate(starts):
        assert set(found[at == number].tolist()) == held
    start = int(min(starts[75]))
    inside = np.arange(start, start + window.size)
    assert (start + window.pane_offsets).tolist() == np.unique(window.panes.of(inside)).tolist()


@pytest.mark.parametrize(("slide", "panes"), [(3601 * SECOND, 47), (3600 * SECOND, 24), (7 * 3600 * SECOND, 7)])
@pytest.mark.parametrize("changed", [False, True])
def test_a_day_by_any_slide_keeps_few_records(slide: int, panes: int, changed: bool) -> None:
    """A record for each second in which a key has rows would be forty times as many."""
    window = TimeWindowSpec(Micros(DAY), Micros(slide), Micros(0))
    spec = spec_of(("n", "total"), window=window, rows=(), emit_changed=changed)
    operator = WindowAggregate(spec, range(spec.shards), Resources(threads=1))
    assert len(window.pane_offsets) == panes
    rows: list[Row] = [(str(key), minute * 60 * SECOND, 1, None) for key in range(20) for minute in range(3 * 1440)]
    operator.apply(0, [ingest_of(spec, MIN_MICROS, True, TYPES).frame([batch_of(rows)])])
    assert operator.rows <= 20 * 3 * (panes + 2)
    found = pa.Table.from_batches(operator.advance(0, MIN_MICROS, 3 * DAY))
    full = [row["total"] for row in found.to_pylist() if row["window"]["start"].timestamp() >= 0]
    whole = 20 * ((2 * DAY) // slide + 1)
    assert full.count(1440) == whole
    operator.close()
