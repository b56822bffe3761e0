"""Metrics of stores: counts by name, which add up over stores and servers.

They count from when the store was made, except those that say how much there is now. The names are those of the
progress reports of queries (docs/reference/progress.md).
"""

from __future__ import annotations

Metrics = dict[str, float]

_PERCENTILE = "P99"

HITS, MISSES = "prefetchHits", "prefetchMisses"
DISK_LIVE_BYTES = "diskLiveBytes"
DISK_BYTES = "diskBytes"
SEGMENTS = "segments"
COMPACTIONS = "compactions"
COMPACTION_CPU_MS = "compactionCpuMs"
BYTES_READ, BYTES_WRITTEN = "bytesRead", "bytesWritten"


def added(*parts: Metrics) -> Metrics:
    """The metrics of several stores together: sums, and the largest of percentiles.

    >>> added({"segments": 1}, {"segments": 2, "compactions": 1})
    {'segments': 3, 'compactions': 1}
    """
    total: Metrics = {}
    for part in parts:
        for name, value in part.items():
            before = total.get(name, 0)
            total[name] = max(before, value) if name.endswith(_PERCENTILE) else before + value
    return total
