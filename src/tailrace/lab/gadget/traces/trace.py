"""Traces: the accesses that an operator makes to its state store, in order, and the file that keeps them.

A trace's file is Parquet with the columns ``operation``, ``key``, ``value_size`` and ``time``, and, where the input is
known, ``event_key``, ``event_time``, ``event_side`` and ``event_kind``. Accesses and events are two lists side by side:
a row is no pair of them, and the shorter list is filled up with nulls, row group by row group. ``FORMAT`` is in the
file's metadata; it changes when a column changes its meaning, and a reader refuses what it does not know.

A file appears whole or not at all: it is written under another name beside it. Traces never change; a writer belongs
to one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import TailraceError

FORMAT = "1"
_FORMAT_KEY = "gadget.format"
_KEYS = "gadget.keys"
_OWN = "gadget:"
KEY_BYTES = 10
"""Of a state key, unless the metadata says otherwise."""


class Operation(IntEnum):
    GET = 0
    PUT = 1
    MERGE = 2
    DELETE = 3


class TraceError(TailraceError):
    """A file that should be a trace is none, or is damaged: the user makes it anew or names another one."""


@dataclass(frozen=True)
class Events:
    """The input stream in the order of its arrival."""

    keys: np.ndarray
    """int64"""
    times: np.ndarray
    """int64, microseconds of event time"""
    sides: np.ndarray | None = None
    """uint8: 0 for the left input, 1 for the right one. None: there is one input."""
    kinds: np.ndarray | None = None
    """uint8: what an event means to its operator, see `events.Kind`. None: all are `Kind.DATA`."""

    def __post_init__(self) -> None:
        for name, column in (("times", self.times), ("sides", self.sides), ("kinds", self.kinds)):
            if column is not None and len(column) != len(self.keys):
                raise ValueError(f"there are {len(self.keys)} keys and {len(column)} {name}")

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, first: int, end: int) -> Events:
        sides = None if self.sides is None else self.sides[first:end]
        kinds = None if self.kinds is None else self.kinds[first:end]
        return Events(self.keys[first:end], self.times[first:end], sides, kinds)


@dataclass(frozen=True)
class Trace:
    """State accesses in order. Columns are of equal length and are not to be written to."""

    operations: np.ndarray
    """uint8, see `Operation`"""
    keys: np.ndarray
    """int64: state keys, numbered from 0 in the order in which they appear first"""
    value_sizes: np.ndarray
    """int32: bytes that a put or merge writes; 0 for get and delete"""
    times: np.ndarray
    """int64: microseconds of event time, of the event or watermark that caused the access"""
    events: Events | None = None
    """What it was made from, where that is known."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """``workload``, its parameters, ``seed``, ``key_bytes``, ``origin`` (recorded, simulated, ycsb, imported)."""

    def __post_init__(self) -> None:
        for name in ("keys", "value_sizes", "times"):
            if len(getattr(self, name)) != len(self.operations):
                raise ValueError(f"there are {len(self.operations)} operations and {len(getattr(self, name))} {name}")

    def __len__(self) -> int:
        return len(self.operations)

    @property
    def key_bytes(self) -> int:
        """The length of a state key; with keys of several lengths, their mean."""
        text = self.metadata.get("key_bytes", str(KEY_BYTES))
        try:
            found = int(text)
        except ValueError:
            found = 0
        if not 0 < found < 1 << 31:
            raise TraceError(
                f"the trace's metadata says key_bytes = {text!r}: it must be a whole number above 0, in bytes"
            )
        return found

    @property
    def distinct_keys(self) -> int:
        return int(self.keys.max()) + 1 if len(self) else 0

    def shuffled(self, seed: int) -> Trace:
        """The same accesses in random order: keys are as popular, but there is no locality. Keys keep their numbers."""
        order = np.random.default_rng(seed).permutation(len(self))
        return replace(
            self,
            operations=self.operations[order],
            keys=self.keys[order],
            value_sizes=self.value_sizes[order],
            times=self.times[order],
            metadata={**self.metadata, "shuffled": str(seed)},
        )


def joined(pieces: Iterable[Trace]) -> Trace:
    """Pieces of one trace as one; metadata are those of the last."""
    parts = list(pieces)
    if not parts:
        return Trace(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    inputs = [part.events for part in parts if part.events is not None]
    return Trace(
        np.concatenate([part.operations for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.value_sizes for part in parts]),
        np.concatenate([part.times for part in parts]),
        _joined_events(inputs),
        parts[-1].metadata,
    )


def _joined_events(parts: list[Events]) -> Events | None:
    if not parts:
        return None

    def column(name: str) -> np.ndarray | None:
        found = [getattr(part, name) for part in parts]
        return None if any(one is None for one in found) else np.concatenate(found)

    keys, times = column("keys"), column("times")
    assert keys is not None and times is not None
    return Events(keys, times, column("sides"), column("kinds"))


_ACCESS_COLUMNS = {"operation": pa.uint8(), "key": pa.int64(), "value_size": pa.int32(), "time": pa.int64()}
_EVENT_COLUMNS = {"event_key": pa.int64(), "event_time": pa.int64(), "event_side": pa.uint8(), "event_kind": pa.uint8()}
_EVENT_FIELDS = {"event_key": "keys", "event_time": "times", "event_side": "sides", "event_kind": "kinds"}
_ROW_GROUP = 1 << 20


class TraceWriter:
    """Writes a trace piece by piece. The file is there when the ``with`` block has ended without an error."""

    def __init__(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        self.path = Path(path)
        self.metadata = dict(metadata or {})
        self._part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._writer: Any = None
        self._keys = 0

    def __enter__(self) -> TraceWriter:
        if not self.path.parent.is_dir():
            raise TraceError(f"there is no folder {self.path.parent} to write {self.path.name} to: make it first")
        return self

    def write(self, piece: Trace) -> None:
        if self._writer is None:
            columns = list(_ACCESS_COLUMNS.items())
            if piece.events is not None:
                columns += [
                    (name, kind)
                    for name, kind in _EVENT_COLUMNS.items()
                    if getattr(piece.events, _EVENT_FIELDS[name]) is not None
                ]
            self._writer = pq.ParquetWriter(
                self._part,
                pa.schema(columns),
                compression="zstd",
                write_page_checksum=True,
                use_dictionary=["operation", "value_size"],
                column_encoding={
                    name: "DELTA_BINARY_PACKED"
                    for name, kind in columns
                    if kind == pa.int64()  # numbers that count up, and times
                },
            )
        table = _table(piece, self._writer.schema)
        for first in range(0, table.num_rows, _ROW_GROUP):
            self._writer.write_table(table.slice(first, _ROW_GROUP))
        self._keys = max(self._keys, piece.distinct_keys)
        self.metadata.update(piece.metadata)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self._writer is None:
                    self.write(joined([]))
                own = {_OWN + name: value for name, value in self.metadata.items()}
                self._writer.add_key_value_metadata({_FORMAT_KEY: FORMAT, _KEYS: str(self._keys), **own})
            if self._writer is not None:
                self._writer.close()
            if error is None:
                self._part.replace(self.path)
        finally:
            self._part.unlink(missing_ok=True)


def _table(piece: Trace, schema: pa.Schema) -> pa.Table:
    columns: dict[str, np.ndarray] = dict(
        zip(_ACCESS_COLUMNS, (piece.operations, piece.keys, piece.value_sizes, piece.times))
    )
    for name in schema.names[len(_ACCESS_COLUMNS) :]:
        found = None if piece.events is None else getattr(piece.events, _EVENT_FIELDS[name])
        columns[name] = np.empty(0, np.int64) if found is None else found
    rows = max(len(column) for column in columns.values())
    arrays = []
    for name, column in columns.items():
        kind = schema.field(name).type
        filled = pa.array(column, kind, from_pandas=False)
        arrays.append(pa.concat_arrays([filled, pa.nulls(rows - len(column), kind)]))
    return pa.Table.from_arrays(arrays, schema=schema)


def write_trace(path: str | os.PathLike[str], trace: Trace) -> None:
    with TraceWriter(path, trace.metadata) as writer:
        writer.write(trace)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace of a file, checked: errors name the file, the column and the row."""
    where = Path(path)
    try:
        table = pq.read_table(where, partitioning=None, page_checksum_verification=True)
        found = pq.read_metadata(where).metadata or {}
    except FileNotFoundError as error:
        raise TraceError(f"there is no trace {where}") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{where} cannot be read as a trace (a Parquet file): {error}") from error
    metadata = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in found.items()}
    version = metadata.get(_FORMAT_KEY)
    if version != FORMAT:
        raise TraceError(
            f"{where} is no trace of format {FORMAT}: "
            + (
                f"it says {version!r}; read it with the version that wrote it"
                if version
                else "`tailrace gadget import` reads traces of other tools"
            )
        )
    accesses = {name: _column(where, table, name, kind) for name, kind in _ACCESS_COLUMNS.items()}
    _same_length(where, accesses)
    trace = Trace(
        accesses["operation"],
        accesses["key"],
        accesses["value_size"],
        accesses["time"],
        _events(where, table),
        {name[len(_OWN) :]: value for name, value in metadata.items() if name.startswith(_OWN)},
    )
    keys = metadata.get(_KEYS, "")
    if not (keys.isascii() and keys.isdigit()):
        raise TraceError(f"{where} does not say in its metadata how many state keys it has ({_KEYS}): {keys!r}")
    _check(where, trace, int(keys))
    return trace


