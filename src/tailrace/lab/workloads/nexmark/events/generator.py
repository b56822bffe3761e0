"""Persons, auctions and bids for any range of sequence numbers, as Arrow tables; see ``config`` for what can be chosen.

A column is a function of the slots (ids, times, keys of the draws) that it is made for, so columns that nobody asks for
cost nothing, and a range gives the same rows however it is cut. Work goes in chunks that fit the processor's cache.
Pure functions: any number of threads or processes may generate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.events import config as rules
from tailrace.lab.workloads.nexmark.events.channels import COLD_CHANNELS, HOT_CHANNELS, channel_table
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.draws import Ints, Words, below, below_long, draw, event_keys, prices
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA, SCHEMAS, TIME, Kind, wide_name
from tailrace.lab.workloads.nexmark.events.strings import byte_lengths, from_bytes, padding, random_strings
from tailrace.lab.workloads.nexmark.events.times import event_times_ms, located

CHUNK_EVENTS = 1 << 15

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


class _Draw:
    """The draw numbers that each field owns. Strings use as many as they need, so their numbers are far apart."""

    SELLER_HOT, SELLER, CATEGORY, INITIAL_BID, EXPIRES, RESERVE = range(6)
    AUCTION_HOT, AUCTION, BIDDER_HOT, BIDDER, PRICE, CHANNEL_HOT, CHANNEL = range(7)
    NAME, CITY, STATE, CARD_HIGH, CARD_LOW = range(5)
    FIRST_STRING, SECOND_STRING, EXTRA = 100, 200, 1000


@dataclass(frozen=True, eq=False)
class Slots:
    """The events of one kind in a chunk: what every field is computed from."""

    config: Config
    ids: Ints
    numbers: Ints
    """Adjusted event numbers inside the generator."""
    epochs: Ints
    """How often the proportions have gone round before this event."""
    offsets: Ints
    """Place inside the round."""
    times_ms: Ints

    @cached_property
    def keys(self) -> Words:
        return event_keys(self.config.seed, self.ids)

    @cached_property
    def last_person(self) -> Ints:
        """The newest person, counted from 0."""
        people = self.config.person_proportion
        return self.epochs * people + np.minimum(self.offsets, people - 1)

    @cached_property
    def last_auction(self) -> Ints:
        people, auctions = self.config.person_proportion, self.config.auction_proportion
        inside = np.clip(self.offsets - people, -1, auctions - 1)
        return self.epochs * auctions + inside  # -1: the last one of the round before

    def draw(self, number: int) -> Words:
        return draw(self.keys, number)

    def strings(self, column: str) -> pa.Array:
        """A string column of these slots' own kind, made once though several fields look at its length."""
        cache = self._made
        if column not in cache:
            cache[column] = _STRINGS[column](self)
        return cache[column]

    @cached_property
    def _made(self) -> dict[str, pa.Array]:
        return {}


def _hot(slots: Slots, number: int, ratio: int, percent: int | None = None) -> NDArray[np.bool_]:
    if percent is not None:
        return below(slots.draw(number), 100) >= 100 - percent
    return below(slots.draw(number), ratio) > 0


def _cold_person(slots: Slots, number: int) -> Ints:
    """One of the newest people, or one of the next few that do not exist yet."""
    people = slots.last_person + 1
    active = np.minimum(people, slots.config.num_active_people)
    return people - active + below(slots.draw(number), active + rules.PERSON_ID_LEAD)


def _cold_auction(slots: Slots, number: int) -> Ints:
    last = slots.last_auction
    oldest = np.maximum(last - slots.config.num_in_flight_auctions, 0)
    return oldest + below(slots.draw(number), last - oldest + 1 + slots.config.auction_id_lead)


