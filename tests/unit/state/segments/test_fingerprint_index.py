"""Candidate positions by fingerprints: what a look at every record would give, in the promised order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.stores.spilled_keys import LAYOUT, NO_HORIZON, SpilledKeys
from tailrace.env.files.scratch import temporary_folder
from tailrace.state.layout import HASH, PANE
from tailrace.state.rows.rows import Rows
from tailrace.state.segments.fingerprint_index import IndexAt, candidate_positions
from tailrace.state.segments.segment import FINGERPRINTS

SHARDS, PANES = 3, 3
_PLACES = st.sampled_from(
    [(0, 0, 0), (0, 0, 5), (0, 0, FINGERPRINTS - 1), (0, 2, 5), (1, 0, 5), (2, 1, 77_777), (2, 1, 77_778), (2, 2, 0)]
)
_RECORDS = st.lists(st.tuples(_PLACES, st.booleans()).map(lambda drawn: (*drawn[0], drawn[1])), max_size=12)
_ROWS = st.lists(_PLACES | st.tuples(st.integers(0, SHARDS - 1), st.integers(-1, PANES), st.just(5)), max_size=6)

Record = tuple[int, int, int, bool]


class Segment:
    """A segment of records (shard, pane, fingerprint, whether it is dead)."""

    def __init__(self, records: list[Record]) -> None:
        self.records = sorted(records)
        cells = sorted({(shard, pane) for shard, pane, _, _ in records})
        places = [[at for at, record in enumerate(self.records) if record[:2] == cell] for cell in cells]
        columns = [[*cell, own[0], own[-1] + 1] for cell, own in zip(cells, places, strict=True)]
        shards, panes, lo, hi = np.array(columns, np.int64).reshape(-1, 4).T.copy()
        fingerprints = np.array(
            [fingerprint | (FINGERPRINTS if dead else 0) for _, _, fingerprint, dead in self.records], np.uint32
        )
        self.index_at = IndexAt.of(shards, panes, lo, hi, fingerprints)


def rows_of(wanted: list[tuple[int, int, int]]) -> tuple[Rows, np.ndarray]:
    """Rows (shard, pane, fingerprint), ascending, and bounds."""
    words = np.zeros((len(wanted), LAYOUT.words), np.int64)
    fingerprints = np.array([fingerprint for _, _, fingerprint in wanted], np.uint64)
    words[:, HASH] = ((fingerprints << np.uint64(33) | np.uint64(12_345)) ^ np.uint64(1 << 63)).view(np.int64)
    words[:, PANE] = [pane for _, pane, _ in wanted]
    bounds = np.searchsorted([shard for shard, _, _ in wanted], np.arange(SHARDS + 1))
    return Rows(words, np.empty(0, np.uint8)), bounds


def looked_through(
    segments: list[list[Record]], wanted: list[tuple[int, int, int]], horizon: int, once: bool
) -> list[tuple[int, int, int]]:
    """Segment, position and row of all that match."""
    found: list[tuple[int, int, int]] = []
    for which, records in enumerate(segments):
        known = {row for _, _, row in found} if once else set()
        found += [
            (which, at, row)
            for at, (*place, dead) in enumerate(sorted(records))
            for row, (shard, pane, fingerprint) in enumerate(wanted)
            if not dead and place == [shard, pane, fingerprint] and pane >= horizon and row not in known
        ]
    return sorted(found)


@settings(max_examples=300)
@given(st.lists(_RECORDS, max_size=5), _ROWS.map(sorted), st.sampled_from([NO_HORIZON, 0, 1]), st.booleans())
def test_places_are_those_of_all_live_records_with_the_tag(
    records: list[list[Record]], wanted: list[tuple[int, int, int]], horizon: int, once: bool
) -> None:
    got = candidate_positions([Segment(own) for own in records], *rows_of(wanted), horizon, once=once)
    want = looked_through(records, wanted, horizon, once)
    if len(want) > 64:  # there may be no room for all
        return
    assert got.rows is not None
    assert list(zip(got.which.tolist(), got.at.tolist(), got.rows.tolist(), strict=True)) == want
    assert np.flatnonzero(got.any).tolist() == sorted({row for _, _, row in want})


def test_where_too_many_share_a_fingerprint_it_is_reported_and_a_hint_leaves_that_segment_out() -> None:
    crowded: list[Record] = [(0, 0, 7, False)] * 50 + [(0, 0, 8, False)] * 50
    few: list[Record] = [(0, 0, 7, False), (0, 0, 8, False), (0, 0, 9, False)]
    segments, wanted = [Segment(few[2:]), Segment(crowded), Segment(few)], [(0, 0, 7), (0, 0, 8), (0, 0, 9)]
    all_ = candidate_positions(segments, *rows_of(wanted), NO_HORIZON)
    assert all_.rows is None
    assert all_.any.tolist() == [True, True, True]
    hinted = candidate_positions(segments, *rows_of(wanted), NO_HORIZON, once=True)
    assert hinted.rows is not None
    found = list(zip(hinted.which.tolist(), hinted.at.tolist(), hinted.rows.tolist(), strict=True))
    assert found == [(0, 0, 2), (2, 0, 0), (2, 1, 1)]


def test_records_of_a_shard_that_is_gone_are_not_found_again() -> None:
    with temporary_folder() as folder:
        store = SpilledKeys(folder, shards=2)
        store.put(np.arange(10))
        assert store.found(np.arange(10)).tolist() == list(range(10))
        store.spilled.drop_shard(0)
        assert store.found(np.arange(10)).tolist() == [1, 3, 5, 7, 9]
        store.spilled.close()


def test_records_that_are_taken_after_a_rewriting_are_not_found_again() -> None:
    """During compaction, copies are followed by fingerprints that lie elsewhere afterwards."""
    with temporary_folder() as folder:
        store = SpilledKeys(folder, shards=2)
        for first in (0, 10):
            store.put(np.arange(first, first + 10))
        store.spilled.reads.slow = True  # copies are kept, for which there is room
        store.spilled.reads._cache.resize(1 << 20)
        assert len(store.found(np.arange(20))) == 20
        store.spilled._replace(list(store.spilled._segments))
        assert store.take(0, np.arange(5)) == 5
        assert store.found(np.arange(20)).tolist() == list(range(5, 20))
        assert store.take(1, np.arange(20)) == 15
        store.spilled.close()
