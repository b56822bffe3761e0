"""Ads, their campaigns, and events about them, from the parameters and the seed alone: the same in every process.

Ads are asked for by a Zipf law over their ranks; which ad has which rank changes after every ``hot_events`` events,
where that is not 0. Ads beyond the last known one are in no campaign. Events come in the order of their times, one
every 1/``rate`` seconds. Pure but for what is kept of the Zipf law; single-threaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lab.registry import Batch, Parameter, Settings, Value

FEED = "events"
VALUE = "value"
SCHEMA = f"{VALUE} string"
START_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
WINDOW_S = 10
TYPES = ("view", "click", "purchase")
_AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
_PEOPLE = _PAGES = 100
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_TEXT_BYTES = 36

PARAMETERS: Mapping[str, Parameter] = {
    "ads": Parameter(100_000, "different ads, each with a key in Redis"),
    "ads_a_campaign": Parameter(10, "ads of one campaign"),
    "skew": Parameter(1.0, "exponent of the Zipf law by which ads are asked for; 0 for all alike"),
    "hot_events": Parameter(0, "after so many events other ads are the hot ones; 0 for never"),
    "unknown": Parameter(0, "of a hundred events, those about ads that Redis does not have"),
    "rate": Parameter(50_000, "events of a second of event time"),
    "all_fields": Parameter(False, "all seven fields of an event, 250 bytes, instead of the three that are needed"),
}


def ad_ids(numbers: np.ndarray) -> pa.Array:
    """Texts of 36 bytes that look like random ids."""
    return _ids(numbers, salt=1)


def campaign_ids(numbers: np.ndarray) -> pa.Array:
    return _ids(numbers, salt=2)


def table(values: Mapping[str, Value]) -> pa.Table:
    """Every known ad with its campaign."""
    numbers = np.arange(int(values["ads"]))
    return pa.table({"ad_id": ad_ids(numbers), "campaign_id": campaign_ids(numbers // int(values["ads_a_campaign"]))})


def inputs(settings: Settings) -> Iterator[Batch]:
    for begin in range(0, settings.events, settings.rows):
        end = min(begin + settings.rows, settings.events)
        yield {FEED: pa.table({VALUE: events(settings.values, settings.seed, begin, end)})}


def events(values: Mapping[str, Value], seed: int, begin: int, end: int) -> pa.Array:
    """Events ``begin`` to ``end`` as texts of JSON, all of whose values are texts."""
    rng = np.random.default_rng((seed, begin))
    count = end - begin
    times = START_MS + np.arange(begin, end) * 1000 // int(values["rate"])
    fields = {
        "ad_id": ad_ids(_asked(values, seed, rng, begin, end)),
        "event_type": pa.array(TYPES).take(pa.array(rng.integers(0, len(TYPES), count))),
        "event_time": pa.array(times).cast(pa.string()),
    }
    if not values["all_fields"]:
        return _json(fields)
    fields |= {
        "user_id": _ids(rng.integers(0, _PEOPLE, count), salt=3),
        "page_id": _ids(rng.integers(0, _PAGES, count), salt=4),
        "ad_type": pa.array(_AD_TYPES).take(pa.array(rng.integers(0, len(_AD_TYPES), count))),
        "ip_address": pa.array(["1.2.3.4"]).take(pa.array(np.zeros(count, np.int64))),
    }
    order = ("user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address")
    return _json({name: fields[name] for name in order})


def _asked(values: Mapping[str, Value], seed: int, rng: np.random.Generator, begin: int, end: int) -> np.ndarray:
    ads = int(values["ads"])
    ranks = np.searchsorted(_shares(ads, float(values["skew"])), rng.random(end - begin), side="right")
    if hot := int(values["hot_events"]):
        # Those that were asked for least are the next to be hot: a cache knows nothing of them.
        ranks = (ranks - np.arange(begin, end) // hot * (ads // 3 + 1)) % ads
    numbers = _order(ads, seed)[np.minimum(ranks, ads - 1)]
    unknown = rng.random(end - begin) * 100 < int(values["unknown"])
    return np.where(unknown, ads + numbers, numbers)


@cache
def _shares(ads: int, skew: float) -> np.ndarray:
    """Up to which part of all events the ads of each rank have."""
    weights = np.arange(1, ads + 1, dtype=np.float64) ** -skew
    ends = np.cumsum(weights)
    shares: np.ndarray = ends / ends[-1]
    return shares


@cache
def _order(ads: int, seed: int) -> np.ndarray:
    """Which ad has which rank: hot ones are of different campaigns."""
    return np.random.default_rng((seed, 1)).permutation(ads)


def _ids(numbers: np.ndarray, salt: int) -> pa.Array:
    low = _mixed(numbers.astype(np.uint64) * np.uint64(8) + np.uint64(salt))
    high = _mixed(low)
    letters = np.empty((len(numbers), _TEXT_BYTES), np.uint8)
    places = [place for place in range(_TEXT_BYTES) if place not in _DASHES]
    letters[:, _DASHES] = ord("-")
    for n, place in enumerate(places):
        half, shift = (low, n) if n < 16 else (high, n - 16)
        letters[:, place] = _HEX[(half >> np.uint64(4 * shift) & np.uint64(15)).astype(np.int64)]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * _TEXT_BYTES
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(letters))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """64 bits that depend on all bits of a number, one to one."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _json(fields: Mapping[str, pa.Array]) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    before = "{"
    for name, column in fields.items():
        parts += [pa.scalar(f'{before}"{name}": "'), column]
        before = '", '
    return pc.binary_join_element_wise(*parts, pa.scalar('"}'), "")
