"""What the lab can run: engines, workloads and benches, each under one name. Plain data; knows neither Spark nor files.

A module of workloads calls ``register`` when it is imported, and ``workloads`` imports all such modules; the child
process of an engine does the same, so a name means the same on both sides. Filled while modules are imported, read
afterwards: no locks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from tailrace.errors import TailraceError

Value = int | float | str | bool
_T = TypeVar("_T")
OURS = "tailrace"


class UnknownNameError(TailraceError):
    """Nothing is registered under this name: the user corrects the command."""


class ParameterError(TailraceError):
    """A workload has no such parameter, or not with this value: the user corrects the command."""


@dataclass(frozen=True)
class Engine:
    name: str
    description: str
    confs: Mapping[str, str] = field(default_factory=dict)
    heap: str = "2g"
    exact: bool = True
    """Whether it answers queries, and so is checked; the floors of a bench keep no state and do not."""
    ports: str | None = None
    """It is Tailrace with this engine's queries, as they are (``tailrace.enable``)."""

    @property
    def is_tailrace(self) -> bool:
        return self.name == OURS or self.ports is not None


@dataclass(frozen=True)
class Parameter:
    default: Value
    description: str


@dataclass(frozen=True)
class Settings:
    """What a run was asked for. ``values`` has every parameter of the workload."""

    events: int
    rows: int
    """Rows of a micro-batch, over all feeds."""
    seed: int
    values: Mapping[str, Value] = field(default_factory=dict)


Batch = Mapping[str, pa.Table]
"""Feed to the rows of one micro-batch."""
Files = Mapping[str, list[Path]]
"""Feed to its Parquet files, one a micro-batch, in order."""
Query = Callable[[Mapping[str, Any], Mapping[str, Value]], Any]
"""From feed to streaming DataFrame, and the parameters, to the ``writeStream`` of the result, output mode set."""
Oracle = Callable[[Files, Settings], pa.Table]
Finish = Callable[[pa.Table, Mapping[str, Value]], pa.Table]
"""From output rows, with their ``epoch``, and the parameters to the columns that ``final`` takes."""


def _as_output(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["epoch"])


@dataclass(frozen=True)
class Workload:
    name: str
    description: str
    feeds: Mapping[str, str]
    """Feed to its schema, as Spark's DDL."""
    inputs: Callable[[Settings], Iterator[Batch]]
    """The micro-batches in order, ``settings.events`` rows in all, from the settings alone: the same in every run."""
    queries: Mapping[str, Query]
    """Engine to its query; engines that cannot express it are left out."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Engine to why it cannot, in a few words."""
    oracle: Oracle | None = None
    """What the answer must be, from the files alone, without any engine. Rows in any order."""
    oracles: Mapping[str, Oracle] = field(default_factory=dict)
    """Engine to its oracle, where engines do not say the same rows at the same time."""
    rests: Mapping[str, Callable[[Any, Mapping[str, Value]], Any]] = field(default_factory=dict)
    """Engine to what its query leaves to the sink, from DataFrame (and the parameters) to DataFrame."""
    finish: Mapping[str, Finish] = field(default_factory=dict)
    """Engine to what brings its rows to the names and forms that ``final`` takes; in no measured time."""
    final: Callable[[pa.Table], pa.Table] = _as_output
    """From all output rows, with their ``epoch``, to the oracle's columns: the last row of a key, for instance."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    rows: int = 100_000
    """Rows of a micro-batch where the user does not say."""
    service: Callable[[Settings], AbstractContextManager[Mapping[str, str]]] | None = None
    """What must run beside the engine for as long as that runs. Gives variables for the engine's environment."""

    def serving(self, settings: Settings) -> AbstractContextManager[Mapping[str, str]]:
        return nullcontext({}) if self.service is None else self.service(settings)

    def oracle_of(self, engine: str) -> Oracle | None:
        return own(self.oracles, engine) or self.oracle

    def values(self, given: Iterable[str] = ()) -> dict[str, Value]:
        """Every parameter's value: the default, or what a text ``name=value`` says. Sizes may be written as 10M."""
        values = {name: parameter.default for name, parameter in self.parameters.items()}
        for text in given:
            name, equals, value = text.partition("=")
            if not equals:
                raise ParameterError(f"{text!r} is not of the form name=value")
            if name not in values:
                known = ", ".join(values) or "none"
                raise ParameterError(f"{self.name} has no parameter {name!r}{_near(name, values)}; there are: {known}")
            values[name] = _value(name, value, values[name])
        return values


