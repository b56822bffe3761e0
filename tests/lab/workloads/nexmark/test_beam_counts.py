"""The oracles give the row counts that Beam publishes for its SMOKE suite, on Beam's own events."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.lab.nexmark_beam import smoke, smoke_events
from tailrace.lab.workloads.nexmark.events.generator import auctions, bids, persons
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params

PARAMS = Params(window_ms=10_000, slide_ms=5_000, gap_ms=10_000)


@pytest.fixture(scope="module")
def large() -> pa.Table:
    return smoke_events(smoke(100_000))


@pytest.mark.parametrize(
    ("query", "rows"),
    [("q1", 92_000), ("q2", 351), ("q5", 12), ("q7-beam", 1), ("q8", 6_000), ("q11", 1_919), ("q12", 1_919)],
)
def test_published_counts(large: pa.Table, query: str, rows: int) -> None:
    assert answer(query, large, PARAMS).num_rows == rows


@pytest.mark.parametrize(("query", "rows"), [("q4-beam", 40), ("q9-beam", 298)])
def test_published_counts_of_the_closing_auctions(query: str, rows: int) -> None:
    assert answer(query, smoke_events(smoke(10_000)), PARAMS).num_rows == rows


def test_known_winners(large: pa.Table) -> None:
    base = smoke().base_time_ms
    hot: dict[int, set[tuple[int, int]]] = {}
    for row in answer("q5", large, PARAMS).to_pylist():
        offset = round(row["window_start"].timestamp() * 1000) - base
        hot.setdefault(offset, set()).add((row["num"], row["auction"]))
    assert hot == {
        -5_000: {(920, auction) for auction in (1000, 4300, 4600, 6700)},
        0: {(1565, 4200)},
        5_000: {(920, auction) for auction in (2400, 2700, 3000, 4200, 5100, 6300, 6900)},
    }
    [best] = answer("q7-beam", large, PARAMS).to_pylist()
    assert (best["price"], best["auction"], best["bidder"]) == (99_958_591, 3100, 1438)
    assert round(best["dateTime"].timestamp() * 1000) - base == 3_390


def test_ids_and_times_are_beam_s(large: pa.Table) -> None:
    """Everything that is not drawn at random is equal, event by event."""
    config = smoke(100_000)
    large_rows = large.sort_by("number")
    kinds = large_rows["event_type"].to_numpy()
    times = large_rows["dateTime"].cast(pa.int64()).to_numpy()
    for kind, make, id_ in ((0, persons, "person_id"), (1, auctions, "auction_id")):
        mine = make(config, 0, 100_000, ["id", "dateTime"]).sort_by("id")
        assert mine["id"].to_pylist() == [id for id in large_rows[id_].to_pylist() if id is not None]
        assert mine["dateTime"].cast(pa.int64()).to_pylist() == times[kinds == kind].tolist()
    assert sorted(bids(config, 0, 100_000, ["dateTime"])["dateTime"].cast(pa.int64()).to_pylist()) == sorted(
        times[kinds == 2].tolist()
    )
