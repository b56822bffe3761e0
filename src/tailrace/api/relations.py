"""What stateful operators make of streams, as plain frozen data: what the API has checked and the plan reads.

Every column name in here is the source's own spelling. A source that is not a relation is opaque: only the spark layer
looks inside. A relation may also be defined in its operator's package: ``operators.kind`` says what belongs to an
operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal, Protocol, runtime_checkable

from tailrace.api.aggregates import Aggregate
from tailrace.api.tables import LookupTable
from tailrace.api.windows import AnyWindow, CountWindow, Window
from tailrace.ids import Micros
from tailrace.types import BIGINT, DataType, Field


class OutputMode(StrEnum):
    """Which rows an epoch gives to the sink."""

    APPEND = "append"  # rows that are final
    UPDATE = "update"  # the rows that changed
    COMPLETE = "complete"  # all rows, each epoch


@dataclass(frozen=True)
class Watermark:
    """How far behind the largest event time a row may come.

    ``clocks``: by what else it goes on, and not by the column: by the slowest of these, which are in the same rows.
    """

    column: Field
    delay: Micros
    clocks: tuple[Watermark, ...] = ()


@runtime_checkable
class Relation(Protocol):
    """The output of a stateful operator."""

    @property
    def source(self) -> object:
        """What it reads: the user's stream, or another relation. Of a join, the left one."""

    @property
    def window(self) -> AnyWindow | None:
        """The window whose bounds are one of the columns."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The output's columns with their types; that of a window of event time is the type of its bounds."""

    @property
    def event_time(self) -> Watermark | None:
        """The event time of the rows, where there is one and they are final."""

    def refusal(self, mode: OutputMode) -> str | None:
        """Why such rows cannot be given to a sink, and what to do; None where they can."""


@dataclass(frozen=True)
class StateTtl:
    """How long state stays that nothing updates, and whether time is the epochs' own and not event time."""

    span: Micros
    processing: bool


@dataclass(frozen=True)
class United:
    """Streams of the user's that an operator reads as one, each with a watermark of its own."""

    streams: tuple[tuple[object, Watermark], ...]


def sources_of(relation: Relation) -> tuple[object, ...]:
    """What a relation reads: streams of the user's, and other relations."""
    if isinstance(relation, SparkHop):
        return relation.inputs
    if isinstance(relation.source, United):
        return tuple(source for source, _ in relation.source.streams)
    return (relation.left.source, relation.right.source) if isinstance(relation, Join) else (relation.source,)


def operators_of(relation: Relation) -> tuple[Relation, ...]:
    """The operators that a relation is made by, each once and behind those whose rows it gets; hops are none."""
    found: list[Relation] = []

    def visit(made: object) -> None:
        if not isinstance(made, Relation) or any(made is known for known in found):
            return
        for source in sources_of(made):
            visit(source)
        if not isinstance(made, SparkHop):
            found.append(made)

    visit(relation)
    return tuple(found)


@dataclass(frozen=True)
class SparkHop:
    """Rows that Spark makes of operators' outputs within the epoch, by a function of DataFrames that keeps no state.

    The function is called anew in every run, and for every epoch whose output is small. A replay must give the same
    rows, so it may depend on nothing but these. ``inputs`` are operators, and no hops: two hops in a row are one.
    """

    inputs: tuple[Relation, ...]
    function: Callable[..., object]  # of as many DataFrames; gives one
    fields: tuple[Field, ...]
    label: str  # what it does, for ``explain``
    event_time: Watermark | None = None
    window: AnyWindow | None = None  # the one that rows come with, where its column is passed on
    chooses: bool = False  # whether all it does is to leave out columns of one operator, which the next need not read
    names: tuple[tuple[str, str], ...] = ()  # of columns of operators whose names are not the user's, and the user's

    @property
    def source(self) -> object:
        return self.inputs[0]

    def refusal(self, mode: OutputMode) -> str | None:
        return next(filter(None, (each.refusal(mode) for each in self.inputs)), None)


@dataclass(frozen=True)
class PassThrough:
    """A stream that no operator reads: its rows go to the sink as Spark makes them, and there is no state.

    ``source`` is the user's stream. Nothing else may be made of this: what stateless steps do, they do to the stream.
    """

    source: object
    fields: tuple[Field, ...]
    window: ClassVar[AnyWindow | None] = None
    event_time: ClassVar[Watermark | None] = None

    def refusal(self, mode: OutputMode) -> str | None:
        return _append_only("rows that no operator has changed never change", mode)


def passed_on(source: object) -> object:
    """What a source's rows come from, with the times at which they come: a lookup passes rows on as they are."""
    while isinstance(source, Lookup):
        source = source.source
    return source


