"""Event files: CSV (plain, .gz or .zip) and Parquet, with a mapping of columns, and the mappings of known data sets.

Rows are replayed in the order of the file. A key that is a whole number stays that number; any other text becomes a
hash of itself, so that two files of one join agree. Errors name the file, the column and the line.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from tailrace.errors import TailraceError
from tailrace.lab.gadget.events.source import LATEST_US, Kind, Stream
from tailrace.lab.gadget.traces.trace import Events

_AFTER = np.iinfo(np.int64).max
"""What Borg's files say of times after the trace; such rows are left out."""


class EventFileError(TailraceError):
    """An event file cannot be read with the mapping given: the user mends one of the two."""


UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "timestamp": 0}
"""Microseconds of a number in the time column; ``timestamp``: a date and time as text or of Parquet's own type."""


@dataclass(frozen=True)
class Mapping:
    """Where in a file an event is. A column is its name, or its number from 0."""

    key: str
    time: str
    """Several, separated by ``+``: a row is one event for each, the first of kind ADD, the last of kind END; the file
    is then put in order of time."""
    type: str | None = None
    time_unit: str = "us"
    header: bool = False
    separator: str = ","
    """A space stands for any white space."""
    add_types: tuple[str, ...] = ("SUBMIT", "0")
    end_types: tuple[str, ...] = ("FINISH", "4")
    """What the type column says where an event is of kind ADD or END."""
    in_order: bool = False
    """Put the file in order of time."""
    columns: int | None = None
    """How many there are, where that is known: a file of another kind is refused."""


FORMATS: dict[str, Mapping] = {
    # The job events that go with Gadget's own artifact: job, time, type as text.
    "borg-jobs": Mapping("0", "1", "2", columns=7),
    # Google's cluster usage trace of 2011, version 2, files of the folders task_events and job_events.
    "borg-2011-tasks": Mapping("2", "0", "5", columns=13),
    "borg-2011-jobs": Mapping("2", "0", "3", columns=8),
    # Task events in columns divided by white space: time in seconds, job, task, machine, type.
    "borg-tasks-text": Mapping("1", "0", "4", time_unit="s", separator=" ", columns=12),
    # Yellow taxis of New York, 2013: trip_data_*.csv and trip_fare_*.csv.
    "taxi-trips": Mapping("medallion", "pickup_datetime+dropoff_datetime", time_unit="timestamp", header=True),
    "taxi-fares": Mapping("medallion", "pickup_datetime", time_unit="timestamp", header=True, in_order=True),
    # Azure's public VM trace of 2017: vmtable.csv. Key: subscription; time: when the machine was made.
    "azure-vms": Mapping("1", "3", time_unit="s", columns=11),
}


def load(path: str | Path, mapping: Mapping) -> Stream:
    where = Path(path)
    if mapping.time_unit not in UNITS:
        raise EventFileError(f"no unit of time is called {mapping.time_unit!r}; there are {', '.join(UNITS)}")
    table = _table(where, mapping)
    if mapping.columns not in (None, table.num_columns):
        raise EventFileError(f"{where} has {table.num_columns} columns, not {mapping.columns}: it is of another format")
    header = mapping.header and where.suffix != ".parquet"
    keys = _keys(where, _column(where, table, mapping.key), header)
    time_columns = mapping.time.split("+")
    times = np.concatenate([_times(where, table, name, mapping) for name in time_columns])
    kinds = np.zeros(len(times), np.uint8)
    if len(time_columns) > 1:
        keys = np.tile(keys, len(time_columns))
        kinds[: table.num_rows] = Kind.ADD
        kinds[-table.num_rows or len(kinds) :] = Kind.END
    elif mapping.type is not None:
        types = _column(where, table, mapping.type).cast(pa.string())
        for kind, names in ((Kind.ADD, mapping.add_types), (Kind.END, mapping.end_types)):
            kinds[pc.fill_null(pc.is_in(types, pa.array(names)), False).to_numpy()] = kind
    within = times != _AFTER
    keys, times, kinds = keys[within], times[within], kinds[within]
    if len(time_columns) > 1 or mapping.in_order:
        order = np.argsort(times, kind="stable")
        keys, times, kinds = keys[order], times[order], kinds[order]
    return Stream(Events(keys, times, kinds=kinds))


