"""The store advisor: from a trace alone, which store pattern and which cache size to use, and what that gains. Pure.

The pattern is the one that moves fewer bytes (`store_cost`): appending wins where values are added to many times and
read once, changing in place where each event reads what it writes. What is appended is aligned where most keys are read
for the last time together. The cache is the smallest that has nearly all of the hits which any cache could have
(`miss_ratio`). It knows the trace and nothing else: not what a disk costs, nor what else lies in memory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tailrace.lab.gadget.analysis.key_lives import active_keys
from tailrace.lab.gadget.analysis.miss_ratio import MissRatios, miss_ratios
from tailrace.lab.gadget.analysis.store_cost import StoreCosts, store_costs
from tailrace.lab.gadget.traces.trace import Trace

HIT_SHARE = 0.99
"""Of the hits of an unlimited cache, how many the advised one shall have."""

_POINTS = 12


@dataclass(frozen=True)
class CachePoint:
    entries: int
    bytes: int
    miss_ratio: float
    """First accesses among them."""
    avoidable_miss_ratio: float


@dataclass(frozen=True)
class Advice:
    pattern: str
    """RMW, AAR or AUR."""
    reason: str
    cache: CachePoint
    curve: tuple[CachePoint, ...]
    first_share: float
    """Of accesses, those that miss in any cache."""
    entry_bytes: float
    """Key and value of a live key, where most is held."""
    working_set_max: int
    bytes_gain: float
    """How many times fewer bytes the pattern moves than the other kind."""
    lookups_gain: float
    """How many times fewer places it looks up than a store that reads, modifies and writes."""
    reads_saved_share: float
    """Of reads that a store without a cache would do again, those that the advised cache saves."""
    costs: StoreCosts

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def advise(trace: Trace, hit_share: float = HIT_SHARE) -> Advice:
    costs, misses = store_costs(trace), miss_ratios(trace)
    pattern, reason = _pattern(costs)
    active = active_keys(trace)
    most = int(active.max()) if len(active) else 0
    entry_bytes = trace.key_bytes + (costs.live_bytes_max / most if most else 0.0)
    entries = misses.entries_for(hit_share)
    lookups = {"RMW": costs.rmw_lookups, "AAR": costs.aligned_lookups, "AUR": costs.unaligned_lookups}[pattern]
    others = (costs.append_bytes, costs.rmw_bytes) if pattern == "RMW" else (costs.rmw_bytes, costs.append_bytes)
    cache = _point(misses, entries, entry_bytes)
    again = 1 - misses.first_share
    return Advice(
        pattern=pattern,
        reason=reason,
        cache=cache,
        curve=tuple(_point(misses, each, entry_bytes) for each in _sizes(misses.entries_max, entries)),
        first_share=misses.first_share,
        entry_bytes=entry_bytes,
        working_set_max=most,
        bytes_gain=others[0] / others[1] if others[1] else 1.0,
        lookups_gain=costs.rmw_lookups / lookups if lookups else 1.0,
        reads_saved_share=1 - cache.avoidable_miss_ratio / again if again > 0 else 0.0,
        costs=costs,
    )


def _pattern(costs: StoreCosts) -> tuple[str, str]:
    if costs.rmw_bytes <= costs.append_bytes:
        return "RMW", "values are read about as often as they are written: changing them in place moves fewer bytes"
    if costs.aligned:
        return "AAR", "values are added to and read once, and most keys are read for the last time together"
    return "AUR", "values are added to and read once, each key at a time of its own"


def _sizes(entries_max: int, advised: int) -> list[int]:
    """Powers of two up to the largest that makes a difference, and the advised one."""
    powers = {1 << each for each in range(entries_max.bit_length())}
    kept = sorted(powers)[-_POINTS:]
    return sorted({*kept, entries_max, advised} - {0}) or [0]


def _point(misses: MissRatios, entries: int, entry_bytes: float) -> CachePoint:
    return CachePoint(entries, round(entries * entry_bytes), misses.ratio(entries), misses.avoidable(entries))