@dataclass(frozen=True)
class UnchangingRows:
    """What holds of operators whose rows are final when they are given, and keep their event time."""

    unchanging: ClassVar[str]
    """Said where such rows are asked for in another output mode."""

    source: object
    schema: tuple[Field, ...]
    watermark: Watermark | None
    keys: tuple[Field, ...]

    @property
    def window(self) -> AnyWindow | None:
        return None

    @property
    def event_time(self) -> Watermark | None:
        return self.watermark

    def refusal(self, mode: OutputMode) -> str | None:
        return _append_only(self.unchanging, mode)


def _append_only(unchanging: str, mode: OutputMode) -> str | None:
    if mode is OutputMode.APPEND:
        return None
    return f"{unchanging}: use .outputMode('append'), which is the default"


@dataclass(frozen=True)
class GroupedRows:
    """What holds of operators that group a stream by keys and, where there is one, a window."""

    source: object
    schema: tuple[Field, ...]
    watermark: Watermark | None
    window: AnyWindow | None
    window_position: int  # the window's place among the group columns: before keys[window_position]
    keys: tuple[Field, ...]

    @property
    def time_column(self) -> Field | None:
        """Event time: the watermark's column, else the window's."""
        if self.watermark is not None:
            return self.watermark.column
        if self.window is None or isinstance(self.window, CountWindow):
            return None
        return self.field(self.window.time_column)

    def field(self, name: str) -> Field:
        return next(field for field in self.schema if field.name == name)

    def with_window(self, keys: tuple[Field, ...]) -> tuple[Field, ...]:
        """Group columns: these keys, and the window in its place among them."""
        if self.window is None:
            return keys
        if isinstance(self.window, CountWindow):
            window = Field(self.window.name, BIGINT)
        else:
            assert self.time_column is not None
            window = Field(self.window.name, self.time_column.type)
        return (*keys[: self.window_position], window, *keys[self.window_position :])

    @property
    def event_time(self) -> Watermark | None:
        window = self.window
        name = None if window is None else window.event_time if isinstance(window, CountWindow) else window.name
        if name is None or self.watermark is None:
            return None
        return Watermark(Field(name, self.watermark.column.type), Micros(0))


@dataclass(frozen=True)
class WindowFunction:
    """The user's function of a window's rows, from an Arrow table to one with these columns."""

    function: Callable[..., object]
    fields: tuple[Field, ...]
    columns: tuple[Field, ...]  # what it reads, beside the group columns


@dataclass(frozen=True)
class Aggregation(GroupedRows):
    """A stream grouped and aggregated."""

    aggregates: tuple[Aggregate, ...]
    ansi: bool
    function: WindowFunction | None = None  # in place of aggregates
    store: str | None = None  # which one the user wants; None: the plan chooses
    state_ttl: StateTtl | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        if self.function is not None:
            return (*self.with_window(()), *self.function.fields)
        made = [Field(one.name, one.output_type(self.schema)) for one in self.aggregates]
        return (*self.with_window(self.keys), *made)

    def refusal(self, mode: OutputMode) -> str | None:
        if mode is OutputMode.COMPLETE and isinstance(self.window, CountWindow):
            return (
                "outputMode 'complete' gives all groups in every epoch, and a window by count goes when it is full: "
                "use .outputMode('append') for the full ones, or 'update' for those that changed"
            )
        if mode is not OutputMode.APPEND or isinstance(self.window, CountWindow):
            return None  # a window by count is final when it is full, whatever the time
        missing = []
        if self.window is None:
            missing.append("a window: .groupBy(tailrace.window('ts', '10 seconds'), ...)")
        if self.watermark is None and isinstance(self.source, Join):
            missing.append("the event time of the joined rows: .join(..., eventTime='at') of streams with a watermark")
        elif self.watermark is None:
            missing.append("a watermark: .withWatermark('ts', '10 seconds')")
        if not missing:
            return None
        return (
            f"outputMode 'append' gives the rows of windows that have closed, so it needs {' and '.join(missing)}; "
            f"or use .outputMode('update') for the rows that changed"
        )


@dataclass(frozen=True)
class JoinSide:
    """One of the two streams of a join. ``columns``: those beside the keys, in order."""

    source: object
    keys: tuple[Field, ...]
    columns: tuple[Field, ...]
    watermark: Watermark | None

    @property
    def handed_over(self) -> bool:
        """Whether another operator gives these rows."""
        return isinstance(passed_on(self.source), Relation)


@dataclass(frozen=True)
class Within:
    """Bounds of right time - left time, both inclusive; None: none."""

    lower: Micros | None
    upper: Micros | None


