"""What tasks and servers need to know to keep the best rows of each key: plain data that travels as JSON.

Over all time, and over windows that end for all keys at once: of other windows all rows are kept until they end, see
``aggregate``. What makes a row better, ``best`` says.

With a time-to-live a group is forgotten that no row has come for: any row keeps it, also one that is not among the
best. Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.spec import HintTarget, SpecBase, column_names
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.top_n.best_spec import Order
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import TIMESTAMP, DataType, Field, window_of

_INT = DataType("int")


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
    window: TimeWindowSpec | None
    window_name: str  # name of the output struct column (start, end) and, with keys, where it stands:
    window_position: int  # before keys[window_position]
    time_column: Field | None
    emit_changed: bool
    watermarked: bool
    shards: int
    ttl: Ttl | None = None  # of groups without a window

    def layout(self) -> RecordLayout:
        """Of what is sent: rows as they are."""
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)

    def section_layout(self) -> RecordLayout:
        """Of sections: rows and, with a time-to-live, behind each when its group was last updated."""
        types = [row.type for row in self.rows] + ([] if self.ttl is None else [TIMESTAMP])
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    def records(self) -> AggregateSpec:
        """What is kept, as an aggregation over the same windows: one record a key and pane, its rows packed in one.

        With a time-to-live there is a second value, when the group was last updated.
        """
        packed = Accumulator(Merge.ROW, AccumulatorInput.VALUE, None, DataType("binary"))
        updated = Accumulator(Merge.MAX, AccumulatorInput.STAMP, None, TIMESTAMP)
        return AggregateSpec(
            name=self.name,
            keys=self.keys,
            accumulators=(packed,) if self.ttl is None else (packed, updated),
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

    # As every operator ----------------------------------------------------------------------------------------------

    @property
    def keeps_rows(self) -> bool:
        return False  # tasks leave out what is not among the best of their own

    @property
    def reads(self) -> tuple[str, ...]:
        return column_names((*self.keys, *self.rows), self.time_column)

    @property
    def takes_window_start(self) -> bool:
        return self.window is not None and self.window.lasts is not None

    @property
    def emits(self) -> tuple[Field, ...]:
        groups = list(self.keys)
        if self.window is not None:
            assert self.time_column is not None
            groups.insert(self.window_position, Field(self.window_name, window_of(self.time_column.type)))
        by_name = {row.name: row for row in self.rows}
        return (*groups, *(by_name[name] for name in self.shown), Field(self.rank, _INT))

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return (*(() if self.window is None else (self.window_name,)), self.rank)

    @property
    def state_ttl(self) -> Ttl | None:
        return self.ttl

    @property
    def late_by_ttl(self) -> bool:
        return self.ttl is not None and self.ttl.clock is Clock.EVENT

    def passes_through(self, column: Field) -> bool:
        return column in self.keys or (column in self.rows and column in self.emits)

    def hint_target(self) -> HintTarget | None:
        if not self.keys or self.takes_window_start:
            return None
        return HintTarget(None if self.window is None else self.window.panes)
