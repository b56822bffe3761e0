"""What a record keeps for an aggregation, and how its output columns are made of that: plain data, part of the spec.

An accumulator is one mergeable value of a record. Names of inputs are written into checkpoints: never rename one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tailrace.state.layout import Merge, bits_of
from tailrace.types import TIMESTAMP, DataType, Kind

Argument = bool | int | float | str | tuple[float, ...] | None
"""A constant argument of an aggregate, as JSON can hold it."""


class AccumulatorInput(StrEnum):
    """What one row contributes to an accumulator."""

    ONE = "one"  # 1
    PRESENT = "present"  # 1 where the input is not null, else 0
    VALUE = "value"  # the input; null contributes nothing
    DOUBLE = "double"  # the input as a double; null contributes nothing
    TIMED = "timed"  # (event time, input); a null input is a value
    TIMED_PRESENT = "timed_present"  # (event time, input); null contributes nothing
    STAMP = "stamp"  # nothing: the server puts the time of the epoch there
    STATE = "state"  # what the state's own function makes of rows


@dataclass(frozen=True)
class StateSpec:
    """A state that functions of whole columns make and merge: a set, a sketch, a user's own. See ``functions.states``.

    ``code``: the user's functions, where it has such.
    """

    name: str
    columns: tuple[str, ...]  # of the input
    types: tuple[DataType, ...]
    arguments: tuple[Argument, ...] = ()
    code: str | None = None


@dataclass(frozen=True)
class Accumulator:
    """One mergeable value of a state record. ``type`` is the type of the value kept."""

    merge: Merge
    input: AccumulatorInput
    column: str | None  # the input column; None where a row contributes no value of its own
    type: DataType
    state: StateSpec | None = None  # of Merge.BATCH; the accumulators of one state follow one another
    part: int = 0  # which of them it is

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns."""
        if self.state is not None:
            return self.state.columns
        return () if self.column is None else (self.column,)

    @property
    def kind(self) -> Kind:
        kind = self.type.kind
        assert kind is not None, self.type
        return kind

    @property
    def valid_bits(self) -> int:
        return bits_of(self.merge, self.type)

    def without_code(self) -> Accumulator:
        if self.state is None or self.state.code is None:
            return self
        return replace(self, state=replace(self.state, code=""))


STAMP = Accumulator(Merge.MAX, AccumulatorInput.STAMP, None, TIMESTAMP)
"""When a record was last updated."""


@dataclass(frozen=True)
class Inputs:
    """What an aggregate is called with: columns, their types, and constants."""

    columns: tuple[str, ...]
    types: tuple[DataType, ...]
    arguments: tuple[Argument, ...] = ()
    code: str | None = None  # a user's functions

    @property
    def column(self) -> str:
        """The only column."""
        (column,) = self.columns
        return column

    @property
    def type(self) -> DataType:
        """The type of the only column."""
        (type_,) = self.types
        return type_


@dataclass(frozen=True)
class Output:
    """One output column. ``accumulators`` are indexes into ``AggregateSpec.accumulators``.

    ``function``: the name of an aggregate; None for a column of the user's window function.
    """

    name: str
    function: str | None
    accumulators: tuple[int, ...]
    type: DataType
    columns: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    code: str | None = None  # a user's functions
