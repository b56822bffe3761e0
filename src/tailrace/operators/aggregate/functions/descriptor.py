"""The descriptor of an aggregate: everything that the API, planning, tasks, servers and ``explain`` know of it.

A module of this package defines descriptors and, beside each, the function that users call. Defining a descriptor
registers it, so nothing else has to list it. There are two kinds:

- A mergeable aggregate names the accumulators that it ``keeps`` in a record, and ``finish`` turns columns of them into
  the output column. Two aggregates that keep equal accumulators share them.
- A holistic aggregate needs all rows of its group, which are then kept. ``of_rows`` turns groups of rows into the
  output column.

Invariants
- ``name`` is the name in ``pyspark.sql.functions`` where Spark has the function. It is written into checkpoints.
- ``result`` is Spark's result type. No function here depends on the order in which rows came, but for sums of doubles.
- All functions work on whole columns. They may be called from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import Column, ColumnOrName, check_collation, unquoted
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Accumulator, Argument, Inputs, Output
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.rows.groups import Groups
from tailrace.types import DataType, Field

Finish = Callable[[Sequence[Values], Output], pa.Array]
OfRows = Callable[[Groups, Output, str], pa.Array]
"""Groups of rows, the output that is made, and the name of the event time column ("" where there is none)."""
Check = Callable[[str, str, Field], None]
"""Refuses a column: given the output's name, the function's name and the column."""


def value(values: Sequence[Values], output: Output) -> pa.Array:
    """The only accumulator as it is."""
    return values[0].array(output.type)


def kept(shown: str, function: str, field: Field) -> None:
    """Any value that a record can hold."""
    if field.type.kind is None:
        raise AnalysisError(
            f"{shown}: {function} of a {field.type} is not supported (column {field.name!r}): take numbers, string, "
            f"boolean, date, timestamp, timestamp_ntz, decimal or binary"
        )


def anything(shown: str, function: str, field: Field) -> None:
    """Whatever its type: only whether it is null is looked at."""


def numeric(shown: str, function: str, field: Field) -> None:
    if not field.type.is_numeric:
        raise AnalysisError(
            f"{shown}: {function} needs a number, and column {field.name!r} is a {field.type}: cast it first, "
            f"for example .withColumn({field.name!r}, F.col({field.name!r}).cast('double'))"
        )


def boolean(shown: str, function: str, field: Field) -> None:
    if field.type.name != "boolean":
        raise AnalysisError(
            f"{shown}: {function} needs a boolean, and column {field.name!r} is a {field.type}: make one first, "
            f"for example .withColumn('is_large', F.col({field.name!r}) > 100)"
        )


@dataclass(frozen=True)
class Descriptor:
    name: str
    result: Callable[[Inputs], DataType]
    keeps: Callable[[Inputs], Sequence[Accumulator]] | None = None
    finish: Finish = value
    of_rows: OfRows | None = None
    takes: Check = kept
    needs_time: bool = False  # whether the answer depends on event time
    made_of: Callable[[Sequence[str]], str] = lambda parts: parts[0]  # for explain, of the accumulators' texts

    def __post_init__(self) -> None:
        assert (self.keeps is None) != (self.of_rows is None), f"{self.name} is either mergeable or holistic"
        assert self.name not in DESCRIPTORS, f"two aggregates are called {self.name}"
        DESCRIPTORS[self.name] = self

    @property
    def holistic(self) -> bool:
        return self.of_rows is not None

    def accumulators(self, inputs: Inputs) -> Sequence[Accumulator]:
        """What a record keeps for it; nothing where rows are kept."""
        return () if self.keeps is None else self.keeps(inputs)

    def check(self, shown: str, fields: Sequence[Field]) -> None:
        for field in fields:
            check_collation(field, shown)
            self.takes(shown, self.name, field)

    def result_type(
        self, columns: tuple[str, ...], types: tuple[DataType, ...], arguments: tuple[Argument, ...]
    ) -> DataType:
        return self.result(Inputs(columns, types, arguments))

    def __call__(
        self,
        *columns: ColumnOrName,
        arguments: tuple[Argument, ...] = (),
        shown: str = "",
        label: str = "",
        code: str | None = None,
    ) -> Aggregate:
        """The aggregate of these columns. ``shown``: its default name, with ``{}`` for the columns."""
        called = label or self.name
        for column in columns:
            if not isinstance(column, Column) and (not isinstance(column, str) or not column):
                raise AnalysisError(
                    f"{called} takes a column's name or a Column, but got {column!r} ({type(column).__name__}): "
                    f"{called}('price')"
                )
        given = tuple(unquoted(column) if isinstance(column, str) else column for column in columns)
        return Aggregate(self, given, arguments, shown or f"{called}({{}})", code)


DESCRIPTORS: dict[str, Descriptor] = {}
"""All aggregates by name, for planning and for servers."""


def same_type(inputs: Inputs) -> DataType:
    return inputs.types[0]
