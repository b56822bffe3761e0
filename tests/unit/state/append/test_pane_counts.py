"""Rows by ranges of panes: exact for few panes, within one range for many."""

from __future__ import annotations

import numpy as np

from tailrace.state.append.pane_counts import RANGES, PaneCounts


def test_few_panes_are_counted_exactly() -> None:
    rng = np.random.default_rng(1)
    panes, rows, sizes = rng.integers(-5, 5, 300), rng.integers(1, 9, 300), rng.integers(1, 10**6, 300)
    counts = PaneCounts(panes, int(panes.max()))
    counts.add(panes, rows, sizes)
    gone = rng.random(300) < 0.4
    counts.add(panes[gone], -rows[gone], -sizes[gone])
    for pane in range(-7, 8):
        stays = ~gone & (panes >= pane)
        assert counts.rows_from(pane) == rows[stays].sum()
        assert counts.bytes_from(pane) == sizes[stays].sum()
        assert (
            counts.counted_from(panes[stays], pane).all() and not counts.counted_from(panes[panes < pane], pane).any()
        )


def test_many_panes_are_counted_up_to_one_range() -> None:
    rng = np.random.default_rng(2)
    panes = np.concatenate([rng.integers(0, 10**6, 99_000), rng.integers(10**12, 10**13, 1000)])
    rng.shuffle(panes)
    rows = np.ones(len(panes), np.int64)
    counts = PaneCounts(panes, int(panes.max()))
    for part in np.split(np.arange(len(panes)), 10):
        counts.add(panes[part], rows[part], rows[part])
    assert counts.nbytes <= 24 * (RANGES + 20)
    for pane in [0, 1, 10, *rng.integers(0, 10**6, 50).tolist(), 10**6, 10**12, 2**63 - 1]:
        right = int((panes >= pane).sum())
        found = counts.rows_from(pane)
        assert right <= found <= right + 3 * len(panes) // RANGES, "a range is about a 256th; samples are no census"
        assert counts.counted_from(panes, pane).sum() == found


def test_nothing_is_counted_where_there_is_nothing() -> None:
    counts = PaneCounts(np.empty(0, np.int64), -(2**63))
    assert counts.rows_from(-(2**63)) == counts.rows_from(0) == counts.bytes_from(0) == 0
