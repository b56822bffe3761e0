"""Compaction groups: how many segments a compaction writes, so that none has to rewrite all spilled records.

A group is the shards whose numbers leave one remainder. While there is little on disk, there is one group with every
shard. As the bytes grow, compactions write a segment for each of two groups, four, and so on: a finer group lies inside
a coarser one, so that every segment stays in one group. Segments are merged within their group. Evicted records are of
every shard, and are split into groups as soon as so much is merged that this makes no small segments: each segment
costs a search in every batch, and four open files. Where groups are finer than they need be by now, those that lie in
one coarser group are merged together.

Threads: pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPACTION_GROUP_BYTES = 256 << 20
"""A group may hold so much before there are more of them."""
COMPACTION_GROUPS_MAX = 8
PART_SHARE = 16
"""A compaction is not split where its parts would be smaller than ``COMPACTION_GROUP_BYTES`` over this."""


@dataclass(frozen=True)
class CompactionGroup:
    """The shards that leave ``number`` when they are divided by ``count``, a power of two.

    >>> CompactionGroup(4, 1).cut(8), CompactionGroup(8, 7).within(2)
    ([CompactionGroup(count=8, number=1), CompactionGroup(count=8, number=5)], CompactionGroup(count=2, number=1))
    """

    count: int
    number: int

    def within(self, count: int) -> CompactionGroup:
        """The group that this one lies in where there are no more than so many."""
        fewer = min(self.count, count)
        return CompactionGroup(fewer, self.number % fewer)

    def cut(self, count: int) -> list[CompactionGroup]:
        """The groups that this one consists of where there are no fewer than so many."""
        more = max(self.count, count)
        return [CompactionGroup(more, number) for number in range(self.number, more, self.count)]

    def parted(self, count: int, bytes_: int) -> list[CompactionGroup]:
        """The groups to which so many bytes of this one are written, where there are so many groups."""
        finer = self.cut(count)
        return finer if bytes_ * PART_SHARE >= len(finer) * COMPACTION_GROUP_BYTES else [self]

    def holds(self, shard: int) -> bool:
        return shard % self.count == self.number


EVERY = CompactionGroup(1, 0)
"""Every shard."""


def compaction_groups_for(disk_bytes: int) -> int:
    """How many groups so many bytes are compacted in."""
    count = 1
    while count < COMPACTION_GROUPS_MAX and disk_bytes > count * COMPACTION_GROUP_BYTES:
        count *= 2
    return count