def _events(where: Path, table: pa.Table) -> Events | None:
    if "event_key" not in table.column_names:
        return None
    columns = {
        name: _column(where, table, name, kind)
        for name, kind in _EVENT_COLUMNS.items()
        if name in table.column_names or name == "event_time"
    }
    _same_length(where, columns)
    return Events(**{_EVENT_FIELDS[name]: column for name, column in columns.items()})


def _column(where: Path, table: pa.Table, name: str, kind: pa.DataType) -> np.ndarray:
    if name not in table.column_names:
        raise TraceError(f"{where} has no column {name!r}; it has {', '.join(table.column_names)}")
    column = table.column(name)
    if column.type != kind:
        raise TraceError(f"column {name!r} of {where} is of type {column.type}, not {kind}")
    found: np.ndarray = column.drop_null().to_numpy()
    return found


def _same_length(where: Path, columns: dict[str, np.ndarray]) -> None:
    rows = {name: len(column) for name, column in columns.items()}
    if len(set(rows.values())) > 1:
        shortest = min(rows, key=lambda name: rows[name])
        raise TraceError(f"column {shortest!r} of {where} ends after row {rows[shortest] - 1}, others go on: {rows}")


def _check(where: Path, trace: Trace, distinct: int) -> None:
    def refuse(column: str, wrong: np.ndarray, values: np.ndarray, rule: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TraceError(f"row {row} of {where}: {column} is {values[row]}, but {rule}")

    operations, keys, sizes = trace.operations, trace.keys, trace.value_sizes
    refuse("operation", operations > max(Operation), operations, "it is one of 0 get, 1 put, 2 merge, 3 delete")
    refuse("key", (keys < 0) | (keys >= distinct), keys, f"the {distinct} keys are numbered from 0")
    refuse("value_size", sizes < 0, sizes, "a size is not negative")
    reads = (operations == Operation.GET) | (operations == Operation.DELETE)
    refuse("value_size", reads & (sizes != 0), sizes, "get and delete write nothing")
    seen = np.count_nonzero(np.bincount(keys, minlength=distinct))
    if seen != distinct:
        raise TraceError(f"column 'key' of {where} has {seen} of its {distinct} state keys: rows are missing")
