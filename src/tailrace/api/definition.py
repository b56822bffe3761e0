"""A query as plain frozen data: what the API has checked and the plan reads.

Every column name in here is the source's own spelling. ``source`` is opaque: only the spark layer looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tailrace.api.aggregates import Aggregate
from tailrace.api.options import Options
from tailrace.api.windows import AnyWindow
from tailrace.ids import Micros
from tailrace.types import Field


@dataclass(frozen=True)
class Watermark:
    """How far behind the largest event time a row may come."""

    column: Field
    delay: Micros


@dataclass(frozen=True)
class WindowFunction:
    """The user's function of a window's rows, from an Arrow table to one with these columns."""

    function: Callable[..., object]
    fields: tuple[Field, ...]
    columns: tuple[Field, ...]  # what it reads, beside the group columns


@dataclass(frozen=True)
class Aggregation:
    """A stream grouped and aggregated. ``source`` is the user's stream, or another aggregation."""

    source: object
    schema: tuple[Field, ...]
    watermark: Watermark | None
    window: AnyWindow | None
    window_position: int  # the window's place among the group columns: before keys[window_position]
    keys: tuple[Field, ...]
    aggregates: tuple[Aggregate, ...]
    ansi: bool
    function: WindowFunction | None = None  # in place of aggregates

    @property
    def time_column(self) -> Field | None:
        """Event time: the watermark's column, else the window's."""
        if self.watermark is not None:
            return self.watermark.column
        if self.window is not None:
            return self.field(self.window.time_column)
        return None

    def field(self, name: str) -> Field:
        return next(field for field in self.schema if field.name == name)

    @property
    def upstream(self) -> Aggregation | None:
        """The aggregation whose rows this one aggregates again."""
        return self.source if isinstance(self.source, Aggregation) else None

    @property
    def chain(self) -> tuple[Aggregation, ...]:
        """From the one that reads the source to this one."""
        return (*(self.upstream.chain if self.upstream is not None else ()), self)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The output's columns with their types; that of a window is the type of its bounds."""
        groups = [] if self.function is not None else list(self.keys)
        if self.window is not None:
            assert self.time_column is not None
            groups.insert(self.window_position, Field(self.window.name, self.time_column.type))
        made = [
            Field(one.name, one.output_type(None if one.column is None else self.field(one.column).type))
            for one in self.aggregates
        ]
        return (*groups, *made, *(() if self.function is None else self.function.fields))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the output's columns, in order."""
        return tuple(field.name for field in self.fields)


class OutputMode(StrEnum):
    """Which rows an epoch gives to the sink."""

    APPEND = "append"  # the rows of windows that closed
    UPDATE = "update"  # the rows that changed


@dataclass(frozen=True)
class ForeachBatch:
    """The user's function of (DataFrame, epoch)."""

    function: Callable[..., object]


@dataclass(frozen=True)
class Format:
    """One of Spark's formats, or ``memory``, ``console``, ``noop``. ``name`` is in lower case where Spark ships it."""

    name: str
    path: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()


Sink: TypeAlias = ForeachBatch | Format


@dataclass(frozen=True)
class ProcessingTime:
    """An epoch at most every ``interval``; 0 is as soon as the last one is done."""

    interval: Micros


@dataclass(frozen=True)
class AvailableNow:
    """All that is there at the start, in one or more epochs, then stop."""


Trigger: TypeAlias = ProcessingTime | AvailableNow


@dataclass(frozen=True)
class QueryDefinition:
    """All that is needed to start a query."""

    stream: Aggregation
    output_mode: OutputMode
    sink: Sink
    options: Options
    trigger: Trigger
    name: str | None
    checkpoint_location: str
    state_location: str
