"""What a state variable holds for the keys of one call: packed as it lies in their records, as tuples where it is used.

Invariants
- A key's rows become Python objects when the function reads them, and are packed again only where it changed them. What
  it only appends to is neither: packed rows are joined with packed rows.
- Of a variable that expires, a row is not seen from the moment of its expiry on, and is gone when the call ends.
- The packed form is that of ``state.rows.packed_rows``, and is kept in checkpoints: a change of it needs a new format
  version (docs/reference/log-format.md).

A row is a tuple of the variable's fields, of a map its key's first, and of when it expires last. Timestamps are
microseconds here: what the user sees of them is the caller's.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.operators.stateful_processor.spec import VariableSpec
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.packed_rows import pack, unpack
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import ValidBits, decoded
from tailrace.types import DataType, Field

NEVER = 2**63 - 1
_BINARY = DataType("binary")
_PACKED = record_layout((), [(Merge.ROW, _BINARY)], ansi=False)
_LISTED_MAX = 1 << 16
"""Rows of a call that are made Python objects at once; of more, each key's when they are asked for."""

StateRow = tuple[Any, ...]


class PackedState:
    """``packed``: a column with a value for each key. ``earliest``: when the first row of each key expires, or of a
    list of timers the first of them; ``NEVER`` where there is none. ``now``: in milliseconds.
    """

    def __init__(self, variable: VariableSpec, packed: pa.Array, earliest: np.ndarray | None, now: int) -> None:
        self.variable = variable
        self.earliest = earliest
        self._packed = packed
        self._now = now
        self._layout = _layout_of(variable.packed_fields)
        self._changed: dict[int, Any] = {}  # rows, or a map's dictionary
        self._appended: dict[int, list[StateRow]] = {}
        self._rows: Rows | None = None
        self._starts: list[int] = []
        self._listed: list[StateRow] | None = None
        self._map_of = -1  # the last key whose map was read
        self._map: dict[StateRow, StateRow] = {}

    # What a user's function reads and writes -------------------------------------------------------------------------

    def read(self, key: int) -> list[StateRow]:
        """Not to be changed."""
        found = self._changed.get(key)
        if found is None:
            more = self._appended.get(key)
            stored = self._stored(key)
            return stored + more if more else stored
        return list(_rows_of(found)) if isinstance(found, dict) else found

    def read_map(self, key: int) -> dict[StateRow, StateRow]:
        """Values by their keys. Not to be changed: see ``changed_map``."""
        found: dict[StateRow, StateRow] | None = self._changed.get(key)
        if found is not None:
            return found
        if self._map_of != key:
            cut = self.variable.keys
            self._map_of, self._map = key, {row[:cut]: row[cut:] for row in self._stored(key)}
        return self._map

    def write(self, key: int, rows: list[StateRow]) -> None:
        self._changed[key] = rows
        self._appended.pop(key, None)

    def changed_map(self, key: int) -> dict[StateRow, StateRow]:
        """To be changed."""
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = self.read_map(key)
            self._map_of = -1
        return found

    def append(self, key: int, rows: Iterable[StateRow]) -> None:
        found = self._changed.get(key)
        if found is not None:
            found.extend(rows)
        else:
            self._appended.setdefault(key, []).extend(rows)

    def _stored(self, key: int) -> list[StateRow]:
        if self._rows is None:
            self._open()
        low, high = self._starts[key], self._starts[key + 1]
        if low == high:
            return []
        found = self._objects(low, high) if self._listed is None else self._listed[low:high]
        if self.variable.expires:
            return [row for row in found if row[-1] > self._now]
        return found

    def _open(self) -> None:
        self._rows, starts = _unpacked(self._packed, self._layout)
        self._starts = starts.tolist()
        if len(self._rows) <= _LISTED_MAX:
            self._listed = self._objects(0, len(self._rows))

    def _objects(self, low: int, high: int) -> list[StateRow]:
        assert self._rows is not None
        chosen = Rows(self._rows.words[low:high], self._rows.heap)
        valid = ValidBits(chosen)
        return list(zip(*(_plain(decoded(chosen, valid, place)) for place in self._layout.accumulators), strict=True))

    # What becomes of it ----------------------------------------------------------------------------------------------

    def finish(self) -> pa.Array:
        """The column as it is now; ``earliest`` too."""
        if self.variable.expires and self.earliest is not None:
            for key in np.flatnonzero(self.earliest <= self._now).tolist():
                self.write(key, self.read(key))
        if not self._changed and not self._appended:
            return self._packed
        changed = {key: list(_rows_of(found)) for key, found in self._changed.items()}
        self._note_earliest(changed)
        touched = np.array([*changed, *self._appended], np.int64)
        counts = [*map(len, changed.values()), *map(len, self._appended.values())]
        new = self._built([row for rows in (*changed.values(), *self._appended.values()) for row in rows])
        packed = self._joined(new, np.array(counts, np.int64), touched, len(changed))
        index = np.arange(len(self._packed))
        index[touched] = len(self._packed) + np.arange(len(touched))
        return pa.concat_arrays([self._packed.cast(pa.large_binary()), packed]).take(pa.array(index))

    def _joined(self, new: Rows, counts: np.ndarray, touched: np.ndarray, changed: int) -> pa.Array:
        """Packed rows of the keys ``touched``: of those behind ``changed``, what they had before comes first."""
        had = self._packed.take(pa.array(touched[changed:]))
        old, old_starts = _unpacked(had, self._layout)
        before = np.concatenate([np.zeros(changed, np.int64), np.diff(old_starts)])
        # Old rows come first, then the new ones, key by key.
        owners = np.concatenate([np.repeat(np.arange(len(touched)), each) for each in (before, counts)])
        order = np.argsort(owners, kind="stable")
        starts = np.concatenate([[0], np.cumsum(before + counts)]).astype(np.int64)
        there = np.flatnonzero(before + counts)
        rows = concat_rows([old, new], self._layout)
        records = pack(rows, order, np.append(starts[there], starts[-1]), self._layout)
        place = _PACKED.accumulators[0].word
        full = columns.decode(records.words[:, place], None, records.heap, _BINARY, large=True)
        index = np.full(len(touched), -1, np.int64)
        index[there] = np.arange(len(there))
        return full.take(pa.array(index, mask=index < 0))

    def _note_earliest(self, changed: dict[int, list[StateRow]]) -> None:
        if self.earliest is None:
            return
        self.earliest = self.earliest.copy()
        for key, rows in changed.items():
            self.earliest[key] = min((row[-1] for row in rows), default=NEVER)
        for key, rows in self._appended.items():
            self.earliest[key] = min([self.earliest[key], *(row[-1] for row in rows)])

    def _built(self, rows: list[StateRow]) -> Rows:
        builder = RowsBuilder(len(rows), self._layout)
        cells = list(zip(*rows, strict=True)) if rows else [()] * len(self._layout.accumulators)
        for values, field, place in zip(cells, self.variable.packed_fields, self._layout.accumulators, strict=True):
            builder.put(self._array(values, field), field.type, place.word, place.bit)
        return builder.finish()

    def _array(self, values: tuple[Any, ...], field: Field) -> pa.Array:
        type_ = columns.arrow_type(field.type, large=True)
        try:
            if field.type.is_time:
                return pa.array(values, pa.int64()).cast(type_)
            return pa.array(values, type_)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise TypeError(
                f"state {self.variable.name!r} was given a value of {field.name!r} that is no {field.type}: {error}"
            ) from error


