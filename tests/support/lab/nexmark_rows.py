"""Small auction houses made by hand: wide rows for chosen bids, auctions and people."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA


def bid_rows(*bids: tuple[int, int, int, int]) -> pa.Table:
    """Bids of (time, auction, bidder, price), in this order of arrival."""
    rows = [
        {
            "number": number,
            "event_type": 2,
            "dateTime": time,
            "bid_auction": auction,
            "bid_bidder": bidder,
            "bid_price": price,
            "bid_extra": f"row {number}",
            "bid_channel": "Apple",
            "bid_url": "https://a/b/c/d/item.htm?query=1",
        }
        for number, (time, auction, bidder, price) in enumerate(bids)
    ]
    return pa.Table.from_pylist(rows, EVENT_SCHEMA)


def house_rows(auctions: list[tuple[int, int, int, int, int]], bids: list[tuple[int, int, int, int]]) -> pa.Table:
    """Persons 1 to 3 who joined at 1, 2 and 3; auctions of (time, life, seller, category, reserve); bids as above."""
    first = 1_000_000  # far from 0, so that no window begins before the epoch
    others: list[dict[str, Any]] = [
        {"event_type": 0, "dateTime": first + id, "person_id": id, "person_name": f"P{id}", "person_city": "Bend"}
        | {"person_state": ("OR", "WA", "CA")[id - 1]}
        for id in (1, 2, 3)
    ]
    others += [
        {"event_type": 1, "dateTime": first + time, "auction_id": id, "auction_expires": first + time + life}
        | {"auction_seller": seller, "auction_category": category, "auction_reserve": reserve}
        for id, (time, life, seller, category, reserve) in enumerate(auctions, 1)
    ]
    offered = bid_rows(*[(first + time, *rest) for time, *rest in bids])
    numbered = [{**row, "number": len(bids) + place} for place, row in enumerate(others)]
    return pa.concat_tables([offered, pa.Table.from_pylist(numbered, EVENT_SCHEMA)])
