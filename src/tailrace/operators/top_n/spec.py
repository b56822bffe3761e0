"""What tasks and servers need to know to give the best rows of each group: plain data that travels as JSON.

Over all time, and over windows that end for all keys at once, only the best rows so far are kept. Of other windows all
rows are, until the window ends, and the best are chosen then.

Rows are ordered by the columns asked for, then by event time (earlier is better), then by all other kept columns
(smaller is better); null is smaller than anything, NaN larger. Of rows that are equal in all of these it does not
matter which is which.

With a time-to-live a group is forgotten that no row has come for: any row keeps it, also one that is not among the
best. Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tailrace.operators.aggregate.accumulators import STAMP, Accumulator, AccumulatorInput
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.pattern import Pattern
from tailrace.operators.spec import HintTarget, SpecBase, column_names
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.windows.any_window import AnyWindowSpec
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import TIMESTAMP, DataType, Field

_INT = DataType("int")


@dataclass(frozen=True)
class Order:
    column: str
    ascending: bool


@dataclass(frozen=True)
class TopNSpec(SpecBase):
    operator: ClassVar[str] = "top_n"

    name: str
    keys: tuple[Field, ...]
    rows: tuple[Field, ...]  # what is kept of a row beside the keys: shown, ordered by, event time
    shown: tuple[str, ...]  # those of ``rows`` that are emitted, in order
    order: tuple[Order, ...]  # by columns of ``rows``, the most important first
    n: int
    rank: str  # name of the output column with 1 to n
    window: AnyWindowSpec | None
    window_name: str  # name of the output struct column (start, end) and, with keys, where it stands:
    window_position: int  # before keys[window_position]
    time_column: Field | None
    emit_changed: bool
    watermarked: bool
    shards: int
    # Of groups without a window, and of windows by count.
    ttl: Ttl | None = None
    # Name of an output column with the largest event time of *all* rows of the group, the best or not.
    latest: str | None = None

    @property
    def time_window(self) -> TimeWindowSpec | None:
        """Tumbling or sliding windows; None: there are none, or they are of another kind."""
        return self.window if isinstance(self.window, TimeWindowSpec) else None

    @property
    def keeps_rows(self) -> bool:
        """Whether all rows are kept until their window ends."""
        return self.window is not None and self.time_window is None

    @property
    def sends_rows(self) -> bool:
        return self.keeps_rows  # else tasks leave out what is not among the best of their own

    def layout(self) -> RecordLayout:
        """Of what is sent: rows as they are."""
        if self.keeps_rows:
            return self.kept().layout()
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)

    def section_layout(self) -> RecordLayout:
        """Of sections where only the best are kept: rows and, with a time-to-live, when the group was last updated."""
        types = [row.type for row in self.rows] + ([] if self.ttl is None else [TIMESTAMP])
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    def kept(self) -> AggregateSpec:
        """What is kept, as an aggregation over the same windows: all rows, or one record a key and pane, the best rows
        packed in one value.

        With a time-to-live a record has a second value, when the group was last updated.
        """
        packed = Accumulator(Merge.ROW, AccumulatorInput.VALUE, None, DataType("binary"))
        records = AggregateSpec(
            name=self.name,
            keys=self.keys,
            accumulators=(packed,) if self.ttl is None else (packed, STAMP),
            outputs=(),
            window=self.window,
            window_name=self.window_name,
            window_position=self.window_position,
            time_column=self.time_column,
            emit_changed=self.emit_changed,
            watermarked=self.watermarked,
            ansi=False,
            shards=self.shards,
        )
        if not self.keeps_rows:
            return records
        return replace(records, accumulators=(), rows=self.rows, store=Pattern.AUR, ttl=self.ttl)

    # As every operator ----------------------------------------------------------------------------------------------

    @property
    def reads(self) -> tuple[str, ...]:
        return column_names((*self.keys, *self.rows), self.time_column)

    @property
    def takes_window_start(self) -> bool:
        return self.time_window is not None and self.time_window.lasts is not None

    @property
    def emits(self) -> tuple[Field, ...]:
        time = None if self.time_column is None else self.time_column.type
        groups = list(self.keys)
        if self.window is not None:
            groups.insert(self.window_position, Field(self.window_name, self.window.output_type(time)))
        by_name = {row.name: row for row in self.rows}
        shown = [*(by_name[name] for name in self.shown), Field(self.rank, _INT)]
        if self.latest is not None:
            assert time is not None
            shown.append(Field(self.latest, time))
        return (*groups, *shown)

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return (*(() if self.window is None else (self.window_name,)), self.rank)

    @property
    def state_ttl(self) -> Ttl | None:
        return self.ttl

    @property
    def late_by_ttl(self) -> bool:
        in_time = isinstance(self.window, CountWindowSpec) and self.window.in_time
        return self.ttl is not None and self.ttl.clock is Clock.EVENT and not in_time

    def passes_through(self, column: Field) -> bool:
        return column in self.keys or (column in self.rows and column in self.emits)

    def hint_target(self) -> HintTarget | None:
        if not self.keys or self.takes_window_start or self.keeps_rows:
            return None
        return HintTarget(None if self.time_window is None else self.time_window.panes)

    def without_code(self) -> TopNSpec:
        return self if self.window is None else replace(self, window=self.window.without_code())

    def for_tasks(self) -> TopNSpec:
        """With the function that tasks call: that of the user's windows."""
        return self if self.window is None else replace(self, window=self.window.for_tasks())
