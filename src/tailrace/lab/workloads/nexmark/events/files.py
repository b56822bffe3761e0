"""Events as a folder of files, in the order in which a stream should read them, and a manifest of what is there.

A file is made under a hidden name and renamed, so a file that is seen is whole. Spark reads files by the time of their
last change, so each file's is later than the one's before, by a millisecond at least. The manifest (``_manifest.json``,
which Spark's reader passes over) is written last: a folder without one is not finished. One writer a folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.generator import events as make_events
from tailrace.lab.workloads.nexmark.events.json_texts import ALWAYS, json_texts
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA, Kind

MANIFEST = "_manifest.json"
_MANIFEST_VERSION = 1
_NANOS_A_MS = 1_000_000
_FEW_VALUES = ("_type", "_name", "_city", "_state", "_channel", "_url", "_category", "_auction", "_seller", "_bidder")
"""Endings of the columns whose values come again: a dictionary of the others would cost time and save nothing."""


class Format(StrEnum):
    PARQUET = "parquet"
    JSON = "json"


@dataclass(frozen=True)
class Written:
    """One file: events ``start`` up to ``stop``."""

    name: str
    start: int
    stop: int
    persons: int
    auctions: int
    bids: int
    first_time_ms: int
    last_time_ms: int
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    config: dict[str, Any]
    format: Format
    columns: tuple[str, ...]
    files: tuple[Written, ...]

    @property
    def events(self) -> int:
        return sum(file.stop - file.start for file in self.files)

    @property
    def last_time_ms(self) -> int:
        return max(file.last_time_ms for file in self.files)

    def save(self, folder: Path) -> None:
        hidden = folder / f".{MANIFEST}.making"
        hidden.write_text(json.dumps({"version": _MANIFEST_VERSION, **asdict(self)}, indent=1))
        hidden.rename(folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not path.exists():
        raise TailraceError(f"{folder} has no {MANIFEST}: its files are not all written yet; write them again")
    said = json.loads(path.read_text())
    if said.pop("version", None) != _MANIFEST_VERSION:
        raise TailraceError(f"{path} was written by another version; write the files again")
    files = tuple(Written(**file) for file in said.pop("files"))
    return Manifest(said["config"], Format(said["format"]), tuple(said["columns"]), files)


def write_files(
    config: Config,
    folder: Path,
    events: int,
    events_per_file: int,
    *,
    format: Format = Format.PARQUET,
    columns: Iterable[str] | None = None,
    row_groups: int = 2,
    progress: Callable[[Written], None] | None = None,
) -> Manifest:
    """Writes the first ``events`` events into an empty folder; calls ``progress`` after each file.

    ``row_groups``: so many pieces a Parquet file, so that as many cores may share it.
    """
    if events_per_file < 1:
        raise TailraceError(f"NEXMark: events_per_file is {events_per_file}; it must be at least 1")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise TailraceError(f"{folder} is not empty: a stream would read what is there too; choose an empty folder")
    # The manifest is counted from those that every row has.
    asked = EVENT_SCHEMA.names if columns is None else list(dict.fromkeys([*ALWAYS, *columns]))
    written: list[Written] = []
    changed_ns = 0
    for number, start in enumerate(range(0, events, events_per_file)):
        stop = min(start + events_per_file, events)
        table = make_events(config, start, stop, asked)
        name = f"{number:06d}.{format}"
        hidden = folder / f".{name}.making"
        if format is Format.PARQUET:
            pq.write_table(
                table,
                hidden,
                row_group_size=max(1, -(-table.num_rows // row_groups)),
                compression="snappy",
                use_dictionary=[column for column in asked if column.endswith(_FEW_VALUES)],
            )
        else:
            with hidden.open("wb") as out:
                for lines in json_lines(table):
                    out.write(lines)
        seen_ns = hidden.stat().st_mtime_ns
        if seen_ns // _NANOS_A_MS <= changed_ns // _NANOS_A_MS:
            seen_ns = changed_ns + _NANOS_A_MS
            os.utime(hidden, ns=(seen_ns, seen_ns))
        changed_ns = seen_ns
        hidden.rename(folder / name)
        written.append(_described(name, start, stop, table, (folder / name).stat().st_size))
        if progress is not None:
            progress(written[-1])
    manifest = Manifest(asdict(config), format, tuple(asked), tuple(written))
    manifest.save(folder)
    return manifest


def _described(name: str, start: int, stop: int, table: pa.Table, size_bytes: int) -> Written:
    kinds = np.bincount(table["event_type"].to_numpy(), minlength=len(Kind))
    times = pc.min_max(table["dateTime"].cast(pa.int64())).as_py()
    return Written(
        name,
        start,
        stop,
        persons=int(kinds[Kind.PERSON]),
        auctions=int(kinds[Kind.AUCTION]),
        bids=int(kinds[Kind.BID]),
        first_time_ms=times["min"],
        last_time_ms=times["max"],
        size_bytes=size_bytes,
    )


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """Wide rows as JSON, one object a line, a piece for each batch of the table."""
    for batch in table.to_batches():
        lines = pc.binary_join_element_wise(json_texts(batch), "\n", "")
        offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
        yield lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
