"""Which runs are merged: a pure rule over their sizes.

The newest eight or more become one as soon as the largest of them is at most a quarter of all. So each merge puts a
row into a run at least four times as large: it is rewritten logarithmically often, and the number of runs stays
logarithmic. Only neighbours are merged, which keeps the order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence

FAN_IN = 8
GROWTH = 4
SMALL_BYTES = 64 << 10
"""Below this, size does not matter: what a small run costs is looking at it."""


def newest_to_merge(sizes: Sequence[int]) -> int:
    """How many of the newest (the last) to merge now; 0 for none.

    >>> newest_to_merge([1 << 30] + [1 << 20] * 8)
    8
    >>> newest_to_merge([1 << 20] * 7)
    0
    """
    total = largest = 0
    for count, bytes_ in enumerate(reversed(sizes), start=1):
        size = max(bytes_, SMALL_BYTES)
        total, largest = total + size, max(largest, size)
        if count >= FAN_IN and total >= GROWTH * largest:
            return count
    return 0
