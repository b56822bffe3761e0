"""Sets of shards as half-open ranges: sorted, disjoint, never touching. Pure functions over tuples."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]


def normal(ranges: Iterable[Iterable[int]]) -> Ranges:
    """The same shards, sorted, with overlapping and touching ranges joined.

    >>> normal([(4, 6), (0, 2), (2, 3)])
    ((0, 3), (4, 6))
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted((start, end) for start, end in ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)


def of_shards(shards: Iterable[int]) -> Ranges:
    """
    >>> of_shards([5, 0, 1])
    ((0, 2), (5, 6))
    """
    return normal((shard, shard + 1) for shard in shards)


def members(ranges: Ranges) -> list[int]:
    return [shard for start, end in ranges for shard in range(start, end)]


def contains(ranges: Ranges, shard: int) -> bool:
    return any(start <= shard < end for start, end in ranges)


def size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)


def common(a: Ranges, b: Ranges) -> Ranges:
    """
    >>> common(((0, 4), (6, 9)), ((3, 7),))
    ((3, 4), (6, 7))
    """
    return normal((max(start, other_start), min(end, other_end)) for start, end in a for other_start, other_end in b)


def without(a: Ranges, b: Ranges) -> Ranges:
    """
    >>> without(((0, 10),), ((3, 5),))
    ((0, 3), (5, 10))
    """
    left = list(a)
    for cut_start, cut_end in b:
        left = [
            part
            for start, end in left
            for part in ((start, min(end, cut_start)), (max(start, cut_end), end))
            if part[0] < part[1]
        ]
    return normal(left)
