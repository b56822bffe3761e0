"""Run records: what one run of a bench or a workload found, as one JSON file that outlives it.

See docs/explanation/lab.md.

A file appears whole or not at all, and is never written again: it is made under a hidden name and linked to its own.
Its name begins with the time, so names sort by age. ``SCHEMA`` changes when a field changes its meaning; a reader
refuses what it does not know instead of guessing. Safe with any number of writers in one folder.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.bench import measure

SCHEMA = 1
KINDS = ("bench", "run")
FOLDER = Path("artifacts") / "records"
VARIABLE = "TAILRACE_RECORDS"

Series = dict[str, dict[str, list[float | None]]]
"""Engine to metric to one value an epoch; None where the engine does not report it."""

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_NAMES_TRIED = 100


class RecordError(TailraceError):
    """A file that should be a run record is none: the user removes it or names other files."""


@dataclass(frozen=True)
class Record:
    kind: str
    """``bench``: engines took turns in one run. ``run``: one engine ran one workload."""
    name: str
    id: str
    started: str
    ended: str
    """Times are UTC, as ``2026-01-31T09:30:00.000000Z``."""
    machine: dict[str, Any]
    versions: dict[str, str]
    parameters: dict[str, Any]
    summary: dict[str, Any]
    """Numbers of the whole run. ``ratios``: name to number. ``median_ms``, ``spread`` and such: engine to number."""
    series: Series
    confs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Engine to the Spark confs that it ran with."""

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(self.series)

    @property
    def started_s(self) -> float:
        return _seconds(self.started)

    @property
    def ended_s(self) -> float:
        return _seconds(self.ended)


class Recording:
    """A run under way: made when it starts, so that the record knows when that was."""

    def __init__(self, kind: str, name: str, clock: Callable[[], float] = time.time) -> None:
        assert kind in KINDS, kind
        self.kind = kind
        self.name = name
        self._clock = clock
        self._started = clock()
        self._machine = measure.machine()  # before the run loads the machine itself

    def end(
        self,
        parameters: Mapping[str, Any],
        summary: Mapping[str, Any],
        series: Series,
        confs: Mapping[str, dict[str, str]] | None = None,
    ) -> Record:
        return Record(
            kind=self.kind,
            name=self.name,
            id=secrets.token_hex(4),
            started=_text(self._started),
            ended=_text(self._clock()),
            machine=self._machine,
            versions=measure.versions(),
            parameters=dict(parameters),
            summary=dict(summary),
            series=series,
            confs=dict(confs or {}),
        )


def folder(given: Path | None = None) -> Path:
    """Where records go: the folder given, else the one that ``TAILRACE_RECORDS`` names, else ``artifacts/records``."""
    if given is not None:
        return given
    named = os.environ.get(VARIABLE)
    return Path(named) if named else FOLDER


def write(record: Record, into: Path) -> Path:
    """Adds the record to the folder and gives its path. What is there stays as it is, whatever it is called."""
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1, allow_nan=False) + "\n"
    stamp = datetime.fromtimestamp(record.started_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        into.mkdir(parents=True, exist_ok=True)
        hidden = into / f".{record.id}-{secrets.token_hex(4)}.making"
        try:
            with hidden.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            for number in range(_NAMES_TRIED):
                path = into / f"{stamp}-{record.name}-{record.id}{f'-{number}' if number else ''}.json"
                try:
                    os.link(hidden, path)  # unlike a rename it never replaces
                except FileExistsError:
                    continue
                return path
            raise RecordError(
                f"{into} is full of records called {stamp}-{record.name}-{record.id}: give another folder"
            )
        finally:
            hidden.unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(
            f"the record cannot be written to {into}: {error.strerror or error}; name another folder with --records "
            f"or {VARIABLE}"
        ) from error


def read(path: Path) -> Record:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not a run record: not JSON: {error}") from error
    if not isinstance(found, dict) or "schema" not in found:
        raise RecordError(f"{path} is not a run record: it has no field 'schema'")
    version = found.pop("schema")
    if version != SCHEMA or isinstance(version, bool):
        raise RecordError(
            f"{path} is a run record of schema {version!r}; this Tailrace reads schema {SCHEMA}: use the Tailrace that "
            f"wrote it, or a newer one"
        )
    wrong = _what_is_wrong(found)
    if wrong:
        raise RecordError(f"{path} is damaged or was edited: {wrong}")
    return Record(**found)


def read_all(paths: Iterable[Path]) -> tuple[list[Record], list[str]]:
    """The records of these files and of the folders among them, oldest first, and what is wrong with other files.

    A file that is named must be a record. Another file in a named folder is left out and reported.
    """
    records: dict[str, Record] = {}
    problems = []
    for path in paths:
        if path.is_dir():
            for inner in sorted(path.glob("*.json")):
                try:
                    record = read(inner)
                except RecordError as error:
                    problems.append(str(error))
                else:
                    records[_identity(record)] = record
        elif not path.exists():
            raise RecordError(
                f"there is no {path}: run a bench or a workload first, or name a record or a folder of them"
            )
        else:
            record = read(path)
            records[_identity(record)] = record
    return sorted(records.values(), key=lambda record: (record.started_s, record.id)), problems


def _identity(record: Record) -> str:
    """The same run under two names (a file, and the folder it lies in) counts once."""
    return f"{record.started} {record.name} {record.id}"


_TYPES: dict[str, type] = {
    "kind": str,
    "name": str,
    "id": str,
    "started": str,
    "ended": str,
    "machine": dict,
    "versions": dict,
    "parameters": dict,
    "summary": dict,
    "series": dict,
    "confs": dict,
}
assert set(_TYPES) == {one.name for one in fields(Record)}


def _what_is_wrong(found: dict[str, Any]) -> str:
    """Words about the first fault; none for a record that is right."""
    for name, kind in _TYPES.items():
        if name not in found:
            return f"it has no field {name!r}"
        if not isinstance(found[name], kind):
            return f"its field {name!r} is {type(found[name]).__name__}, not {kind.__name__}"
    extra = sorted(set(found) - set(_TYPES))
    if extra:
        return f"schema {SCHEMA} knows no field {extra[0]!r}"
    if found["kind"] not in KINDS:
        return f"its kind is {found['kind']!r}, not one of {', '.join(KINDS)}"
    for name in ("started", "ended"):
        try:
            _seconds(found[name])
        except ValueError:
            return f"its field {name!r} is {found[name]!r}, which is no time such as 2026-01-31T09:30:00.000000Z"
    return _wrong_series(found["series"])


def _wrong_series(series: dict[str, Any]) -> str:
    for engine, metrics in series.items():
        if not isinstance(metrics, dict):
            return f"the series of {engine!r} are {type(metrics).__name__}, not dict"
        for metric, values in metrics.items():
            if not isinstance(values, list) or not all(value is None or _is_number(value) for value in values):
                return f"the series {metric!r} of {engine!r} is not a list of numbers"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME)


def _seconds(text: str) -> float:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
