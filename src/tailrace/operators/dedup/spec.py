"""What tasks and servers need to know to drop duplicates: plain data that travels as JSON.

The first row of a key is emitted, whole, in the epoch in which it comes; those that come while the key is remembered
are not. Of several in one epoch, the first is the one with the smallest event time, then the first by partition and
order; one without an event time comes after those with one.

With a time-to-live in processing time a key is remembered until an epoch begins so long after the one that has emitted
its row. In event time that is what ``within`` and ``delay`` say.

A row is late, and does not come, where its time is at or before the watermark of the epoch before, as in Spark. Rows
that another operator hands over may have that very time: then they are late only below it, and all that the watermark
decides is decided a microsecond later.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.spec import HintTarget, WholeRowsSpec
from tailrace.operators.timers.ttl import Ttl
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import TIMESTAMP, Field

_SECOND = 1_000_000


class Memory(StrEnum):
    """How long a key is remembered."""

    FOREVER = "forever"
    KEY_TIME = "key_time"  # until the watermark reaches the event time, which is one of the keys
    WITHIN = "within"  # until it reaches the event time of the row that was emitted, and the delay
    SINCE = "since"  # until an epoch begins the time-to-live after the one that has emitted its row

    @property
    def has_one_pane(self) -> bool:
        """Whether the pane of a key's record follows from the key, so that one look finds it."""
        return self in (Memory.FOREVER, Memory.KEY_TIME)


@dataclass(frozen=True)
class DeduplicateSpec(WholeRowsSpec):
    operator: ClassVar[str] = "deduplicate"

    watermarked: bool
    within: bool  # remember a key for the watermark's delay after its row's event time
    delay: Micros  # of the watermark; 0 without one
    handed_over: bool  # rows come from another operator
    shards: int
    ttl: Ttl | None = None  # in processing time

    @property
    def memory(self) -> Memory:
        if self.ttl is not None:
            return Memory.SINCE
        if not self.watermarked:
            return Memory.FOREVER
        if self.within:
            return Memory.WITHIN
        return Memory.KEY_TIME if self.time_column in self.keys else Memory.FOREVER

    def mark(self, watermark: int) -> int:
        """The watermark as it is compared with event times: rows at or before it are late, keys go."""
        return watermark - 1 if self.handed_over and watermark > MIN_MICROS else watermark

    @property
    def pane(self) -> Micros:
        """Keys that are forgotten about the same time lie in one pane, and go together: at most so much too late."""
        if self.ttl is not None:
            return Micros(max(_SECOND, self.ttl.span // 4))
        return Micros(max(_SECOND, self.delay // (4 if self.within else 8)))

    def kept_layout(self) -> RecordLayout:
        """Of what is kept: the keys and, where it does not follow from the key, until when, or since when."""
        timed = self.memory in (Memory.WITHIN, Memory.SINCE)
        return record_layout(self.keys, [(Merge.MAX, TIMESTAMP)] if timed else [], ansi=False)

    # As every operator ----------------------------------------------------------------------------------------------

    @property
    def sends_rows(self) -> bool:
        return False  # tasks drop duplicates too

    @property
    def emits(self) -> tuple[Field, ...]:
        return self.columns

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)  # of keys with one hash; a key is emitted once in an epoch

    @property
    def state_ttl(self) -> Ttl | None:
        return self.ttl

    def hint_target(self) -> HintTarget | None:
        """Keys that are forgotten lie by when that will be, which is more than a row's key and time say."""
        return HintTarget() if self.memory is Memory.FOREVER else None
