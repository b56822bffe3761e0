"""PySpark's per-key functions as a relation: a ``StatefulProcessor``, or a function of a ``GroupState``.

The user's object, its schemas and its calls are PySpark's, and only the spark layer knows them: here they are one
function that is called with whole batches of keys (``code``), and the state variables that it asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tailrace.api.relations import OutputMode, UnchangingRows, Watermark
from tailrace.ids import Micros
from tailrace.types import Field


class StateKind(StrEnum):
    """What a state variable of a key is. The names are kept in checkpoints."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"


class TimeMode(StrEnum):
    """By which clock timers come up."""

    NONE = "none"
    PROCESSING = "processingTime"
    EVENT = "eventTime"


@dataclass(frozen=True)
class StateVariable:
    """``key``: the columns of a map's keys; ``value``: of a value, of a list's elements, of a map's values."""

    name: str
    kind: StateKind
    value: tuple[Field, ...]
    key: tuple[Field, ...] = ()
    ttl_ms: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.key, *self.value)


@dataclass(frozen=True)
class ProcessorCode:
    """What runs on the servers: ``calls`` is given a batch of keys with their rows and their state. See
    ``operators.stateful_processor.batch``.

    ``title``: the method of PySpark's that it came by. ``initial``: gives the rows of an initial state, as Arrow.
    """

    title: str
    calls: Callable[..., object]
    variables: tuple[StateVariable, ...]
    outputs: tuple[Field, ...]
    initial: Callable[[], object] | None = None


@dataclass(frozen=True)
class StatefulProcessing(UnchangingRows):
    """A stream whose rows a per-key function of PySpark's turns into others. ``seen``: the columns that it sees."""

    unchanging: ClassVar[str] = "rows of a processor"

    code: ProcessorCode
    mode: OutputMode
    time_mode: TimeMode
    timeouts: bool  # of a GroupState: one time for each key, which comes up when the clock is past it
    time_name: str | None  # the output column with each row's event time
    seen: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.code.outputs

    @property
    def event_time(self) -> Watermark | None:
        found = [field for field in self.fields if field.name == self.time_name]
        return Watermark(found[0], Micros(0)) if found else None

    def refusal(self, mode: OutputMode) -> str | None:
        if mode is self.mode:
            return None
        return (
            f"{self.code.title} was called with the output mode {self.mode.value!r}, and the query has {mode.value!r}: "
            f"use .outputMode({self.mode.value!r})"
        )