def _table(where: Path, mapping: Mapping) -> pa.Table:
    try:
        if where.suffix == ".parquet":
            return pq.read_table(where, partitioning=None)
        content = where.read_bytes()
        if where.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = archive.namelist()
                if len(members) != 1:
                    raise EventFileError(f"{where} holds {len(members)} files: take out the one that is wanted")
                content = archive.read(members[0])
        if where.suffix == ".gz":
            content = pa.input_stream(io.BytesIO(content), compression="gzip").read()
    except FileNotFoundError as error:
        raise EventFileError(f"there is no event file {where}") from error
    except (OSError, pa.ArrowException, zipfile.BadZipFile) as error:
        raise EventFileError(f"{where} cannot be read: {error}") from error
    separator = mapping.separator
    if separator == " ":
        content = re.sub(rb"[ \t]+", b",", re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", content))
        separator = ","
    try:
        names = _names(content, separator, mapping.header)
        return pv.read_csv(
            io.BytesIO(content),
            pv.ReadOptions(column_names=names, skip_rows=int(mapping.header), use_threads=False),
            pv.ParseOptions(delimiter=separator),
            pv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise EventFileError(f"{where} cannot be read as CSV: {error}") from error


def _names(content: bytes, separator: str, header: bool) -> list[str]:
    first = content.split(b"\n", 1)[0].decode().strip("\r")
    fields = [one.strip().strip('"') for one in first.split(separator)]
    return fields if header else [str(number) for number in range(len(fields))]


def _column(where: Path, table: pa.Table, name: str) -> pa.ChunkedArray:
    if name in table.column_names:
        return table.column(name)
    if name.isdigit() and int(name) < table.num_columns:
        return table.column(int(name))
    raise EventFileError(f"{where} has no column {name!r}; it has {', '.join(table.column_names)}")


def _row(where: Path, row: int) -> str:
    return f"row {row}" if where.suffix == ".parquet" else f"line {row + 1}"


def _no_gaps(where: Path, column: pa.ChunkedArray, name: str, header: bool) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise EventFileError(f"{_row(where, row + header)} of {where} has nothing in column {name!r}")


def _keys(where: Path, column: pa.ChunkedArray, header: bool) -> np.ndarray:
    _no_gaps(where, column, "key", header)
    try:
        return np.asarray(column.cast(pa.int64()))
    except pa.ArrowException:
        pass
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    hashes = [
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
        for text in encoded.dictionary.to_pylist()
    ]
    found: np.ndarray = np.array(hashes, np.int64)[np.asarray(encoded.indices)]
    return found


def _times(where: Path, table: pa.Table, name: str, mapping: Mapping) -> np.ndarray:
    column = _column(where, table, name)
    header = mapping.header and where.suffix != ".parquet"
    _no_gaps(where, column, name, header)
    factor = UNITS[mapping.time_unit]
    wanted = pa.float64() if factor else pa.timestamp("us")
    try:
        found = _microseconds(column, factor, wanted)
    except pa.ArrowException as error:
        row = _first_wrong(column, wanted)
        what = "a number" if factor else "a date and time"
        raise EventFileError(
            f"{_row(where, row + header)} of {where}: {column[row].as_py()!r} in column {name!r} is not {what}"
        ) from error
    beyond = ~(np.abs(found) <= LATEST_US) & (found != _AFTER)
    if beyond.any():
        row = int(np.argmax(beyond))
        raise EventFileError(
            f"{_row(where, row + header)} of {where}: {column[row].as_py()!r} in column {name!r} is no time"
        )
    times: np.ndarray = found.astype(np.int64)
    return times


def _microseconds(column: pa.ChunkedArray, factor: int, wanted: Any) -> np.ndarray:
    if not factor:
        return np.asarray(column.cast(wanted).cast(pa.int64()))
    if factor == 1:
        try:
            return np.asarray(column.cast(pa.int64()))
        except pa.ArrowException:
            pass  # numbers with a point
    rounded: np.ndarray = np.rint(np.asarray(column.cast(wanted)) * factor)
    return rounded


def _first_wrong(column: pa.ChunkedArray, wanted: Any) -> int:
    low, high = 0, len(column)
    while high - low > 1:  # some row in [low, high) is wrong, and none before
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(wanted)
            low = middle
        except pa.ArrowException:
            high = middle
    return low
