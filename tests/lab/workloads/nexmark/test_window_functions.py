"""What Tailrace's versions do with the rows of a window, against plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lab.workloads.nexmark.queries import join_functions
from tailrace.lab.workloads.nexmark.queries import window_functions as functions

BIDS = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=20)
Bid = tuple[int, int, int]


def table(bids: list[Bid]) -> pa.Table:
    columns = {name: [bid[place] for bid in bids] for place, name in enumerate(("auction", "bidder", "price"))}
    return pa.table({**columns, "extra": [f"row {place}" for place in range(len(bids))]})


def extras(found: pa.Table) -> list[str]:
    return sorted(found["extra"].to_pylist())


@given(BIDS)
def test_highest_bids(bids: list[Bid]) -> None:
    best = max(price for _, _, price in bids)
    expected = [f"row {place}" for place, bid in enumerate(bids) if bid[2] == best]
    assert extras(functions.highest(table(bids))) == sorted(expected)


@given(BIDS)
def test_highest_bids_of_each_bidder(bids: list[Bid]) -> None:
    best = {bidder: max(bid[2] for bid in bids if bid[1] == bidder) for _, bidder, _ in bids}
    expected = [f"row {place}" for place, bid in enumerate(bids) if bid[2] == best[bid[1]]]
    assert extras(functions.highest_of_each_bidder(table(bids))) == sorted(expected)


@given(BIDS)
def test_most_bids(bids: list[Bid]) -> None:
    counted = functions.bids_of_each_auction(table(bids))
    counts = Counter(auction for auction, _, _ in bids)
    assert dict(zip(counted["auction"].to_pylist(), counted["num"].to_pylist(), strict=True)) == counts
    most = functions.most_bids(counted)
    expected = {auction: num for auction, num in counts.items() if num == max(counts.values())}
    assert dict(zip(most["auction"].to_pylist(), most["num"].to_pylist(), strict=True)) == expected


SESSIONS = st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=20)


@given(SESSIONS)
def test_highest_bids_of_each_session(bids: list[tuple[int, int, int, int]]) -> None:
    """The fourth number says in which of its bidder's sessions a bid is. Bids of a session come together."""
    bids = sorted(bids, key=lambda bid: (bid[3], bid[1]))
    starts = pa.array([bid[3] for bid in bids], pa.timestamp("us", tz="UTC"))
    windows = pa.StructArray.from_arrays([starts, starts], ["start", "end"])
    rows = table([bid[:3] for bid in bids]).append_column("window", windows)
    best = {(bid[1], bid[3]): max(one[2] for one in bids if (one[1], one[3]) == (bid[1], bid[3])) for bid in bids}
    expected = [f"row {place}" for place, bid in enumerate(bids) if bid[2] == best[bid[1], bid[3]]]
    found = functions.highest_of_each_session(rows)
    assert extras(found) == sorted(expected) and found.schema == rows.schema


@pytest.mark.parametrize("function", [functions.highest, functions.highest_of_each_bidder])
def test_no_rows_are_no_rows(function: Any) -> None:
    assert function(table([(0, 0, 0)]).slice(0, 0)).num_rows == 0


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8), max_size=4))
def test_bids_meet_auctions_that_came_before_or_with_them(batches: list[list[tuple[int, bool]]]) -> None:
    """Rows are auctions and whether a bid is meant; an auction opens once."""
    kept: dict[int, int] = {}  # auction to its seller
    pairs, expected, number = [], [], 0
    for batch in batches:
        opened = {auction: 100 + auction for auction, is_bid in batch if not is_bid and auction not in kept}
        rows = sorted((auction, True, at) for at, (auction, is_bid) in enumerate(batch, number) if is_bid)
        rows = sorted([*rows, *((auction, False, -1) for auction in opened)])
        number += len(batch)
        if not rows:
            continue
        ids = sorted({row[0] for row in rows})
        reported, state = join_functions.with_auctions(
            pa.table(
                {
                    "auction": pa.array([row[0] for row in rows], pa.int64()),
                    "bidder": pa.array([row[2] if row[1] else None for row in rows], pa.int64()),
                    "seller": pa.array([None if row[1] else opened[row[0]] for row in rows], pa.int64()),
                }
            ),
            pa.table(
                {"auction": pa.array(ids, pa.int64()), "seller": pa.array([kept.get(i) for i in ids], pa.int64())}
            ),
        )
        kept |= opened
        assert dict(zip(state["auction"].to_pylist(), state["seller"].to_pylist(), strict=True)) == {
            auction: kept[auction] for auction in ids if auction in kept
        }
        pairs += [tuple(row.values()) for row in reported.select(["auction", "bidder", "seller"]).to_pylist()]
        expected += [(row[0], row[2], kept[row[0]]) for row in rows if row[1] and row[0] in kept]
    assert sorted(pairs) == sorted(expected)
