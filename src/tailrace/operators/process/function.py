"""A user's function of rows and state: called with Arrow tables, held to the schemas it was declared with.

What it returns is checked before anything of it is kept: the columns, their types, and that every key of the new state
is one that it was given, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import UserFunctionError
from tailrace.operators.output import output_schema
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.user_code.code import NOTHING_KEPT, called, loaded, said_of
from tailrace.state.rows.columns import arrow_type
from tailrace.types import Field

_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Made:
    """What a call gave: rows for those who come after, and the state of the keys that stay."""

    output: pa.Table
    state: pa.Table


@dataclass(frozen=True)
class Moment:
    """What an epoch goes by."""

    epoch: int
    late_before: int
    now: int
    watermark: int


@dataclass(frozen=True)
class Call:
    """What a function is given. Tables are by key; ``counts``: how many of ``rows`` each key of ``state`` has.

    ``due``: which keys of ``state`` are; None where there are no timers.
    """

    rows: pa.Table
    state: pa.Table
    counts: np.ndarray
    due: np.ndarray | None
    moment: Moment


class KeysFunction(Protocol):
    """A user's function as it is called here."""

    def name(self, epoch: int) -> str:
        """How an error names a call."""

    def call(self, call: Call) -> Made: ...
    def batches(self, made: Made) -> list[pa.RecordBatch]: ...


def table_of(fields: tuple[Field, ...], columns: dict[str, pa.Array]) -> pa.Table:
    """A table as users see it."""
    arrays = [columns[field.name].cast(arrow_type(field.type)) for field in fields]
    return pa.Table.from_arrays(arrays, names=[field.name for field in fields])


class ProcessFunction:
    def __init__(self, spec: ProcessSpec) -> None:
        self._spec = spec
        self._function: Callable[..., Any] = loaded(spec.function, spec.name, "the function")
        self._output = output_schema(spec)
        kept = (*spec.keys, *spec.state)
        self.state_schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in kept])

    def name(self, epoch: int) -> str:
        """How an error names a call."""
        return said_of(self._spec.name, epoch, self._function)

    def call(self, call: Call) -> Made:
        name, late_before = self.name(call.moment.epoch), call.moment.late_before
        more = [] if call.due is None else [pa.array(call.due)]
        given = called(self._function, name, call.rows, call.state, *more)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UserFunctionError(
                f"{name} gave a {type(given).__name__}, and must give a pair of tables: (output, state)"
            )
        output = self.checked(given[0], self._output, f"{name}: its output")
        state = self.checked(given[1], self.state_schema, f"{name}: its state")
        if self._spec.time_name is not None:
            self.check_times(output.column(self._spec.time_name), late_before, name)
        return Made(output, state)

    def batches(self, made: Made) -> list[pa.RecordBatch]:
        return [batch for batch in made.output.combine_chunks().to_batches(_BATCH_ROWS) if len(batch)]

    def checked(self, made: object, schema: pa.Schema, what: str) -> pa.Table:
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        wanted = ", ".join(f"{field.name} {field.type}" for field in schema)
        if not isinstance(made, pa.Table):
            raise UserFunctionError(f"{what} is a {type(made).__name__}, and must be a pyarrow.Table of {wanted}")
        try:
            table = made.select(schema.names).cast(schema)
            table.validate()
        except (KeyError, pa.ArrowException) as error:
            given = ", ".join(f"{field.name} {field.type}" for field in made.schema)
            raise UserFunctionError(
                f"{what} is a table of {given}, and was declared to be one of {wanted}: {error}. {NOTHING_KEPT}"
            ) from error
        return table

    def check_times(self, times: pa.ChunkedArray, late_before: int, name: str) -> None:
        """Refuse rows that would be late for whoever comes after."""
        oldest = pc.min(times.cast(pa.int64())).as_py()
        if oldest is not None and oldest < late_before:
            old, mark = (np.int64(each).astype("datetime64[us]") for each in (oldest, late_before))
            raise UserFunctionError(
                f"{name} gave a row with the event time {old} in {self._spec.time_name!r}, before the watermark "
                f"{mark}: an operator that comes after would take it for late. Give rows the event time of the rows or "
                f"of the timer that they come from. {NOTHING_KEPT}"
            )
