"""What tasks and servers need to know to run an aggregation: plain data that travels as JSON.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from tailrace.errors import AnalysisError, SumOverflowError
from tailrace.operators.aggregate.accumulators import Accumulator, Output
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.functions.states import PlacedState, states_among
from tailrace.operators.pattern import Pattern
from tailrace.operators.spec import HintTarget, SpecBase, column_names
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.windows.any_window import AnyWindowSpec, pane_windows_of, window_kind_of
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.custom_window import CustomWindowSpec
from tailrace.operators.windows.dynamic_session import DynamicSessionSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.operators.windows.window_kind import WindowKind
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import DataType, Field

CHANGE_TYPE = "_change_type"
"""The output column of a changelog that says what a row is of: named and filled as in Spark's own (``readChangeFeed``).
"""

START = "__start"
"""Part of the key of records that lie by their windows' ends: where the window starts."""


def needs_rows(output: Output) -> bool:
    """Whether an output is made of all rows of a group, and not of accumulators."""
    return output.function is None or DESCRIPTORS[output.function].holistic


@dataclass(frozen=True)
class AggregateSpec(SpecBase):
    operator: ClassVar[str] = "aggregate"

    name: str
    keys: tuple[Field, ...]
    accumulators: tuple[Accumulator, ...]
    outputs: tuple[Output, ...]
    window: AnyWindowSpec | None
    window_name: str  # name of the output struct column (start, end) and, with keys, where it stands:
    window_position: int  # before keys[window_position]
    time_column: Field | None  # event time; None without a watermark and without a window
    emit_changed: bool  # True: rows that changed (update); False: closed windows (append)
    watermarked: bool  # False: no row is late, and windows never close
    ansi: bool  # integer and decimal sums raise on overflow instead of wrapping (decimals: null)
    shards: int
    rows: tuple[Field, ...] = ()  # columns of every row that are sent, where accumulators do not suffice
    function: str | None = None  # the user's, of the rows of a window: cloudpickle in base64
    store: str | None = None  # the store that the user has chosen, a Pattern; None: the usual one
    # Of records without a window: then the first accumulator is when a record was last updated. Of windows by count, of
    # keys with their open windows: then it is the second one.
    ttl: Ttl | None = None
    changelog: bool = False  # of sessions that changed, also what they were before, and a column ``CHANGE_TYPE``
    complete: bool = False  # every epoch gives all groups, and the watermark drops none

    @property
    def closes(self) -> bool:
        """Whether windows end, and go, by the watermark."""
        return self.watermarked and not self.complete

    @property
    def windowed(self) -> bool:
        """Whether the output has a column of windows, ``window_name``."""
        return self.window is not None

    @property
    def window_kind(self) -> WindowKind:
        return window_kind_of(self.window)

    @property
    def pane_windows(self) -> TimeWindowSpec | None:
        """Windows that end by the watermark for all keys alike, as their records lie in panes; None: there are none."""
        return pane_windows_of(self.window)

    @property
    def time_window(self) -> TimeWindowSpec | None:
        """Tumbling or sliding windows; None: there are none, or they are of another kind."""
        return self.window if isinstance(self.window, TimeWindowSpec) else None

    @property
    def count_window(self) -> CountWindowSpec | None:
        return self.window if isinstance(self.window, CountWindowSpec) else None

    @property
    def custom_window(self) -> CustomWindowSpec | None:
        return self.window if isinstance(self.window, CustomWindowSpec) else None

    @property
    def dynamic_session(self) -> DynamicSessionSpec | None:
        """Sessions whose rows each have a gap of their own."""
        return self.window if isinstance(self.window, DynamicSessionSpec) else None

    @property
    def own_windows(self) -> bool:
        """Whether each key has windows of its own, so that a user's function must see which row is in which."""
        return self.window is not None and self.window.by_key

    @property
    def holistic(self) -> bool:
        """Whether some output needs all rows of a group."""
        return any(needs_rows(out) for out in self.outputs)

    @property
    def usual_pattern(self) -> Pattern:
        """The store that semantics ask for."""
        # Panes of overlapping windows by count are merged by a kernel of their own, which knows no batch merges.
        overlapping = self.count_window is not None and self.count_window.overlapping
        if not self.holistic and not (overlapping and self.states):
            return Pattern.RMW
        return Pattern.AAR if self.time_window is not None else Pattern.AUR

    @property
    def pattern(self) -> Pattern:
        return self.usual_pattern if self.store is None else Pattern(self.store)

    @property
    def kept_keys(self) -> tuple[Field, ...]:
        """What distinguishes records, beside their pane. Hashes are of ``keys`` alone."""
        if self.custom_window is None:
            return self.keys
        assert self.time_column is not None
        return (*self.keys, Field(START, self.time_column.type))

    @property
    def window_type(self) -> DataType:
        """Of the output column of windows: their bounds, or of windows by count their number."""
        assert self.window is not None
        return self.window.output_type(None if self.time_column is None else self.time_column.type)

    @property
    def shown_keys(self) -> tuple[Field, ...]:
        """The group columns that are in the output: a user's function gives those that it wants itself."""
        return self.keys if self.function is None else ()

    @property
    def sends_rows(self) -> bool:
        return self.holistic or self.pattern is not Pattern.RMW or self.count_window is not None

    def layout(self) -> RecordLayout:
        """Of what is sent: rows as they are, or records of accumulators. It is also kept so, but for windows by count
        on the read-modify-write store.
        """
        if self.sends_rows:
            return record_layout(self.kept_keys, [(Merge.ROW, row.type) for row in self.rows], self.ansi)
        return self.record_layout()

    def record_layout(self) -> RecordLayout:
        """Of records of accumulators."""
        layout = record_layout(self.kept_keys, [(a.merge, a.type) for a in self.accumulators], self.ansi)
        return replace(layout, batch_merges=tuple(state.batch_merge for state in self.states))

    @property
    def states(self) -> list[PlacedState]:
        """The states that functions of whole columns make and merge."""
        return states_among(self.accumulators)

    @property
    def sums(self) -> tuple[str, ...]:
        """Outputs whose sums may be too large."""
        return tuple(out.name for out in self.outputs if out.type.is_integer or out.type.is_decimal)

    @contextmanager
    def naming_overflow(self, epoch: int) -> Iterator[None]:
        """Say of a sum that overflows inside where that was: whatever adds needs it, in tasks and in servers.

        Sums are added when rows are merged, when panes become windows, and by some aggregates when a window is emitted.
        """
        try:
            yield
        except SumOverflowError as error:
            raise SumOverflowError(
                f"operator {self.name}, epoch {epoch}: {error} (one of: {', '.join(self.sums)}). Nothing of the epoch "
                "was kept. Cast the column to decimal before the sum, or set spark.sql.ansi.enabled=false to let sums "
                "wrap."
            ) from error

    @property
    def reads(self) -> tuple[str, ...]:
        aggregated = [column for one in self.accumulators for column in one.columns]
        time = () if self.time_column is None else (self.time_column.name,)
        return tuple(dict.fromkeys([*column_names((*self.keys, *self.rows)), *aggregated, *time]))

    @property
    def takes_window_start(self) -> bool:
        return self.time_window is not None and self.time_window.lasts is not None

    @property
    def emits(self) -> tuple[Field, ...]:
        groups = list(self.shown_keys)
        if self.windowed:
            groups.insert(self.window_position, Field(self.window_name, self.window_type))
        change = [Field(CHANGE_TYPE, DataType("string"))] if self.changelog else []
        return (*groups, *(Field(out.name, out.type) for out in self.outputs), *change)

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return (*([self.window_name] if self.windowed else []), *([CHANGE_TYPE] if self.changelog else []))

    @property
    def state_ttl(self) -> Ttl | None:
        return self.ttl

    @property
    def late_by_ttl(self) -> bool:
        return (
            self.ttl is not None
            and self.ttl.clock is Clock.EVENT
            and not (self.count_window is not None and self.count_window.in_time)
        )

    def passes_through(self, column: Field) -> bool:
        return column in self.keys

    def hint_target(self) -> HintTarget | None:
        """Rows that bring their windows have them from an operator: the source does not know them."""
        if not self.keys or self.takes_window_start or self.custom_window is not None:
            return None
        panes = (
            self.window.panes if isinstance(self.window, TimeWindowSpec | SessionWindowSpec) else None
        )  # else in pane 0
        return HintTarget(panes) if self.pattern is Pattern.RMW else None

    def why_not_recordable(self) -> str | None:
        """Of what keeps rows they can in append mode, where rows are read when a window closes, and not every epoch."""
        global_or_time = self.window_kind in (WindowKind.GLOBAL, WindowKind.TUMBLING, WindowKind.SLIDING)
        closing = self.pattern is Pattern.RMW or (self.time_window is not None and not self.emit_changed)
        possible = self.ttl is None and global_or_time and closing and not self.complete
        return None if possible else super().why_not_recordable()

    def with_changelog(self) -> AggregateSpec:
        if self.window_kind is not WindowKind.SESSION or not self.emit_changed or self.function is not None:
            return super().with_changelog()
        if CHANGE_TYPE in (field.name for field in self.emits):
            raise AnalysisError(
                f'{self.name}: option "changelog" adds a column {CHANGE_TYPE!r}, and there is one already: give it '
                "another name with .alias(...)"
            )
        return replace(self, changelog=True)

    def without_code(self) -> AggregateSpec:
        window = None if self.window is None else self.window.without_code()
        return replace(
            self,
            function=None if self.function is None else "",
            window=window,
            accumulators=tuple(one.without_code() for one in self.accumulators),
            outputs=tuple(one if one.code is None else replace(one, code="") for one in self.outputs),
        )

    def for_tasks(self) -> AggregateSpec:
        """With the functions that tasks call: those of the user's windows and states."""
        window = None if self.window is None else self.window.for_tasks()
        return replace(self.without_code(), window=window, accumulators=self.accumulators)
