"""Configurations: ``name = value`` lines, as the paper's artifact has them, or options; both become `Settings`.

White space around names and values does not count, nor does the case of names; ``#`` begins a line of comment. Every
value remembers where it was written, and every error says so. docs/explanation/gadget.md lists the names; those that
the artifact reads and never uses, or that belong to the replayer, are accepted.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.gadget import workloads
from tailrace.lab.gadget.events import distributions, event_files, stand_ins
from tailrace.lab.gadget.events.distributions import Draws, Problem
from tailrace.lab.gadget.events.source import Synthetic
from tailrace.lab.gadget.settings.config_names import DEFAULTS, DISTRIBUTIONS, INPUTS, known, names

US = 1_000_000


class ConfigError(TailraceError):
    """A configuration is wrong: the user mends the line or option that the message names."""


@dataclass(frozen=True)
class FileInput:
    path: str
    mapping: event_files.Mapping


@dataclass(frozen=True)
class StandInInput:
    name: str
    events: int | None


Input = Synthetic | FileInput | StandInInput


@dataclass(frozen=True)
class Settings:
    """All that makes a trace."""

    workload: workloads.Workload
    first: Input
    second: Input | None
    """The right input of a workload with two; the first is the left one."""
    parameters: workloads.Parameters
    value_size: Draws
    key_size: Draws
    every_events: int | None
    every_us: int | None
    """Watermarks: by events, or by time."""
    schedule: str
    limit: int | None
    """Accesses."""
    seed: int
    given: Mapping[str, str]
    """The configuration as given, for the trace's metadata."""


@dataclass(frozen=True)
class Entry:
    value: str
    where: str


EVENTS = 1_000_000
"""Of a synthetic input, unless the configuration says how many, or how many accesses."""
MOST_EVENTS = 500_000_000
WATERMARK_EVENTS = 100


