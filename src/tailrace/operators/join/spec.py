"""What tasks and servers need to know to run a join of two streams: plain data that travels as JSON.

Both inputs come united, as rows of one layout: the keys, then ``__side`` (false: left, true: right), ``__time`` (the
row's event time, never null where the join has a watermark), the left columns and the right columns, those of the other
side null. Rows with a null among their keys match nothing.

A row is late, and does not come, where its time lies before the watermark of the epoch before (the smaller of both
inputs'), or at it; in a window join, where all its windows had ended by it. An operator may still hand over rows at its
watermark (``output_delay``): these are not late.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.spec import SIDE, TIME, FinalRowsSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field, window_of

LEFT, RIGHT = 0, 1
SPAN_MAX = 2**60
"""Times are computed in 64 bits: spans up to this (36,000 years) leave room for them."""


class JoinKind(StrEnum):
    """When two rows of one key belong together. The names are kept in checkpoints."""

    INTERVAL = "interval_join"  # left.time + lower <= right.time <= left.time + upper
    WINDOW = "window_join"  # both lie in one window: one pair for each such window
    CONTINUOUS = "continuous_join"  # one row's time lies in [time, valid_to) of the other
    TTL = "ttl_join"  # always, until one is forgotten


class How(StrEnum):
    """Which rows a join gives. The names are kept in checkpoints."""

    INNER = "inner"  # pairs
    LEFT_OUTER = "left_outer"  # and left rows without a match
    RIGHT_OUTER = "right_outer"
    FULL_OUTER = "full_outer"
    LEFT_SEMI = "left_semi"  # left rows with a match, once


_OUTER_SIDES = {How.LEFT_OUTER: (LEFT,), How.RIGHT_OUTER: (RIGHT,), How.FULL_OUTER: (LEFT, RIGHT)}


@dataclass(frozen=True)
class JoinSpec(FinalRowsSpec):
    """``ttl``: a row is forgotten once the watermark is more than so much after its time; None: not for that reason.

    Names of keys, left and right columns, and of what is put beside them, are those of the output. A semi join has only
    the right columns that it looks at.
    """

    operator: ClassVar[str] = "join"

    name: str
    keys: tuple[Field, ...]
    left: tuple[Field, ...]
    right: tuple[Field, ...]
    kind: JoinKind
    how: How
    shards: int
    watermarked: bool  # False: nothing is ever forgotten, no window closes
    lower: Micros | None = None  # interval: bounds of right.time - left.time, both inclusive; None: none
    upper: Micros | None = None
    ttl: Micros | None = None
    window: TimeWindowSpec | None = None
    window_name: str = "window"
    valid_to: str | None = None  # continuous: the column with the exclusive end of a row's validity; null: no end
    valid_side: int = LEFT  # whose column that is
    time_type: DataType = TIMESTAMP
    times: tuple[str, str] | None = None  # the inputs' own names of their event time, left and right
    time_name: str | None = None  # name of an output column with each row's event time
    handed_over: tuple[bool, bool] = (False, False)  # left, right: rows come from another operator

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise AnalysisError(f"join {self.name}: {problem}")

    def _problem(self) -> str | None:
        names = [field.name for field in (*self.keys, *self.left, *self.right)]
        names += [name for name in (self.time_name, self.window_name if self.window else None) if name is not None]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            return f"the output would have two columns named {', '.join(twice)}; rename one with .alias()"
        if not self.keys:
            return "there is no key; a join needs an equality between both sides"
        if (self.kind is JoinKind.WINDOW) != (self.window is not None):
            return "a window belongs to a window join, and to no other"
        if any(span is not None and abs(span) > SPAN_MAX for span in (self.lower, self.upper, self.ttl)):
            return f"a bound is longer than {SPAN_MAX} microseconds"
        if self.ttl is not None and self.ttl < 0:
            return f"the ttl is negative ({self.ttl} microseconds)"
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            return f"the lower bound ({self.lower} microseconds) is above the upper one ({self.upper})"
        if self.kind is not JoinKind.INTERVAL and (self.lower is not None or self.upper is not None):
            return "bounds belong to an interval join"
        if (self.kind is JoinKind.CONTINUOUS) != (self.valid_to is not None):
            return "a column with the end of validity belongs to a continuous join, and to no other"
        if self.valid_to is not None:
            found = [field for field in self.columns(self.valid_side) if field.name == self.valid_to]
            if not found or not found[0].type.is_time:
                return f"{self.valid_to} is not a timestamp column of the {('left', 'right')[self.valid_side]} side"
        return None

    @property
    def outer_sides(self) -> tuple[int, ...]:
        """The sides whose rows are given, with nulls, where they match nothing."""
        return _OUTER_SIDES.get(self.how, ())

    @property
    def semi(self) -> bool:
        """Whether left rows are given, once, that match anything."""
        return self.how is How.LEFT_SEMI

    def columns(self, side: int) -> tuple[Field, ...]:
        return self.right if side == RIGHT else self.left

    # Rows ------------------------------------------------------------------------------------------------------------

    @property
    def time_column(self) -> Field:
        return Field(TIME, self.time_type)

    @property
    def rows(self) -> tuple[Field, ...]:
        """The value columns of a united row."""
        return (Field(SIDE, DataType("boolean")), self.time_column, *self.left, *self.right)

    @property
    def timed(self) -> bool:
        """Whether rows need an event time: all but those of a join by key alone that forgets nothing."""
        return self.watermarked or self.kind is not JoinKind.TTL

    def kept_layout(self) -> RecordLayout:
        """Of what is kept: what is sent and, where rows with a match are distinguished from others, a number."""
        types = [row.type for row in self.rows] + ([BIGINT] if self.numbered else [])
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    @property
    def numbered(self) -> bool:
        return self.how is not How.INNER and self.kind is not JoinKind.WINDOW

    # Output ----------------------------------------------------------------------------------------------------------

    @property
    def emits(self) -> tuple[Field, ...]:
        window = [] if self.window is None else [Field(self.window_name, window_of(self.time_type))]
        time = [] if self.output_time is None else [self.output_time]
        return (*window, *self.keys, *self.left, *(() if self.semi else self.right), *time)

    @property
    def distinguishing(self) -> tuple[str, ...]:
        keys = {key.name for key in self.keys}
        return tuple(field.name for field in self.emits if field.name not in keys)

    def narrowed(self, reads: Collection[str]) -> JoinSpec:
        needed = {*reads, self.valid_to}
        left, right = (tuple(field for field in side if field.name in needed) for side in (self.left, self.right))
        return replace(self, left=left, right=right)

    def why_not_recordable(self) -> str | None:
        return None if self.kind is JoinKind.WINDOW else super().why_not_recordable()

    # Time ------------------------------------------------------------------------------------------------------------

    def life(self, side: int) -> Micros | None:
        """How long after its time a row may still match one that comes: until the watermark is beyond time + life.

        None: for ever. Of rows with a validity of their own, this is only what the ttl leaves.
        """
        if self.kind is JoinKind.CONTINUOUS:
            return self.ttl if side == self.valid_side else Micros(0)
        ends = [self.ttl]
        if self.kind is JoinKind.INTERVAL and side == LEFT:
            ends.append(self.upper)
        elif self.kind is JoinKind.INTERVAL and self.lower is not None:
            ends.append(Micros(-self.lower))
        return min((end for end in ends if end is not None), default=None)

    @property
    def output_time(self) -> Field | None:
        """The output column with each row's event time.

        Of a pair that is the later of both times; of a row without a match, or of a semi join, its own; in window joins
        the window's last microsecond.
        """
        return None if self.time_name is None else Field(self.time_name, self.time_type)

    @property
    def output_delay(self) -> Micros | None:
        """No row that is emitted in a later epoch has an event time before this epoch's watermark minus this.

        0 but for rows that wait for a match, in vain where the join is outer; and but for the event times of rows that
        have waited, where they are the output's. None: no such span exists, since rows may wait for ever; give the join
        a ttl.
        """
        owns = self.window is None and self.time_name is None
        if not self.numbered and not owns:
            return Micros(0)  # a later pair has a later row in it, and no row is late
        longest = Micros(0)
        for side in (LEFT, RIGHT) if owns else (LEFT,) if self.semi else self.outer_sides:
            life = self.life(side)
            if life is not None:
                longest = max(longest, life)
            elif owns or self.semi or (self.kind is JoinKind.CONTINUOUS and self.valid_side == side):
                return None
            # Else there is no end, and nothing is ever emitted for want of a match.
        return longest
