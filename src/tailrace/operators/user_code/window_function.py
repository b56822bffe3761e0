"""A user's function of the rows of windows: called with an Arrow table, held to the schema it was declared with.

Rows are ordered, so that the function sees the same table when an epoch is replayed: by event time and then by every
column. Where windows are each key's own, a table holds many of them, each with its rows together, and has a column that
says which; the function gives that column back, so that every row it makes belongs to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import UserFunctionError
from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.output import output_schema
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.row_order import LateColumn, in_order, row_order
from tailrace.operators.user_code.code import NOTHING_KEPT, called, loaded, said_of
from tailrace.state.layout import AccumulatorWords, KeyWords
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.gather import Spread
from tailrace.types import Kind

_GROUP = "__group"


class UserFunction:
    def __init__(self, spec: AggregateSpec) -> None:
        assert spec.function is not None
        self._spec = spec
        self._function = loaded(spec.function, spec.name, "the function")
        self._schema = output_schema(spec)
        if not spec.own_windows:
            self._schema = pa.schema([self._schema.field(out.name) for out in spec.outputs])
        chained = spec.takes_window_start
        hidden = {spec.time_column.name} if chained and spec.time_column is not None else set()
        if spec.dynamic_session is not None:
            hidden.add(spec.dynamic_session.ends)
        self._columns = [field for field in (*spec.keys, *spec.rows) if field.name not in hidden]
        layout, names = spec.layout(), (field.name for field in (*spec.kept_keys, *spec.rows))
        self._places: dict[str, KeyWords | AccumulatorWords] = dict(
            zip(names, (*layout.keys, *layout.accumulators), strict=True)
        )

    def by_window(self, groups: Groups, starts: np.ndarray, ends: np.ndarray, epoch: int) -> Iterator[pa.RecordBatch]:
        """What it makes of windows that keys share: one call for each of them, usually the only one."""
        for start, end, own in _windows(starts, ends):
            yield from self.of_window(self._table(groups.where(own)), start, end, epoch)

    def of_window(self, table: pa.Table, start: int, end: int, epoch: int) -> Iterator[pa.RecordBatch]:
        """What it makes of one window that keys share, whose rows are a table that is in order."""
        made = self._call(table, epoch)
        bounds = window_struct(np.full(len(made), start), self._spec, np.full(len(made), end))
        yield from made.add_column(0, self._spec.window_name, bounds).combine_chunks().to_batches()

    def of_own_windows(self, groups: Groups, windows: pa.Array, epoch: int) -> Iterator[pa.RecordBatch]:
        """What it makes of windows that are each key's own, ``windows`` of each group: one call for all of them."""
        yield from self.of_windows(self._table(groups, windows), windows, epoch)

    def of_windows(self, table: pa.Table, windows: pa.Array, epoch: int) -> Iterator[pa.RecordBatch]:
        """As ``of_own_windows``, of a table that is in order and says which row is in which."""
        made = self._call(table, epoch)
        returned = made.column(self._spec.window_name).combine_chunks()
        strange = ~_among(returned, windows)
        if strange.any():
            name = said_of(self._spec.name, epoch, self._function)
            raise UserFunctionError(
                f"{name} gave {int(strange.sum())} of {len(made)} rows a {self._spec.window_name} that was not in the "
                f"table it got, for example {returned[int(np.flatnonzero(strange)[0])]}: give back that column's "
                f"values as they are. {NOTHING_KEPT}"
            )
        yield from made.combine_chunks().to_batches()

    def table(self, rows: Spread, groups: np.ndarray | None = None, windows: pa.Array | None = None) -> pa.Table:
        """Rows as the function sees them, in order. ``groups``: the number of each row's window among ``windows``."""
        spec, count = self._spec, len(rows)
        names = [] if spec.time_column is None else [spec.time_column.name]
        names += [name for name in self._places if name not in names]
        by: list[pa.Array | LateColumn] = [] if groups is None else [pa.array(groups)]
        by += [_sorted_by(rows, self._places[name]) for name in names]
        order = row_order(by, count)
        table = pa.table(
            {f.name: rows.column(self._places[f.name], order).cast(arrow_type(f.type)) for f in self._columns}
        )
        if windows is not None:
            assert groups is not None
            table = table.add_column(0, spec.window_name, windows.take(pa.array(groups[order])))
        return table

    def _table(self, groups: Groups, windows: pa.Array | None = None) -> pa.Table:
        spec = self._spec
        columns, first = dict(groups.columns), []
        if windows is not None:
            columns[_GROUP] = pa.array(groups.numbers)
            first.append(_GROUP)
        if spec.time_column is not None:
            first.append(spec.time_column.name)
        columns = in_order(columns, [*first, *(name for name in columns if name not in first)])
        table = pa.table({f.name: columns[f.name].cast(arrow_type(f.type)) for f in self._columns})
        if windows is not None:
            table = table.add_column(0, spec.window_name, windows.take(columns[_GROUP]))
        return table

    def _call(self, table: pa.Table, epoch: int) -> pa.Table:
        name = said_of(self._spec.name, epoch, self._function)
        return self._checked(called(self._function, name, table), name)

    def _checked(self, made: object, name: str) -> pa.Table:
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        wanted = ", ".join(f"{field.name} {field.type}" for field in self._schema)
        if not isinstance(made, pa.Table):
            raise UserFunctionError(f"{name} gave a {type(made).__name__}, and must give a pyarrow.Table of {wanted}")
        given = ", ".join(f"{field.name} {field.type}" for field in made.schema)
        try:
            return made.select(self._schema.names).cast(self._schema)
        except (KeyError, pa.ArrowException) as error:
            raise UserFunctionError(
                f"{name} gave a table of {given}, and was declared to give {wanted}: {error}. {NOTHING_KEPT}"
            ) from error


def _sorted_by(rows: Spread, place: KeyWords | AccumulatorWords) -> pa.Array | LateColumn:
    """Strings are made only where nothing else distinguishes rows."""
    if place.kind is Kind.BYTES:
        return LateColumn(lambda numbers: rows.column(place, numbers))
    return rows.column(place)


def _windows(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Every different window in order of time, and which groups are in it."""
    firsts, by_start = np.unique(starts, return_inverse=True)
    for number, start in enumerate(firsts):
        own = by_start == number
        for end in np.unique(ends[own]):
            yield int(start), int(end), own & (ends == end)


def _among(windows: pa.Array, given: pa.Array) -> np.ndarray:
    """Which of the windows are among those given."""
    if windows.null_count or any(part.null_count for part in _parts(windows)):
        known = np.asarray(pc.is_valid(windows).to_numpy(zero_copy_only=False), bool)
        for part in _parts(windows):
            known &= np.asarray(pc.is_valid(part).to_numpy(zero_copy_only=False), bool)
        return known  # the rest need not be looked at: one row without a window is enough
    numbers = np.zeros(len(given) + len(windows), np.int64)
    for pair in zip(_parts(given), _parts(windows), strict=True):
        both = pa.concat_arrays([part.cast(pa.int64()) for part in pair]).dictionary_encode()
        numbers = numbers * len(both.dictionary) + both.indices.to_numpy()
    found = pc.is_in(pa.array(numbers[len(given) :]), value_set=pa.array(numbers[: len(given)]))
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def _parts(windows: pa.Array) -> list[pa.Array]:
    return list(windows.flatten()) if pa.types.is_struct(windows.type) else [windows]
