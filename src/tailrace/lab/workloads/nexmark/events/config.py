"""What the generator makes: proportions, rates, hot ratios, sizes. Frozen; two equal configurations make equal events.

Names and defaults are those of Beam's suite, in snake case; only ``num_event_generators`` is 1 instead of 100, and
``events`` may be left open. What Beam fixes as constants (the batches of 100 that share a hot auction, a hot seller or
a hot bidder, how far ahead of auctions bids may be) can be set, because workloads in the literature change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.errors import TailraceError

FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID = 10
NUM_CATEGORIES = 5
PERSON_ID_LEAD = 10
"""So many ids of people that do not exist yet may be drawn: a bid may come before its bidder."""
AUCTION_ID_LEAD = 10

_MICROS = 1_000_000
SCATTER = 953
"""Multiplier of the out-of-order rule; it is prime, so it permutes every group whose size it does not divide."""

BYTE_SIZE_MAX = 20_000


class RateShape(StrEnum):
    SQUARE = "square"
    SINE = "sine"


@dataclass(frozen=True)
class Config:
    events: int | None = None
    """All events of all generators; needed with several generators, which share the event ids in equal blocks."""
    seed: int = 0
    num_event_generators: int = 1

    first_event_rate: int = 10_000
    """Events a second, of all generators together."""
    next_event_rate: int = 10_000
    rate_shape: RateShape = RateShape.SINE
    rate_period_sec: int = 600
    base_time_ms: int = 1_436_918_400_000  # 2015-07-15 00:00:00 UTC
    out_of_order_group_size: int = 1

    person_proportion: int = 1
    auction_proportion: int = 3
    bid_proportion: int = 46

    hot_auction_ratio: int = 2
    """A bid goes to the hot auction with probability 1 - 1/ratio; so too the other two ratios."""
    hot_sellers_ratio: int = 4
    hot_bidders_ratio: int = 4
    hot_auction_percent: int | None = None
    """How many bids of a hundred go to the hot auction, instead of the ratio: 50 gives the events that a ratio of 2
    does. So too the other one."""
    hot_bidder_percent: int | None = None
    hot_auction_batch: int = 100
    """The hot auction is the first of its batch of so many auctions."""
    hot_seller_batch: int = 100
    hot_bidder_batch: int = 100
    num_in_flight_auctions: int = 100
    num_active_people: int = 1000
    auction_id_lead: int = AUCTION_ID_LEAD
    """So many auctions that do not exist yet may be bid on. With 0 every bid comes after its auction."""

    avg_person_byte_size: int = 200
    avg_auction_byte_size: int = 500
    avg_bid_byte_size: int = 100

    def __post_init__(self) -> None:
        for name in (
            "num_event_generators",
            "first_event_rate",
            "next_event_rate",
            "rate_period_sec",
            "out_of_order_group_size",
            "person_proportion",
            "auction_proportion",
            "bid_proportion",
            "hot_auction_ratio",
            "hot_sellers_ratio",
            "hot_bidders_ratio",
            "hot_auction_batch",
            "hot_seller_batch",
            "hot_bidder_batch",
            "num_in_flight_auctions",
            "num_active_people",
        ):
            if getattr(self, name) < 1:
                raise TailraceError(f"NEXMark: {name} is {getattr(self, name)}; it must be at least 1")
        for name in ("hot_auction_percent", "hot_bidder_percent"):
            percent = getattr(self, name)
            if percent is not None and not 0 <= percent <= 100:
                raise TailraceError(f"NEXMark: {name} is {percent}; it must be within 0 .. 100")
        if self.auction_id_lead < 0:
            raise TailraceError(f"NEXMark: auction_id_lead is {self.auction_id_lead}; it must be at least 0")
        for size in (self.avg_person_byte_size, self.avg_auction_byte_size, self.avg_bid_byte_size):
            if not 0 <= size <= BYTE_SIZE_MAX:
                raise TailraceError(f"NEXMark: a mean size of {size} bytes; it must be within 0 .. {BYTE_SIZE_MAX}")
        for rate in (self.first_event_rate, self.next_event_rate):
            if rate > 2 * _MICROS:
                raise TailraceError(
                    f"NEXMark: a rate of {rate} events a second leaves less than half a microsecond between "
                    f"events, which rounds to none; use at most {2 * _MICROS}"
                )
        group = self.out_of_order_group_size
        if group > 1 and group % SCATTER == 0:
            raise TailraceError(
                f"NEXMark: out_of_order_group_size {group} is a multiple of {SCATTER}, which loses events"
            )
        if self.events is not None and self.events < self.num_event_generators:
            raise TailraceError(
                f"NEXMark: {self.events} events are too few for {self.num_event_generators} generators; raise events"
            )
        if self.num_event_generators > 1:
            if self.events is None:
                raise TailraceError("NEXMark: several generators cut the event ids in blocks, so events must be given")
            block, rest = divmod(self.events, self.num_event_generators)
            if group > 1 and (block % group or rest):
                raise TailraceError(
                    f"NEXMark: {self.events} events over {self.num_event_generators} generators are no whole number of "
                    f"out-of-order groups of {group}; ids would be given out twice. Choose events as a multiple of both"
                )

    @property
    def total_proportion(self) -> int:
        return self.person_proportion + self.auction_proportion + self.bid_proportion

    @property
    def num_events_for_auctions(self) -> int:
        """After so many events the auctions that are in flight now have been replaced by new ones."""
        return self.num_in_flight_auctions * self.total_proportion // self.auction_proportion
