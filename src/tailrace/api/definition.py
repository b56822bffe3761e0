"""A query as plain frozen data: a relation, and where its rows go and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tailrace.api.options import Options
from tailrace.api.relations import OutputMode, Relation
from tailrace.api.table_options import TableOptions
from tailrace.ids import Micros


@dataclass(frozen=True)
class ForeachBatch:
    """The user's function of (DataFrame, epoch)."""

    function: Callable[..., object]


@dataclass(frozen=True)
class Foreach:
    """The user's function of a row, or an object with ``process`` and perhaps ``open`` and ``close``."""

    writer: object


@dataclass(frozen=True)
class Format:
    """One of Spark's formats of files, or ``memory``, ``console``, ``noop``. ``name`` is in lower case."""

    name: str
    path: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSink:
    """A table or a topic that takes an epoch by one transaction. ``name``: of the format."""

    name: str
    options: TableOptions


Sink: TypeAlias = ForeachBatch | Foreach | Format | TableSink


@dataclass(frozen=True)
class ProcessingTime:
    """An epoch at most every ``interval``; 0 is as soon as the last one is done."""

    interval: Micros


@dataclass(frozen=True)
class AvailableNow:
    """All that is there at the start, in one or more epochs, then stop."""


@dataclass(frozen=True)
class Once:
    """All that is there at the start, in one epoch whatever its sources' limits, then stop."""


Trigger: TypeAlias = ProcessingTime | AvailableNow | Once


@dataclass(frozen=True)
class QueryDefinition:
    """All that is needed to start a query."""

    relation: Relation
    output_mode: OutputMode
    sink: Sink
    options: Options
    trigger: Trigger
    name: str | None
    checkpoint_location: str
    state_location: str
    late: Sink | None = None  # where late rows go; None: they are only counted