def unpacked(packed: pa.Array, variable: VariableSpec) -> tuple[list[pa.Array], np.ndarray]:
    """The rows of a variable of many keys, column by column, and where those of each key begin."""
    layout = _layout_of(variable.packed_fields)
    rows, starts = _unpacked(packed, layout)
    valid = ValidBits(rows)
    return [decoded(rows, valid, place) for place in layout.accumulators], starts


def _layout_of(fields: tuple[Field, ...]) -> RecordLayout:
    return record_layout((), [(Merge.ROW, field.type) for field in fields], ansi=False)


def _rows_of(found: Any) -> Iterable[StateRow]:
    return [key + value for key, value in found.items()] if isinstance(found, dict) else found


def _plain(array: pa.Array) -> list[Any]:
    values: list[Any] = (array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array).to_pylist()
    return values


def _unpacked(packed: pa.Array, layout: RecordLayout) -> tuple[Rows, np.ndarray]:
    """The rows of all keys, and where those of each begin; a null has none."""
    there = np.flatnonzero(packed.is_valid().to_numpy(zero_copy_only=False))
    builder = RowsBuilder(len(there), _PACKED)
    place = _PACKED.accumulators[0]
    builder.put(packed.take(pa.array(there)), _BINARY, place.word, place.bit)
    rows, ends = unpack(builder.finish(), layout)
    counts = np.zeros(len(packed), np.int64)
    counts[there] = np.diff(ends)
    return rows, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
