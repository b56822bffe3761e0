"""What operators report of their stores, and what follows from that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from tailrace.state import metrics as names
from tailrace.state.metrics import Metrics, added


@runtime_checkable
class Measured(Protocol):
    """An operator that reports what its stores have done."""

    def metrics(self) -> Metrics: ...


def metrics_of(operator: object) -> Metrics:
    return operator.metrics() if isinstance(operator, Measured) else {}


def with_ratios(parts: Iterable[Mapping[str, float]]) -> Metrics:
    """Of all servers together, and the ratios that only all of it gives.

    ``prefetchHitRatio``: of the lists on disk that were read, those that had been read ahead. ``spaceAmplification``:
    bytes on disk for each that is needed.
    """
    total = added(*map(dict, parts))
    asked = total.get(names.HITS, 0) + total.get(names.MISSES, 0)
    if asked:
        total["prefetchHitRatio"] = total[names.HITS] / asked
    disk_bytes, live_bytes = (total.pop(name, 0) for name in (names.DISK_BYTES, names.DISK_LIVE_BYTES))
    if live_bytes:
        total["spaceAmplification"] = disk_bytes / live_bytes
    return {name: round(value, 4) for name, value in total.items()}
