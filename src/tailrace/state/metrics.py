"""What stores tell of themselves: counts by name, which add up over stores and servers.

All are since the store was made, but those that say how much there is now. The names are those of users' progress
reports (docs/reference/progress.md).
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
    """Of several stores together: sums, and of percentiles the largest.

    >>> added({"segments": 1}, {"segments": 2, "compactions": 1})
    {'segments': 3, 'compactions': 1}
    """
    total: Metrics = {}
    for part in parts:
        for name, value in part.items():
            before = total.get(name, 0)
            total[name] = max(before, value) if name.endswith(_PERCENTILE) else before + value
    return total
