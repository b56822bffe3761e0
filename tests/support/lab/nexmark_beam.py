"""Beam's generator, draw by draw: numbers only, in plain Python, with java.util.Random's arithmetic.

Beam publishes how many rows each query gives for its SMOKE suite. Replaying its very events checks the oracles against
numbers that nobody here has computed.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA

_MASK = (1 << 48) - 1
_MULTIPLIER = 0x5DEECE66D


def smoke(events: int = 100_000, seed: int = 0) -> Config:
    """Beam's SMOKE suite: 100 generators, so ten seconds of event time for 100,000 events."""
    return Config(events=events, seed=seed, num_event_generators=100)


class JavaRandom:
    def __init__(self, seed: int) -> None:
        self.state = (seed ^ _MULTIPLIER) & _MASK

    def bits(self, count: int) -> int:
        self.state = (self.state * _MULTIPLIER + 0xB) & _MASK
        return self.state >> (48 - count)

    def below(self, bound: int) -> int:
        if bound & -bound == bound:
            return (bound * self.bits(31)) >> 31
        while True:
            drawn = self.bits(31)
            if drawn - drawn % bound + bound - 1 < 1 << 31:
                return drawn % bound

    def double(self) -> float:
        return ((self.bits(26) << 27) + self.bits(27)) / (1 << 53)

    def price(self) -> int:
        return int(10.0 ** (self.double() * 6.0) * 100.0 + 0.5)

    def skip_string(self, longest: int) -> None:
        for _ in range(3 + self.below(longest - 3)):
            if self.below(13):
                self.below(26)


def smoke_events(config: Config) -> pa.Table:
    """All events of a configuration with Beam's defaults, in the order of their ids, without strings."""
    assert config.events is not None
    block = config.events // config.num_event_generators
    delay_ms = config.num_event_generators * 1000 // config.first_event_rate
    horizon_ms = config.num_events_for_auctions * delay_ms
    rows = []
    for event in range(config.events):
        random = JavaRandom(event)
        time = config.base_time_ms + event % block * delay_ms
        round_, offset = divmod(event, 50)
        last_person = round_
        row = {"number": event, "dateTime": time}

        def cold_person(random: JavaRandom = random, people: int = last_person + 1) -> int:
            active = min(people, 1000)
            return people - active + random.below(active + 10)

        if offset == 0:
            row |= {"event_type": 0, "person_id": 1000 + last_person}
        elif offset <= 3:
            hot = random.below(4) > 0
            seller = last_person // 100 * 100 if hot else cold_person()
            category = random.below(5)
            initial = random.price()
            expires = time + 1 + random.below(max(2 * horizon_ms, 1))
            random.skip_string(20)
            random.skip_string(100)
            row |= {
                "event_type": 1,
                "auction_id": 1000 + round_ * 3 + offset - 1,
                "auction_initialBid": initial,
                "auction_reserve": initial + random.price(),
                "auction_expires": expires,
                "auction_seller": 1000 + seller,
                "auction_category": 10 + category,
            }
        else:
            last = round_ * 3 + 2
            oldest = max(last - 100, 0)
            auction = last // 100 * 100 if random.below(2) > 0 else oldest + random.below(last - oldest + 1 + 10)
            bidder = last_person // 100 * 100 + 1 if random.below(4) > 0 else cold_person()
            row |= {
                "event_type": 2,
                "bid_auction": 1000 + auction,
                "bid_bidder": 1000 + bidder,
                "bid_price": random.price(),
            }
        rows.append(row)
    return pa.Table.from_pylist(rows, EVENT_SCHEMA)