@dataclass(frozen=True)
class ValidTo:
    """The column with the exclusive end of a row's validity, and whose it is."""

    column: str
    of_right: bool


JoinCondition = Within | ValidTo | Window | None


How = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]
"""Which rows a join gives."""


@dataclass(frozen=True)
class Join:
    """Two streams joined on equal keys and a condition in time; ``condition`` is None for a join by keys alone."""

    left: JoinSide
    right: JoinSide
    condition: JoinCondition
    how: How
    ttl: Micros | None
    time_name: str | None  # an output column with each row's event time

    @property
    def source(self) -> object:
        return self.left.source

    @property
    def window(self) -> Window | None:
        return self.condition if isinstance(self.condition, Window) else None

    @property
    def fields(self) -> tuple[Field, ...]:
        time = None if self.left.watermark is None else self.left.watermark.column.type
        window = [] if self.window is None or time is None else [Field(self.window.name, time)]
        named = [] if self.time_name is None or time is None else [Field(self.time_name, time)]
        right = () if self.how == "left_semi" else self.right.columns
        return (*window, *self.left.keys, *self.left.columns, *right, *named)

    @property
    def event_time(self) -> Watermark | None:
        name = self.time_name if self.window is None else self.window.name
        if name is None or self.left.watermark is None:
            return None
        return Watermark(Field(name, self.left.watermark.column.type), Micros(0))

    @property
    def own_times(self) -> tuple[Watermark, ...]:
        """Where its rows have no event time of their own: those of the inputs that are columns of them too."""
        if self.event_time is not None:
            return ()
        times = (side.watermark for side in (self.left, self.right))
        return tuple(each for each in times if each is not None and each.column in self.fields)

    def refusal(self, mode: OutputMode) -> str | None:
        return _append_only("a join gives rows that never change", mode)


@dataclass(frozen=True)
class Lookup(UnchangingRows):
    """A stream with the columns of a table's rows, asked for by key. Its rows keep their event time."""

    unchanging: ClassVar[str] = "rows that a table was asked for never change"

    columns: tuple[Field, ...]  # of the stream, beside the keys
    values: tuple[Field, ...]  # of the table, beside the keys
    table: LookupTable
    outer: bool  # left outer

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.keys, *self.columns, *self.values)


@dataclass(frozen=True)
class Deduplication(UnchangingRows):
    """A stream without the rows whose keys were seen before. ``within``: for the watermark's delay, and then again."""

    unchanging: ClassVar[str] = "rows without duplicates never change"

    within: bool
    state_ttl: StateTtl | None = None  # a key is remembered so long after its row

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.schema


@dataclass(frozen=True)
class Ranking(GroupedRows):
    """The ``n`` best rows of each group. ``order``: columns and whether smaller is better, the most important first."""

    columns: tuple[Field, ...]
    order: tuple[tuple[str, bool], ...]
    n: int
    rank: str
    state_ttl: StateTtl | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        time = self.event_time if isinstance(self.window, CountWindow) else None
        named = () if time is None else (time.column,)
        return (*self.with_window(self.keys), *self.columns, Field(self.rank, DataType("int")), *named)

    def refusal(self, mode: OutputMode) -> str | None:
        if mode is OutputMode.COMPLETE:
            return (
                "outputMode 'complete' is for aggregations: use .outputMode('update') for all rows of the groups that "
                "changed, and let the sink keep the newest rows of each group"
            )
        if mode is not OutputMode.APPEND or self.event_time is not None or isinstance(self.window, CountWindow):
            return None
        return (
            "the best rows of a group are final once its window has closed, so outputMode 'append' needs a window, "
            ".groupBy(tailrace.window('ts', '10 seconds'), ...), and a watermark, .withWatermark('ts', '10 seconds'); "
            "or use .outputMode('update') for all rows of the groups that changed"
        )


@dataclass(frozen=True)
class Process(UnchangingRows):
    """A user's function of the rows and the state of keys, called with whole batches of them."""

    unchanging: ClassVar[str] = "what process gives never changes"

    function: Callable[..., object]
    outputs: tuple[Field, ...]
    state: tuple[Field, ...]
    columns: tuple[Field, ...]  # what it reads, beside the keys and the event time
    timers: str | None  # a column of the state
    timers_processing: bool
    time_name: str | None  # the output column with each row's event time
    state_ttl: StateTtl | None

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.outputs

    @property
    def event_time(self) -> Watermark | None:
        found = [field for field in self.outputs if field.name == self.time_name]
        return Watermark(found[0], Micros(0)) if found else None
