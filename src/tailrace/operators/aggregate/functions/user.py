"""A user's own mergeable aggregate: four functions of Arrow tables, called for many groups at once.

The state of a group is one row of a table, whose columns are those of ``zero``; a record keeps them as typed values, so
that they are spilled, checkpointed and undone as any other. The functions come with the query's description, from the
process that started it, as the functions of windows do.

Threads: servers merge shards in several threads, and a user's function need not know: calls wait for one another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.errors import AnalysisError, UserFunctionError
from tailrace.operators.aggregate.accumulators import Output, StateSpec
from tailrace.operators.aggregate.functions.descriptor import Descriptor
from tailrace.operators.aggregate.functions.states import StateKind, run_numbers
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.user_code.code import NOTHING_KEPT, called, loaded
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType

__all__ = ["aggregate"]

_ONE_CALL = threading.Lock()
_STATE_TYPES = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz"),
    *("string", "binary"),
)
_BETWEEN = " "  # of packed functions, which are base64


class _UserState:
    def __init__(self, spec: StateSpec) -> None:
        assert spec.code is not None
        zero, self._update, self._merge, _ = _functions(spec.code)
        self._zero: pa.Table = zero()
        self._rows = pa.schema(
            [(name, arrow_type(type_)) for name, type_ in zip(spec.columns, spec.types, strict=True)]
        )

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        groups = len(offsets) - 1
        rows = pa.table(list(columns), names=self._rows.names).cast(self._rows)
        states = self._zero.take(pa.array(np.zeros(groups, np.int64)))
        return self._call("update", self._update, groups, states, rows, pa.array(run_numbers(offsets)))

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """By pairs of neighbours, so that a run of n states takes as many calls as n has binary digits."""
        held, numbers = list(states), run_numbers(offsets)
        while len(numbers) > len(offsets) - 1:
            firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
            place = np.arange(len(numbers)) - np.repeat(firsts, np.diff(np.append(firsts, len(numbers))))
            left = np.flatnonzero(place % 2 == 0)
            right = left + 1
            paired = (right < len(numbers)) & (np.append(numbers, -1)[right] == numbers[left])
            both = [self._table(held, side[paired]) for side in (left, right)]
            made = self._call("merge", self._merge, int(paired.sum()), *both)
            alone = self._table(held, left[~paired])
            order = pa.array(np.argsort(np.concatenate([left[paired], left[~paired]])))
            held = [
                pa.concat_arrays([one, other.combine_chunks()]).take(order)
                for one, other in zip(made, alone.columns, strict=True)
            ]
            numbers = numbers[left]
        return held

    def _table(self, arrays: Sequence[pa.Array], chosen: np.ndarray) -> pa.Table:
        return pa.table([array.take(pa.array(chosen)) for array in arrays], names=self._zero.column_names).cast(
            self._zero.schema
        )

    def _call(self, what: str, function: Callable[..., Any], count: int, *arguments: Any) -> list[pa.Array]:
        name = f"tailrace.aggregate: {what} function {getattr(function, '__name__', '')}"
        with _ONE_CALL:
            made = called(function, name, *arguments)
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table) or len(made) != count:
            got = f"{len(made)} rows" if isinstance(made, pa.Table) else f"a {type(made).__name__}"
            raise UserFunctionError(
                f"{name} must give a pyarrow.Table of {count} states, one for each it was given, and gave {got}. "
                f"{NOTHING_KEPT}"
            )
        try:
            table = made.select(self._zero.column_names).cast(self._zero.schema)
        except (KeyError, pa.ArrowException) as error:
            raise UserFunctionError(
                f"{name} gave a table of {made.schema.to_string()}, and the state is "
                f"{self._zero.schema.to_string()}: {error}. {NOTHING_KEPT}"
            ) from error
        return [column.combine_chunks() for column in table.columns]


@lru_cache(maxsize=64)
def _functions(code: str) -> tuple[Callable[..., Any], ...]:
    return tuple(loaded(part, "aggregate", "a function of tailrace.aggregate") for part in code.split(_BETWEEN))


def state_fields(arguments: Sequence[Any]) -> list[tuple[str, DataType]]:
    """Of the arguments after the result's type: name and type of each column of the state."""
    names, types = arguments[1::2], arguments[2::2]
    return [(str(name), DataType(str(type_))) for name, type_ in zip(names, types, strict=True)]


_STATE = StateKind(
    "user", lambda spec: [type_ for _, type_ in state_fields(spec.arguments)], _UserState, "your state of {}"
)


