"""What tasks and servers need to know to run a per-key function of PySpark's: plain data that travels as JSON.

With timers in event time, rows at or before the watermark of the epoch before are late, as in Spark.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tailrace.operators.process.spec import ProcessSpec
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

DUE, TIMERS, NEXT_TIMER = "__due", "__timers", "__next_timer"
"""State columns of our own: when a key has to be looked at; its timers, packed; the earliest of them."""

_BINARY = DataType("binary")


@dataclass(frozen=True)
class VariableSpec:
    """A state variable: for each key some rows of these fields, of a map its keys first, packed in one column.

    ``expires``: behind them lies when a row expires, in milliseconds. ``ttl_ms``: after how long.
    """

    name: str
    kind: str
    fields: tuple[Field, ...]
    keys: int = 0  # how many of the fields are those of a map's key
    ttl_ms: int | None = None

    @property
    def expires(self) -> bool:
        return self.ttl_ms is not None

    @property
    def packed_fields(self) -> tuple[Field, ...]:
        return (*self.fields, Field("__expiry", BIGINT)) if self.expires else self.fields


TIMER_LIST = VariableSpec("timers", "list", (Field("at", BIGINT),))


@dataclass(frozen=True)
class StatefulProcessorSpec(ProcessSpec):
    """``columns``: what the function reads of a row, in the order in which it sees them: keys that are its columns too.

    ``sparks_watermark``: the query's watermark is Spark's, of what was seen before the epoch. Else it is of this
    epoch's rows too, and the function is shown the one before with its rows and this one with its timers: the same
    calls as Spark's, with the timers one batch earlier.
    """

    operator: ClassVar[str] = "stateful_processor"

    title: str = ""
    columns: tuple[Field, ...] = ()
    variables: tuple[VariableSpec, ...] = ()
    timed: bool = False  # whether there are timers
    timeouts: bool = False  # of a group state: a time comes up when the clock is past it, not at it
    filters_late: bool = False
    update: bool = False  # output mode
    sparks_watermark: bool = False
    initial: str = ""  # rows for the first epoch's keys, an Arrow stream in base64: the keys first

    @property
    def emit_changed(self) -> bool:
        return self.update

    def without_code(self) -> StatefulProcessorSpec:
        return replace(self, function="", initial="")

    def with_sparks_watermark(self) -> StatefulProcessorSpec:
        return replace(self, sparks_watermark=True)


def state_fields(variables: tuple[VariableSpec, ...], timed: bool) -> tuple[Field, ...]:
    """The columns of a key's record."""
    expire = any(variable.expires for variable in variables)
    fields = [Field(DUE, TIMESTAMP)] if timed or expire else []
    fields += [Field(TIMERS, _BINARY), Field(NEXT_TIMER, BIGINT)] if timed else []
    for number, variable in enumerate(variables):
        fields.append(Field(packed_name(number), _BINARY))
        fields += [Field(earliest_name(number), BIGINT)] if variable.expires else []
    return tuple(fields)


def packed_name(number: int) -> str:
    return f"__state{number}"


def earliest_name(number: int) -> str:
    """The column with when the first row of a variable expires."""
    return f"__expiry{number}"
