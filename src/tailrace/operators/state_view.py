"""State as its user knows it: how an operator's kind shows what it keeps as columns with the user's names and types.

A kind is given a *complete* section, one that stands for all that a shard, or some keys of it, have
(``CompactSections`` with ``complete``), and shows it as rows:

- the group columns, and the window between them as in the operator's output;
- what is kept for them: aggregates as they would be emitted now, rows as they came, state columns of a user's function;
- columns of ours, whose names begin with ``_``: when a record was last updated, when it is forgotten, and so on.

``records`` asks for the records themselves: the values that aggregates are made of, and panes in place of windows.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.nested import nested_values
from tailrace.operators.timers.ttl import Ttl
from tailrace.state.rows.columns import arrow_type
from tailrace.types import TIMESTAMP, DataType, Field

_SpecIn = TypeVar("_SpecIn", contravariant=True)
_Spec = TypeVar("_Spec")

UPDATED, EXPIRES = "_updated", "_expires"
"""When a record was last updated, and from which time on (by the clock of the time-to-live) it is forgotten."""
ROWS = "_rows"
"""How many rows of a key came so far."""
PANE = "_pane"
"""Where a row or a record lies that is part of several windows."""


class ShowState(Protocol[_SpecIn]):
    def __call__(
        self, spec: _SpecIn, section: pa.RecordBatch, horizon: int, /, *, records: bool
    ) -> Iterator[pa.RecordBatch]:
        """Batches of one schema, which depends on the spec alone: at least one, which may be empty."""


@dataclass(frozen=True)
class StateView(Generic[_Spec]):
    """``identity``: so many columns, from the first on, distinguish any two rows that ``rows`` gives; 0: rows may be
    equal.
    """

    rows: ShowState[_Spec]
    identity: Callable[[_Spec, bool], int]


@dataclass
class Columns:
    """Columns of a view, gathered one after the other."""

    names: list[str] = field(default_factory=list)
    arrays: list[pa.Array] = field(default_factory=list)

    def add(self, name: str, array: pa.Array) -> None:
        """One of the user's. What is kept twice, as a key and as a value, is shown once."""
        if name not in self.names:
            self._put(name, array)

    def own(self, name: str, array: pa.Array) -> None:
        """One of ours; a user's column of that name keeps it."""
        while name in self.names:
            name = f"_{name}"
        self._put(name, array)

    def _put(self, name: str, array: pa.Array) -> None:
        self.names.append(name)
        self.arrays.append(array)

    def fields(self, fields: Iterable[Field], arrays: Iterable[pa.Array]) -> None:
        """Columns of the user's, as they lie in a section: strings there have 64-bit offsets."""
        for each, array in zip(fields, arrays, strict=False):
            self.add(each.name, typed(array, each.type))

    def expiry(self, ttl: Ttl | None, updated: pa.Array) -> None:
        """When records were last updated, and when they expire."""
        if ttl is None:
            return
        micros = updated.cast(pa.int64())
        self.own(UPDATED, timestamps(micros))
        self.own(EXPIRES, timestamps(pc.add(micros, int(ttl.span))))

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self.arrays, names=self.names)


def typed(array: pa.Array, type_: DataType) -> pa.Array:
    if type_.packed is not None:
        return nested_values(array, type_)
    wanted = arrow_type(type_)
    return array if array.type == wanted else array.cast(wanted)


def timestamps(micros: pa.Array) -> pa.Array:
    return micros.cast(arrow_type(TIMESTAMP))


def spans(starts: np.ndarray, ends: np.ndarray, time: DataType) -> pa.Array:
    """Windows or panes, as a column of structs."""
    edges = [pa.array(each, pa.int64()).cast(arrow_type(time)) for each in (starts, ends)]
    return pa.StructArray.from_arrays(edges, names=["start", "end"])
