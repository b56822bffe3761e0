"""Lanes: how many segments a merge of cold records is written to, so that none has to rewrite all of them.

A lane is the shards whose numbers leave one remainder. While there is little on disk, there is one lane with every
shard. As the bytes grow, merges write a segment for each of two lanes, four, and so on: a finer lane lies inside a
coarser one, so that every segment stays in one lane. Segments are merged within their lane. What leaves memory is of
every shard, and is parted into lanes as soon as so much is merged that this makes no small segments: each costs a look
in every batch, and four open files. Where lanes are finer than they need be by now, those that lie in one coarser lane
are merged together.

Threads: pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPACTION_GROUP_BYTES = 256 << 20
"""A lane may hold so much before there are more of them."""
COMPACTION_GROUPS_MAX = 8
PART_SHARE = 16
"""A merge is not parted where its parts would be smaller than ``COMPACTION_GROUP_BYTES`` over this."""


@dataclass(frozen=True)
class CompactionGroup:
    """The shards that leave ``number`` when they are divided by ``count``, a power of two.

    >>> Lane(2, 1).cut(8), Lane(8, 7).within(2), Lane(8, 7).cut(2)
    ([Lane(count=8, number=1), Lane(count=8, number=3), Lane(count=8, number=5), Lane(count=8, number=7)],\
 Lane(count=2, number=1), [Lane(count=8, number=7)])
    """

    count: int
    number: int

    def within(self, count: int) -> CompactionGroup:
        """The lane that this one lies in where there are no more than so many."""
        fewer = min(self.count, count)
        return CompactionGroup(fewer, self.number % fewer)

    def cut(self, count: int) -> list[CompactionGroup]:
        """The lanes that this one consists of where there are no fewer than so many."""
        more = max(self.count, count)
        return [CompactionGroup(more, number) for number in range(self.number, more, self.count)]

    def parted(self, count: int, bytes_: int) -> list[CompactionGroup]:
        """The lanes to which so many bytes of this one are written, where there are so many lanes."""
        finer = self.cut(count)
        return finer if bytes_ * PART_SHARE >= len(finer) * COMPACTION_GROUP_BYTES else [self]

    def holds(self, shard: int) -> bool:
        return shard % self.count == self.number


EVERY = CompactionGroup(1, 0)
"""Every shard."""


def compaction_groups_for(disk_bytes: int) -> int:
    """How many lanes so many bytes are merged in."""
    count = 1
    while count < COMPACTION_GROUPS_MAX and disk_bytes > count * COMPACTION_GROUP_BYTES:
        count *= 2
    return count