def _finish(values: Sequence[Values], output: Output) -> pa.Array:
    assert output.code is not None
    function, type_ = _functions(output.code)[3], arrow_type(output.type)
    names = [name for name, _ in state_fields(output.arguments)]
    states = [one.array(one.place.type) for one in values]
    if not len(states[0]):
        return pa.array([], type_)
    name = f"tailrace.aggregate: finish function {getattr(function, '__name__', '')}"
    with _ONE_CALL:
        made = called(function, name, pa.table(states, names=names))
    if isinstance(made, pa.ChunkedArray):
        made = made.combine_chunks()
    if not isinstance(made, pa.Array) or len(made) != len(states[0]):
        got = f"{len(made)} values" if isinstance(made, pa.Array) else f"a {type(made).__name__}"
        raise UserFunctionError(
            f"{name} must give a pyarrow.Array of {len(states[0])} values, one for each state, and gave {got}. "
            f"{NOTHING_KEPT}"
        )
    try:
        return made.cast(type_)
    except pa.ArrowException as error:
        raise UserFunctionError(
            f"{name} gave values of type {made.type}, and was declared to give {output.type}: {error}. {NOTHING_KEPT}"
        ) from error


_USER = Descriptor(
    "aggregate", lambda inputs: DataType(str(inputs.arguments[0])), keeps=_STATE.accumulators, finish=_finish
)


@dataclass(frozen=True)
class UserAggregate:
    """What :func:`aggregate` makes: called with columns' names it is an aggregate for ``agg``."""

    arguments: tuple[str, ...]
    code: str
    name: str

    def __call__(self, *cols: ColumnOrName) -> Aggregate:
        if not cols:
            raise AnalysisError(f"{self.name} needs the names of the columns that it is of")
        return _USER(*cols, arguments=self.arguments, label=self.name, code=self.code)


def aggregate(
    zero: Mapping[str, Any],
    update: Callable[..., Any],
    merge: Callable[..., Any],
    finish: Callable[..., Any],
    schema: object,
) -> UserAggregate:
    """An aggregate of your own that is merged as rows come, so that no row is kept.

    A group's state is one row of values. ``zero`` gives its columns and what they begin with: numbers, strings, bytes,
    booleans, or ``pyarrow`` scalars. All functions get and give ``pyarrow`` tables of many groups at once:

    - ``update(states, rows, group)``: ``states`` has a row for each group, equal to ``zero``; ``rows`` has the columns
      that the aggregate is called with; ``group`` says of each row which state it belongs to. Returns the new states.
    - ``merge(left, right)``: two tables of as many states; returns the states that each two of one row amount to.
      It must not matter how rows were divided between states.
    - ``finish(states)``: returns an array, one value for each state, of type ``schema``, for example ``"double"``.

    They must depend on nothing but their arguments: an epoch that is replayed calls them again.

    >>> import numpy as np, pyarrow as pa, pyarrow.compute as pc
    >>> def update(states, rows, group):
    ...     values = np.nan_to_num(np.asarray(rows["x"].cast(pa.float64())))
    ...     return pa.table({"squares": np.bincount(group, values**2, minlength=len(states))})
    >>> def merge(left, right):
    ...     return pa.table({"squares": pc.add(left["squares"], right["squares"])})
    >>> norm = aggregate({"squares": 0.0}, update, merge, lambda states: pc.sqrt(states["squares"]), "double")
    >>> norm("x").alias("norm").name
    'norm'
    """
    for what, function in (("update", update), ("merge", merge), ("finish", finish)):
        if not callable(function):
            raise AnalysisError(f"aggregate: {what} must be a function, but is {function!r}")
    state, types = _zero_table(zero)
    text = schema.strip().lower() if isinstance(schema, str) else getattr(schema, "simpleString", lambda: "")()
    result = DataType(text)
    if (result.element or result).kind is None:
        raise AnalysisError(
            f"aggregate: schema must be the type of the answer, such as 'double' or 'array<string>', but is {schema!r}"
        )
    code = _BETWEEN.join(packed(one) for one in (partial(_given, state), update, merge, finish))
    fields = [text for pair in zip(state.column_names, types, strict=True) for text in pair]
    return UserAggregate((result.name, *fields), code, "aggregate")


def _given(state: pa.Table) -> pa.Table:
    return state


def _zero_table(zero: object) -> tuple[pa.Table, list[str]]:
    if not isinstance(zero, Mapping) or not zero or not all(isinstance(name, str) for name in zero):
        raise AnalysisError(
            f"aggregate: zero must name the columns of the state and what they begin with, such as "
            f"{{'n': 0, 'total': 0.0}}, but is {zero!r}"
        )
    arrays, types = [], []
    for name, begin in zero.items():
        scalar = begin if isinstance(begin, pa.Scalar) else pa.scalar(begin)
        found = _type_name(scalar.type)
        if found is None:
            raise AnalysisError(
                f"aggregate: column {name!r} of the state begins with {begin!r} ({scalar.type}), which cannot be kept: "
                f"take a number, string, bytes or boolean, or a pyarrow.scalar of {', '.join(_STATE_TYPES)} or decimal"
            )
        arrays.append(pa.array([scalar.as_py()], scalar.type))
        types.append(found)
    return pa.table(arrays, names=list(zero)), types


def _type_name(type_: pa.DataType) -> str | None:
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return next((name for name in _STATE_TYPES if arrow_type(DataType(name)) == type_), None)