def _seller(slots: Slots) -> Ints:
    batch = slots.config.hot_seller_batch
    hot = _hot(slots, _Draw.SELLER_HOT, slots.config.hot_sellers_ratio)
    chosen = np.where(hot, slots.last_person // batch * batch, _cold_person(slots, _Draw.SELLER))
    return chosen + rules.FIRST_PERSON_ID


def _bid_auction(slots: Slots) -> Ints:
    batch = slots.config.hot_auction_batch
    hot = _hot(slots, _Draw.AUCTION_HOT, slots.config.hot_auction_ratio, slots.config.hot_auction_percent)
    chosen = np.where(hot, slots.last_auction // batch * batch, _cold_auction(slots, _Draw.AUCTION))
    return chosen + rules.FIRST_AUCTION_ID


def _bidder(slots: Slots) -> Ints:
    batch = slots.config.hot_bidder_batch
    hot = _hot(slots, _Draw.BIDDER_HOT, slots.config.hot_bidders_ratio, slots.config.hot_bidder_percent)
    hottest = slots.last_person // batch * batch + 1  # the next one: hot bidder and hot seller are two people
    return np.where(hot, hottest, _cold_person(slots, _Draw.BIDDER)) + rules.FIRST_PERSON_ID


def _expires(slots: Slots) -> Ints:
    """Uniform over twice the event time in which all auctions now in flight are replaced."""
    later = event_times_ms(slots.config, slots.numbers + slots.config.num_events_for_auctions)
    horizon = later - slots.times_ms
    return slots.times_ms + 1 + below_long(slots.draw(_Draw.EXPIRES), np.maximum(2 * horizon, 1))


def _initial_bid(slots: Slots) -> Ints:
    return prices(slots.draw(_Draw.INITIAL_BID))


def _chosen(values: Sequence[str], index: Ints) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(index))


def _name(slots: Slots) -> pa.Array:
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return _chosen(names, below(slots.draw(_Draw.NAME), len(names)))


def _email(slots: Slots) -> pa.Array:
    left = random_strings(slots.keys, _Draw.FIRST_STRING, 7)
    right = random_strings(slots.keys, _Draw.SECOND_STRING, 5)
    return pc.binary_join_element_wise(left, "@", right, ".com", "")


def _credit_card(slots: Slots) -> pa.Array:
    """Four groups of four digits: digits of two draws, written to their places in one matrix."""
    text = np.full((len(slots.ids), 19), ord(" "), np.uint8)
    for half, number in enumerate((_Draw.CARD_HIGH, _Draw.CARD_LOW)):
        rest = below(slots.draw(number), 100_000_000)
        for place in range(7, -1, -1):
            tens = rest // 10
            column = half * 10 + place + (place >= 4)
            text[:, column] = rest - tens * 10 + ord("0")
            rest = tens
    return from_bytes(np.full(len(slots.ids), 19, np.int64), text.reshape(-1))


def _person_extra(slots: Slots) -> pa.Array:
    used = np.full(len(slots.ids), 8, np.int64)
    for name in ("name", "emailAddress", "creditCard", "city", "state"):
        used += byte_lengths(slots.strings(name))
    return padding(slots.keys, _Draw.EXTRA, used, slots.config.avg_person_byte_size)


def _auction_extra(slots: Slots) -> pa.Array:
    used = 8 + 5 * 8 + byte_lengths(slots.strings("itemName")) + byte_lengths(slots.strings("description"))
    return padding(slots.keys, _Draw.EXTRA, used, slots.config.avg_auction_byte_size)


def _bid_channel(slots: Slots) -> Ints:
    hot = below(slots.draw(_Draw.CHANNEL_HOT), 2) > 0
    cold = len(HOT_CHANNELS) + below(slots.draw(_Draw.CHANNEL), COLD_CHANNELS)
    return np.where(hot, below(slots.draw(_Draw.CHANNEL), len(HOT_CHANNELS)), cold)


def _channel_column(column: str) -> Callable[[Slots], pa.Array]:
    def make(slots: Slots) -> pa.Array:
        return channel_table(slots.config.seed)[column].take(pa.array(_bid_channel(slots)))

    return make


_STRINGS: Mapping[str, Callable[[Slots], pa.Array]] = {
    "name": _name,
    "emailAddress": _email,
    "creditCard": _credit_card,
    "city": lambda slots: _chosen(CITIES, below(slots.draw(_Draw.CITY), len(CITIES))),
    "state": lambda slots: _chosen(STATES, below(slots.draw(_Draw.STATE), len(STATES))),
    "itemName": lambda slots: random_strings(slots.keys, _Draw.FIRST_STRING, 20),
    "description": lambda slots: random_strings(slots.keys, _Draw.SECOND_STRING, 100),
}

_COLUMNS: Mapping[Kind, Mapping[str, Callable[[Slots], Any]]] = {
    Kind.PERSON: {
        "id": lambda slots: slots.last_person + rules.FIRST_PERSON_ID,
        "name": lambda slots: slots.strings("name"),
        "emailAddress": lambda slots: slots.strings("emailAddress"),
        "creditCard": lambda slots: slots.strings("creditCard"),
        "city": lambda slots: slots.strings("city"),
        "state": lambda slots: slots.strings("state"),
        "dateTime": lambda slots: slots.times_ms,
        "extra": _person_extra,
    },
    Kind.AUCTION: {
        "id": lambda slots: slots.last_auction + rules.FIRST_AUCTION_ID,
        "itemName": lambda slots: slots.strings("itemName"),
        "description": lambda slots: slots.strings("description"),
        "initialBid": _initial_bid,
        "reserve": lambda slots: _initial_bid(slots) + prices(slots.draw(_Draw.RESERVE)),
        "dateTime": lambda slots: slots.times_ms,
        "expires": _expires,
        "seller": _seller,
        "category": lambda slots: rules.FIRST_CATEGORY_ID + below(slots.draw(_Draw.CATEGORY), rules.NUM_CATEGORIES),
        "extra": _auction_extra,
    },
    Kind.BID: {
        "auction": _bid_auction,
        "bidder": _bidder,
        "price": lambda slots: prices(slots.draw(_Draw.PRICE)),
        "channel": _channel_column("channel"),
        "url": _channel_column("url"),
        "dateTime": lambda slots: slots.times_ms,
        "extra": lambda slots: padding(slots.keys, _Draw.EXTRA, 32, slots.config.avg_bid_byte_size),
    },
}


def _chunks(config: Config, start: int, stop: int) -> Iterator[tuple[int, int]]:
    if not 0 <= start <= stop:
        raise TailraceError(f"NEXMark: events {start} to {stop} are no range; it must be 0 <= start <= stop")
    if config.events is not None and stop > config.events:
        raise TailraceError(f"NEXMark: events up to {stop} were asked of a configuration that has {config.events}")
    for low in range(start, stop, CHUNK_EVENTS):
        yield low, min(low + CHUNK_EVENTS, stop)


class _Chunk:
    """Events of consecutive sequence numbers, before they are divided by kind."""

    def __init__(self, config: Config, start: int, stop: int) -> None:
        self.config = config
        self.sequence: Ints = np.arange(start, stop, dtype=np.int64)
        self.numbers, self.ids = located(config, self.sequence)
        self.epochs = self.ids // config.total_proportion
        self.offsets = self.ids - self.epochs * config.total_proportion
        self.times_ms = event_times_ms(config, self.numbers)
        people = config.person_proportion
        self.kinds = (self.offsets >= people).astype(np.int32) + (self.offsets >= people + config.auction_proportion)

    def places(self, kind: Kind) -> Ints:
        return np.flatnonzero(self.kinds == kind)

    def slots(self, places: Ints) -> Slots:
        numbers = self.numbers[places]
        ids = numbers if self.ids is self.numbers else self.ids[places]
        return Slots(self.config, ids, numbers, self.epochs[places], self.offsets[places], self.times_ms[places])


def _column(kind: Kind, name: str, slots: Slots) -> pa.Array:
    made = _COLUMNS[kind][name](slots)
    return made if isinstance(made, pa.Array) else pa.array(made, SCHEMAS[kind].field(name).type)


def _asked(schema: pa.Schema, columns: Iterable[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    chosen = list(columns)
    unknown = [name for name in chosen if name not in schema.names]
    if unknown:
        raise TailraceError(f"NEXMark: no column {', '.join(unknown)}; there are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in chosen])


def _kind_table(config: Config, kind: Kind, start: int, stop: int, columns: Iterable[str] | None) -> pa.Table:
    schema = _asked(SCHEMAS[kind], columns)
    batches = []
    for low, high in _chunks(config, start, stop):
        chunk = _Chunk(config, low, high)
        slots = chunk.slots(chunk.places(kind))
        batches.append(pa.record_batch([_column(kind, name, slots) for name in schema.names], schema=schema))
    return pa.Table.from_batches(batches, schema)


def persons(config: Config, start: int, stop: int, columns: Iterable[str] | None = None) -> pa.Table:
    """The persons among the events with sequence numbers ``start`` to ``stop``, in that order."""
    return _kind_table(config, Kind.PERSON, start, stop, columns)


def auctions(config: Config, start: int, stop: int, columns: Iterable[str] | None = None) -> pa.Table:
    """The auctions among these events."""
    return _kind_table(config, Kind.AUCTION, start, stop, columns)


def bids(config: Config, start: int, stop: int, columns: Iterable[str] | None = None) -> pa.Table:
    """The bids among these events."""
    return _kind_table(config, Kind.BID, start, stop, columns)


def events(config: Config, start: int, stop: int, columns: Iterable[str] | None = None) -> pa.Table:
    """All these events as wide rows (``schema.EVENT_SCHEMA``)."""
    schema = _asked(EVENT_SCHEMA, columns)
    batches = [_wide(_Chunk(config, low, high), schema) for low, high in _chunks(config, start, stop)]
    return pa.Table.from_batches(batches, schema)


def _wide(chunk: _Chunk, schema: pa.Schema) -> pa.RecordBatch:
    made: dict[str, pa.Array] = {}
    for kind in Kind:
        wanted = [name for name in SCHEMAS[kind].names if name != "dateTime" and wide_name(kind, name) in schema.names]
        if not wanted:
            continue
        places = chunk.places(kind)
        slots = chunk.slots(places)
        where = np.zeros(len(chunk.sequence), np.int64)
        where[places] = np.arange(len(places))
        spread = pa.array(where, mask=chunk.kinds != kind)
        for name in wanted:
            made[wide_name(kind, name)] = _column(kind, name, slots).take(spread)
    common = {"number": chunk.sequence, "event_type": chunk.kinds, "dateTime": pa.array(chunk.times_ms, TIME)}
    return pa.record_batch([made.get(name, common.get(name)) for name in schema.names], schema=schema)
