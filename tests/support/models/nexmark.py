"""Every NEXMark query once more, in plain Python over lists of dicts: slow, and written without a look at the SQL.

Times are integers (milliseconds). Rows come in any order; ``number`` is the order of arrival.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from statistics import median
from typing import Any

from tailrace.lab.workloads.nexmark.params import Params

Row = dict[str, Any]


class House:
    """The events by kind, with the columns that the kinds have alone."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.persons: list[Row] = []
        self.auctions: list[Row] = []
        self.bids: list[Row] = []
        kinds = (("person", self.persons), ("auction", self.auctions), ("bid", self.bids))
        for row in rows:
            name, list_ = kinds[row["event_type"]]
            own = {key.removeprefix(name + "_"): value for key, value in row.items() if key.startswith(name + "_")}
            list_.append({**own, "dateTime": row["dateTime"], "number": row["number"]})


def pick(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


BID = ("auction", "bidder", "price", "dateTime", "extra")
FULL_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
AUCTION = (
    "id",
    "itemName",
    "description",
    "initialBid",
    "reserve",
    "dateTime",
    "expires",
    "seller",
    "category",
    "extra",
)


def groups(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def starts(time: int, length: int, slide: int) -> list[int]:
    """Starts of all windows that hold the time."""
    return [start for start in range(time // slide * slide, time - length, -slide) if start <= time < start + length]


def window(start: int, length: int) -> Row:
    return {"window_start": start, "window_end": start + length}


def sessions(house: House, gap: int) -> list[tuple[int, list[Row]]]:
    """(bidder, bids) of each session."""
    found = []
    for bidder, bids in groups(house.bids, lambda bid: bid["bidder"]).items():
        current: list[Row] = []
        for bid in sorted(bids, key=lambda bid: bid["dateTime"]):
            if current and bid["dateTime"] - current[-1]["dateTime"] >= gap:
                found.append((bidder, current))
                current = []
            current.append(bid)
        found.append((bidder, current))
    return found


def session_window(bids: list[Row], gap: int) -> Row:
    times = [bid["dateTime"] for bid in bids]
    return {"window_start": min(times), "window_end": max(times) + gap}


def tops(bids: list[Row]) -> list[Row]:
    best = max(bid["price"] for bid in bids)
    return [bid for bid in bids if bid["price"] == best]


def winners(house: House, counts: Callable[[Row, Row], bool]) -> list[tuple[Row, Row]]:
    found = []
    for auction in house.auctions:
        offers = [bid for bid in house.bids if bid["auction"] == auction["id"] and counts(auction, bid)]
        if offers:
            found.append((auction, min(offers, key=lambda bid: (-bid["price"], bid["dateTime"], bid["number"]))))
    return found


def flink(auction: Row, bid: Row) -> bool:
    return bool(auction["dateTime"] <= bid["dateTime"] <= auction["expires"])


def beam(auction: Row, bid: Row) -> bool:
    return bool(bid["dateTime"] < auction["expires"] and bid["price"] >= auction["reserve"])


def euro(price: int) -> Decimal:
    return Decimal(price) * Decimal("0.908")


def q0(house: House, p: Params) -> list[Row]:
    return [pick(bid, *BID) for bid in house.bids]


def q1(house: House, p: Params) -> list[Row]:
    return [{**pick(bid, *BID), "price": euro(bid["price"])} for bid in house.bids]


def q2(house: House, p: Params) -> list[Row]:
    return [pick(bid, "auction", "price") for bid in house.bids if bid["auction"] % p.auction_skip == 0]


def q3(house: House, p: Params) -> list[Row]:
    return [
        {**pick(person, "name", "city", "state"), "id": auction["id"]}
        for auction in house.auctions
        for person in house.persons
        if auction["seller"] == person["id"] and auction["category"] == p.category and person["state"] in "OR ID CA"
    ]


def q4(house: House, p: Params) -> list[Row]:
    prices = groups(
        [{"category": a["category"], "price": b["price"]} for a, b in winners(house, flink)], lambda r: r["category"]
    )
    return [
        {"category": category, "price": sum(r["price"] for r in rows) // len(rows)} for category, rows in prices.items()
    ]


def q4_beam(house: House, p: Params) -> list[Row]:
    prices: dict[tuple[int, int], list[int]] = defaultdict(list)
    for auction, bid in winners(house, beam):
        for start in starts(auction["expires"] - 1, p.window_ms, p.slide_ms):
            prices[auction["category"], start].append(bid["price"])
    return [
        {"category": category, "price": math.floor(sum(found) / len(found) + 0.5), **window(start, p.window_ms)}
        for (category, start), found in prices.items()
    ]


def q5(house: House, p: Params) -> list[Row]:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in house.bids:
        for start in starts(bid["dateTime"], p.window_ms, p.slide_ms):
            counts[start][bid["auction"]] += 1
    return [
        {"auction": auction, "num": n, **window(start, p.window_ms)}
        for start, per in counts.items()
        for auction, n in per.items()
        if n == max(per.values())
    ]


def q7(house: House, p: Params) -> list[Row]:
    place = groups(house.bids, lambda bid: (bid["bidder"], bid["dateTime"] // p.window_ms * p.window_ms))
    return [
        {**pick(bid, *BID), **window(start, p.window_ms)} for (_, start), bids in place.items() for bid in tops(bids)
    ]


def q7_beam(house: House, p: Params) -> list[Row]:
    place = groups(house.bids, lambda bid: bid["dateTime"] // p.window_ms * p.window_ms)
    return [{**pick(bid, *BID), **window(start, p.window_ms)} for start, bids in place.items() for bid in tops(bids)]


def q7_session(house: House, p: Params) -> list[Row]:
    return [
        {**pick(bid, *BID), **session_window(bids, p.gap_ms)}
        for _, bids in sessions(house, p.gap_ms)
        for bid in tops(bids)
    ]


def q8(house: House, p: Params) -> list[Row]:
    return [
        {**pick(person, "id", "name"), "reserve": auction["reserve"], **window(start, p.window_ms)}
        for person in house.persons
        for start in [person["dateTime"] // p.window_ms * p.window_ms]
        for auction in house.auctions
        if auction["seller"] == person["id"] and start <= auction["dateTime"] < start + p.window_ms
    ]


def _winner_rows(found: list[tuple[Row, Row]]) -> list[Row]:
    return [
        {
            **pick(auction, *AUCTION),
            **pick(bid, "auction", "bidder", "price"),
            "bid_dateTime": bid["dateTime"],
            "bid_extra": bid["extra"],
        }
        for auction, bid in found
    ]


def q9(house: House, p: Params) -> list[Row]:
    return _winner_rows(winners(house, flink))


def q9_beam(house: House, p: Params) -> list[Row]:
    return _winner_rows(winners(house, beam))


def q11(house: House, p: Params) -> list[Row]:
    found = sessions(house, p.gap_ms)
    return [{"bidder": bidder, "num": len(bids), **session_window(bids, p.gap_ms)} for bidder, bids in found]


def q11_median(house: House, p: Params) -> list[Row]:
    return [
        {
            "bidder": bidder,
            "price": float(median([bid["price"] for bid in bids])),
            **session_window(bids, p.gap_ms),
        }
        for bidder, bids in sessions(house, p.gap_ms)
    ]


def q12(house: House, p: Params) -> list[Row]:
    return [{"bidder": bidder, "num": n} for bidder, n in Counter(bid["bidder"] for bid in house.bids).items()]


def q13(house: House, p: Params) -> list[Row]:
    return [
        {**pick(bid, "auction", "bidder", "price", "dateTime"), "value": str(bid["auction"] % p.side_rows)}
        for bid in house.bids
    ]


def q14(house: House, p: Params) -> list[Row]:
    def part_of_day(hour: int) -> str:
        if 8 <= hour <= 18:
            return "dayTime"
        return "otherTime" if hour in (7, 19) else "nightTime"

    return [
        {
            **pick(bid, *BID),
            "price": euro(bid["price"]),
            "bidTimeType": part_of_day(moment(bid).hour),
            "c_counts": bid["extra"].count("c"),
        }
        for bid in house.bids
        if 1_000_000 < euro(bid["price"]) < 50_000_000
    ]


def moment(bid: Row) -> datetime:
    return datetime.fromtimestamp(bid["dateTime"] / 1000, UTC)


def day(bid: Row) -> str:
    return moment(bid).date().isoformat()


def rank(bid: Row) -> str:
    return "rank1" if bid["price"] < 10_000 else "rank2" if bid["price"] < 1_000_000 else "rank3"


def figures(bids: list[Row]) -> Row:
    found: Row = {}
    for name in ("total", "rank1", "rank2", "rank3"):
        mine = [bid for bid in bids if name in ("total", rank(bid))]
        found[f"{name}_bids"] = len(mine)
        found[f"{name}_bidders"] = len({bid["bidder"] for bid in mine})
        found[f"{name}_auctions"] = len({bid["auction"] for bid in mine})
    return found


def q15(house: House, p: Params) -> list[Row]:
    return [{"day": key, **figures(bids)} for key, bids in groups(house.bids, day).items()]


def q16(house: House, p: Params) -> list[Row]:
    return [
        {
            "channel": channel,
            "day": today,
            "minute": max(moment(bid).strftime("%H:%M") for bid in bids),
            **figures(bids),
        }
        for (channel, today), bids in groups(house.bids, lambda bid: (bid["channel"], day(bid))).items()
    ]


def q17(house: House, p: Params) -> list[Row]:
    found = []
    for (auction, today), bids in groups(house.bids, lambda bid: (bid["auction"], day(bid))).items():
        prices = [bid["price"] for bid in bids]
        found.append(
            {
                "auction": auction,
                "day": today,
                **{name: value for name, value in figures(bids).items() if name.endswith("_bids")},
                "min_price": min(prices),
                "max_price": max(prices),
                "avg_price": sum(prices) // len(prices),
                "sum_price": sum(prices),
            }
        )
    return found


def q18(house: House, p: Params) -> list[Row]:
    pairs = groups(house.bids, lambda bid: (bid["auction"], bid["bidder"]))
    return [pick(max(bids, key=lambda bid: (bid["dateTime"], bid["number"])), *FULL_BID) for bids in pairs.values()]


def q19(house: House, p: Params) -> list[Row]:
    found = []
    for bids in groups(house.bids, lambda bid: bid["auction"]).values():
        best = sorted(bids, key=lambda bid: (-bid["price"], bid["number"]))[: p.top]
        found += [{**pick(bid, *FULL_BID), "rank_number": place} for place, bid in enumerate(best, 1)]
    return found


def q20(house: House, p: Params) -> list[Row]:
    shared = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    return [
        {
            **pick(bid, "auction", "bidder", "price", "channel", "url"),
            "bid_dateTime": bid["dateTime"],
            "bid_extra": bid["extra"],
            **pick(auction, *shared),
            "auction_dateTime": auction["dateTime"],
            "auction_extra": auction["extra"],
        }
        for bid in house.bids
        for auction in house.auctions
        if bid["auction"] == auction["id"] and auction["category"] == p.category
    ]


def q21(house: House, p: Params) -> list[Row]:
    fixed = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    found = []
    for bid in house.bids:
        requested = dict(part.split("=") for part in bid["url"].split("?")[1].split("&"))
        channel = fixed.get(bid["channel"].lower(), requested.get("channel_id"))
        if channel is not None:
            found.append({**pick(bid, "auction", "bidder", "price", "channel"), "channel_id": channel})
    return found


def q22(house: House, p: Params) -> list[Row]:
    return [
        {
            **pick(bid, "auction", "bidder", "price", "channel"),
            **{f"dir{i}": bid["url"].split("/")[i + 2] for i in (1, 2, 3)},
        }
        for bid in house.bids
    ]


NAIVE: dict[str, Callable[[House, Params], list[Row]]] = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q4": q4,
    "q4-beam": q4_beam,
    "q5": q5,
    "q5-append": q5,
    "q7": q7,
    "q7-beam": q7_beam,
    "q7-session": q7_session,
    "q8": q8,
    "q9": q9,
    "q9-beam": q9_beam,
    "q11": q11,
    "q11-median": q11_median,
    "q12": q12,
    "q13": q13,
    "q14": q14,
    "q15": q15,
    "q16": q16,
    "q17": q17,
    "q18": q18,
    "q19": q19,
    "q20": q20,
    "q20-kept": q20,
    "q21": q21,
    "q22": q22,
}