@dataclass(frozen=True)
class Ratio:
    """A number of a bench's result: how many times as long ``over`` takes as ``under``. ``words`` follow the ×."""

    name: str
    words: str
    over: str
    under: str
    quantile: int = 50
    more_is_better: bool = True


@dataclass(frozen=True)
class Bench:
    name: str
    description: str
    ratios: tuple[Ratio, ...]


_engines: dict[str, Engine] = {}
_workloads: dict[str, Workload] = {}
_benches: dict[str, Bench] = {}


def register(*entries: Engine | Workload | Bench) -> None:
    """Gives each entry its name. A name has one meaning: a second one is a mistake of the lab."""
    for entry in entries:
        if isinstance(entry, Engine):
            _add(_engines, entry)
        elif isinstance(entry, Workload):
            _add(_workloads, entry)
        else:
            _add(_benches, entry)


def _add(shelf: dict[str, Any], entry: Any) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", entry.name):
        raise ValueError(f"{entry.name!r} is no name for the lab: lower case, digits and dashes, as in bids-window")
    if entry.name in shelf:
        raise ValueError(f"two entries of the lab are called {entry.name!r}")
    shelf[entry.name] = entry


def engine(name: str) -> Engine:
    return _find(_engines, "engine", name)


def workload(name: str) -> Workload:
    return _find(_workloads, "workload", name)


def engines() -> list[Engine]:
    return list(_engines.values())


def workloads() -> list[Workload]:
    return sorted(_workloads.values(), key=lambda entry: _counting(entry.name))


def bench(name: str) -> Bench | None:
    """A record may come from a bench that this Tailrace no longer has."""
    return _benches.get(name)


def own(of: Mapping[str, _T], engine_name: str) -> _T | None:
    """What a workload has for an engine; of one that ports another engine's queries, what it has for that one."""
    return of.get(engine_name) or of.get(engine(engine_name).ports or "")


def query(of: Workload, engine_name: str) -> Query:
    found = own(of.queries, engine_name)
    if found is None:
        reason = own(of.cannot, engine_name)
        why = f": {reason}" if reason else ""
        can = f"it can on {', '.join(of.queries)}" if of.queries else "no engine can"
        raise UnknownNameError(f"{of.name} cannot run on {engine_name}{why}; {can}")
    return found


def _find(shelf: dict[str, _T], what: str, name: str) -> _T:
    found = shelf.get(name)
    if found is None:
        known = ", ".join(sorted(shelf, key=_counting))
        raise UnknownNameError(f"no {what} is called {name!r}{_near(name, shelf)}; there are: {known}")
    return found


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
    return f", did you mean {' or '.join(near)}?" if near else ""


def _counting(name: str) -> list[tuple[int, str]]:
    """Orders q2 before q10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name) if part]


_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def size(text: str) -> int:
    """A count as people write it: ``10M``, ``500k``, ``1.5m``, ``2_000``. Powers of ten.

    >>> size("1.5M")
    1500000
    """
    found = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?)([kmgb]?)", text.strip().lower())
    if not found:
        raise ParameterError(f"{text!r} is no size: write a whole number such as 2000, 500k or 10M")
    number, unit = found[1].replace("_", ""), found[2]
    whole, _, decimals = number.partition(".")
    scaled = int(whole + decimals) * _SIZES[unit]
    if scaled % 10 ** len(decimals):
        raise ParameterError(f"{text!r} is not a whole number: write one such as 2000, 500k or 10M")
    return int(scaled // 10 ** len(decimals))


def count(text: str) -> int:
    """A size that is at least one."""
    number = size(text)
    if not number:
        raise ParameterError(f"{text!r} is too few: at least 1")
    return number


def _value(name: str, text: str, default: Value) -> Value:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int):
            return size(text)
        return type(default)(text)
    except (KeyError, ValueError, ParameterError):
        kind = "true or false" if isinstance(default, bool) else f"a value such as {default}"
        raise ParameterError(f"parameter {name!r} wants {kind}, not {text!r}") from None