class Config:
    """Names and values, each with its place; later ones of another place win."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def read(self, path: str | Path) -> Config:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
        here: dict[str, int] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, equals, value = line.partition("=")
            where = f"line {number} of {path}"
            if not equals or not name.strip() or not value.strip():
                raise ConfigError(f"{where}: {line.strip()!r} is not of the form name = value")
            name = "".join(name.split()).lower()
            if name in here:
                raise ConfigError(f"{where}: {name} was given in line {here[name]} already")
            here[name] = number
            self.set(name, value.strip(), where)
        return self

    def set(self, name: str, value: str, where: str) -> Config:
        name = name.lower()
        if not known(name):
            near = difflib.get_close_matches(name, list(names()), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{where}: nothing is called {name!r}{hint}")
        self._entries[name] = Entry(value, where)
        return self

    def set_distribution(self, name: str, text: str, where: str) -> Config:
        """From one text, as ``zipf:s=1,keyspacesize=1000``. Replaces all that was said about it."""
        for old in [one for one in self._entries if one.startswith(name + ".")]:
            del self._entries[old]
        kind, _, rest = text.partition(":")
        self.set(f"{name}.type", kind.strip().lower(), where)
        for part in rest.split(",") if rest.strip() else []:
            parameter, equals, value = part.partition("=")
            if not equals or not parameter.strip() or not value.strip():
                raise ConfigError(f"{where}: {part.strip()!r} of {text!r} is not of the form parameter=value")
            self.set(f"{name}.params.{parameter.strip().lower()}", value.strip(), where)
        return self

    def settings(self) -> Settings:
        chosen = self._workload()
        limit = self._whole("expected.num.operations", None, 1)
        first = self._input(INPUTS[0], limit)
        second = self._input(INPUTS[1], limit) if chosen.inputs == 2 else None
        for prefix, one in zip(INPUTS, (first, second)):
            if second is not None and isinstance(one, StandInInput) and one.name == "azure":
                raise self.wrong(f"{prefix}type", f"azure is one stream, and {chosen.name} needs two")
        every_events, every_us = self._watermarks()
        schedule = self._one_of("two.input.schedule", "time", ("time", "unit"))
        return Settings(
            chosen,
            first,
            second,
            self._parameters(chosen),
            self._distribution("", "operator.value.size.distrib"),
            self._distribution("", "operator.key.size.distrib"),
            every_events,
            every_us,
            schedule,
            limit,
            self._whole("seed", 1, 0) or 0,
            {name: entry.value for name, entry in self._entries.items()},
        )

    # Single values.

    def wrong(self, name: str, what: str) -> ConfigError:
        entry = self._entries.get(name)
        return ConfigError(f"{entry.where}: {name}: {what}" if entry else f"{name} is missing: {what}")

    def text(self, name: str, default: str | None = None) -> str | None:
        entry = self._entries.get(name)
        return entry.value if entry else default

    def _number(self, name: str, default: float | None, least: float) -> float | None:
        text = self.text(name)
        if text is None:
            return default
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise self.wrong(name, f"{text!r} is not a number")
        if found < least:
            raise self.wrong(name, f"{text} is below {least:g}")
        return found

    def _whole(self, name: str, default: int | None, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        try:
            found = distributions.whole(text)
        except ValueError:
            raise self.wrong(name, f"{text!r} is not a whole number, such as 500, 10k or 2M") from None
        if found < least:
            raise self.wrong(name, f"{text} is below {least}")
        return found

    def _time(self, name: str, default_us: int, least_us: int = 1) -> int:
        """Seconds, as microseconds."""
        found = self._number(name, None, -math.inf)
        if found is None:
            return default_us
        if abs(found) > 1e9:
            raise self.wrong(name, f"{found:g} seconds are more than 30 years")
        us = round(found * US)
        if us < least_us:
            raise self.wrong(name, f"{self.text(name)} seconds are below {least_us / US:g}")
        return us

    def _one_of(self, name: str, default: str, choices: Iterable[str]) -> str:
        found = (self.text(name) or default).lower()
        if found not in choices:
            raise self.wrong(name, f"{found!r} is none of {', '.join(choices)}")
        return found

    def _flag(self, name: str, default: bool) -> bool:
        return self._one_of(name, str(default).lower(), ("true", "false")) == "true"

    # Parts.

    def _workload(self) -> workloads.Workload:
        name = self.text("operator.type")
        if name is None:
            raise self.wrong("operator.type", f"the workload, one of {', '.join(workloads.WORKLOADS)}")
        if name.lower().endswith(".replayer"):
            raise self.wrong("operator.type", f"{name} reads a trace that is there: `tailrace gadget import` does that")
        try:
            return workloads.workload(name.lower())
        except workloads.UnknownWorkloadError as error:
            raise self.wrong("operator.type", str(error)) from None

    def _parameters(self, chosen: workloads.Workload) -> workloads.Parameters:
        usual = workloads.Parameters()
        window = self._time("window.length", usual.window)
        gap = self._time("session.gap", self._time("window.length", usual.gap))
        lateness = self._time("lateness.length", 0, 0) if self._flag("allowed.lateness", True) else 0
        found = workloads.Parameters(
            window,
            self._time("sliding.length", usual.slide),
            gap,
            self._time("lower.bound", usual.lower, -(1 << 60)),
            self._time("upper.bound", usual.upper, -(1 << 60)),
            lateness,
            self._time("bucket.length", usual.bucket),
        )
        if found.slide > found.window and chosen.name.startswith("sliding"):
            raise self.wrong("sliding.length", "a slide longer than the window (window.length) leaves out events")
        if found.lower > found.upper:
            raise self.wrong("lower.bound", "it is above upper.bound")
        return found

    def _watermarks(self) -> tuple[int | None, int | None]:
        by_events, by_time = (INPUTS[0] + name for name in ("watermark.events", "watermark.frequency"))
        if by_events in self._entries and by_time in self._entries:
            other = self._entries[by_time].where
            raise self.wrong(
                by_events, f"watermarks come by events or by time (watermark.frequency, {other}), not both"
            )
        if by_time in self._entries:
            return None, self._time(by_time, US)
        return self._whole(by_events, WATERMARK_EVENTS, 1), None

    def _distribution(self, prefix: str, name: str) -> Draws:
        full = prefix + name
        kind = self.text(f"{full}.type")
        start = f"{full}.params."
        given = {one[len(start) :]: entry.value for one, entry in self._entries.items() if one.startswith(start)}
        if kind is None:
            if given:
                raise self.wrong(f"{full}.type", f"which distribution has {', '.join(given)}?")
            kind, _, rest = DEFAULTS[name].partition(":")
            given = dict(part.split("=") for part in rest.split(","))
        if "keyspacesize" in given and not prefix:
            given.pop("keyspacesize")  # the artifact gives one to every distribution
        try:
            return distributions.made(DISTRIBUTIONS[name], kind.lower(), given)
        except Problem as problem:
            if problem.parameter == "type":
                raise self.wrong(f"{full}.type", problem.what) from None
            raise self.wrong(start + problem.parameter, problem.what) from None

    def _input(self, prefix: str, limit: int | None) -> Input:
        kinds = ("gadget", "tracefile", *stand_ins.NAMES)
        kind = self._one_of(f"{prefix}type", "gadget", kinds)
        events = self._whole(f"{prefix}events", None, 1)
        if (events or 0) > MOST_EVENTS:
            raise self.wrong(f"{prefix}events", f"{events} is above {MOST_EVENTS:,}, more than memory holds")
        if kind in stand_ins.NAMES:
            return StandInInput(kind, events)
        if kind == "tracefile":
            return self._file(prefix)
        return Synthetic(
            events or min(limit or EVENTS, MOST_EVENTS),
            self._distribution(prefix, "key.popularity.distrib"),
            self._distribution(prefix, "event.occurrence.gap.distrib"),
            self._percent(f"{prefix}outoforder.percentage", 0),
            self._whole(f"{prefix}lateness.threshold", 0, 0) or 0,
            self._percent(f"{prefix}add.percentage", 50),
        )

    def _percent(self, name: str, default: float) -> float:
        found = self._number(name, default, 0) or 0
        if found > 100:
            raise self.wrong(name, f"{found:g} is above 100")
        return found

    def _file(self, prefix: str) -> FileInput:
        path = self.text(f"{prefix}file.path")
        if path is None:
            raise self.wrong(f"{prefix}file.path", "the event file to read")
        known = self.text(f"{prefix}file.format")
        if known is not None and known.lower() not in event_files.FORMATS:
            raise self.wrong(f"{prefix}file.format", f"{known!r} is none of {', '.join(event_files.FORMATS)}")
        usual = event_files.FORMATS[known.lower()] if known else event_files.Mapping("", "")
        changes: dict[str, Any] = {}
        for field, name in (
            ("key", "key.index"),
            ("time", "event.time.index"),
            ("type", "event.type.index"),
            ("separator", "file.separator"),
        ):
            if (text := self.text(prefix + name)) is not None:
                changes[field] = text
        for field, name in (("add_types", "add.types"), ("end_types", "end.types")):
            if (text := self.text(prefix + name)) is not None:
                changes[field] = tuple(one.strip() for one in text.split(","))
        changes["header"] = self._flag(f"{prefix}file.header", usual.header)
        changes["in_order"] = self._flag(f"{prefix}file.inorder", usual.in_order)
        changes["time_unit"] = self._one_of(f"{prefix}event.time.unit", usual.time_unit, event_files.UNITS)
        mapping = replace(usual, **changes)
        for field, name in (("key", "key.index"), ("time", "event.time.index")):
            if not getattr(mapping, field):
                raise self.wrong(prefix + name, "the column, by name or by number from 0; or give file.format")
        return FileInput(path, mapping)
