"""How an option is declared: its name, the values it takes, its default and one sentence, in one place.

A declared option is a field of a frozen dataclass, made by :func:`option`; a field whose default is itself such a
dataclass is a group of options. The parser, the list of names for misspelt ones, ``explain`` and the reference page
read these declarations and nothing else. Pure; threads: any.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from tailrace.api.duration import format_duration, parse_duration
from tailrace.errors import AnalysisError
from tailrace.ids import Micros

_Declared = TypeVar("_Declared")
_Bound = TypeVar("_Bound", int, float)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d{1,20})\s*([kmgt]?)(?:i?b)?", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SIZE_BYTES_MAX = 1 << 60


class ValueType(Protocol):
    """The values of an option: what a user may write, and what it means."""

    @property
    def limits(self) -> str:
        """What may be given, as the reference page has it."""

    def parse(self, name: str, text: str) -> Any:
        """The value, or an :class:`AnalysisError` that says what may be given."""

    def show(self, value: Any) -> str:
        """A value as a user would write it."""


@dataclass(frozen=True)
class _Bounded(Generic[_Bound]):
    least: _Bound
    most: _Bound


class Integer(_Bounded[int]):
    @property
    def limits(self) -> str:
        return f"an integer from {self.least} to {self.most}"

    def parse(self, name: str, text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text.strip(), re.ASCII) or not self.least <= int(text) <= self.most:
            raise _wrong(name, self.limits, text)
        return int(text)

    def show(self, value: int) -> str:
        return str(value)


class IntegerOrAuto(Integer):
    """None: as many as fit."""

    @property
    def limits(self) -> str:
        return f"'auto' or {super().limits}"

    def parse(self, name: str, text: str) -> int | None:  # type: ignore[override]
        return None if text.strip().lower() == "auto" else super().parse(name, text)

    def show(self, value: int | None) -> str:
        return "auto" if value is None else str(value)


class Number(_Bounded[float]):
    @property
    def limits(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def parse(self, name: str, text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not self.least <= found <= self.most:
            raise _wrong(name, self.limits, text)
        return found

    def show(self, value: float) -> str:
        return f"{value:g}"


@dataclass(frozen=True)
class Choice:
    choices: type[StrEnum]

    @property
    def limits(self) -> str:
        return f"one of {', '.join(repr(each.value) for each in self.choices)}"

    def parse(self, name: str, text: str) -> StrEnum:
        try:
            return self.choices(text.strip().lower())
        except ValueError:
            raise _wrong(name, self.limits, text) from None

    def show(self, value: StrEnum) -> str:
        return value.value


@dataclass(frozen=True)
class Duration:
    zero_ok: bool = False

    @property
    def limits(self) -> str:
        return "a duration such as '10 seconds'" + (", or '0 seconds'" if self.zero_ok else "")

    def parse(self, name: str, text: str) -> Micros:
        return parse_duration(text, f"option {name!r}", zero_ok=self.zero_ok)

    def show(self, value: Micros) -> str:
        return format_duration(value)


@dataclass(frozen=True)
class Size:
    """A number of bytes."""

    bytes_min: int

    @property
    def limits(self) -> str:
        return f"a size such as '512MB' or '4GB', at least {self.show(self.bytes_min)}"

    def parse(self, name: str, text: str) -> int:
        found = _SIZE.fullmatch(text.strip().lower())
        size = int(found.group(1)) * _UNITS[found.group(2)] if found is not None else -1
        if not self.bytes_min <= size < _SIZE_BYTES_MAX:
            raise _wrong(name, self.limits, text)
        return size

    def show(self, value: int) -> str:
        for unit in ("t", "g", "m", "k"):
            if value and value % _UNITS[unit] == 0:
                return f"{value // _UNITS[unit]}{unit.upper()}B"
        return f"{value}B"


@dataclass(frozen=True)
class Text:
    """Any text but an empty one."""

    limits = "a text that is not empty"

    def parse(self, name: str, text: str) -> str:
        if not text.strip():
            raise AnalysisError(f"option {name!r} is empty: give a value, or remove it")
        return text.strip()

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class Names:
    """Names of columns."""

    limits = "names with commas between them"

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in text.split(","))
        if not all(names) or len(set(names)) < len(names):
            raise _wrong(name, self.limits, text)
        return names

    def show(self, value: tuple[str, ...]) -> str:
        return ", ".join(value)


@dataclass(frozen=True)
class Location:
    """A path, or the URI of an object store. It is checked when it is opened."""

    @property
    def limits(self) -> str:
        return "a path, or the URI of an object store"

    def parse(self, name: str, text: str) -> str:
        if not text.strip():
            raise AnalysisError(f"option {name!r} is empty: give {self.limits}, or remove it")
        return text.strip()

    def show(self, value: str | None) -> str:
        return value or ""


@dataclass(frozen=True)
class ExecutorFolder:
    """A folder on the executors' machines, None where it is left to Tailrace.

    ``absolute``: a relative path would mean another folder in every process. ``off``: the word that stands for none at
    all, which is the empty path.
    """

    purpose: str
    absolute: bool = False
    off: str | None = None

    @property
    def limits(self) -> str:
        path = "the absolute path of a folder" if self.absolute else "a path"
        return f"{path} on the executors' machines{self.purpose}" + (f", or {self.off!r}" if self.off else "")

    def parse(self, name: str, text: str) -> str:
        given = text.strip()
        if self.off is not None and given.lower() == self.off:
            return ""
        if not given or _SCHEME.match(given) or (self.absolute and not given.startswith("/")):
            raise _wrong(name, self.limits, text)
        return given

    def show(self, value: str | None) -> str:
        return (self.off or "") if value == "" else value or ""


@dataclass(frozen=True)
class PemFile:
    """A file with certificates or a key."""

    machine: str

    @property
    def limits(self) -> str:
        return f"the absolute path of a PEM file on {self.machine}"

    def parse(self, name: str, text: str) -> str:
        if not text.strip().startswith("/"):
            raise _wrong(name, self.limits, text)
        return text.strip()

    def show(self, value: str | None) -> str:
        return value or ""


def _wrong(name: str, limits: str, text: str) -> AnalysisError:
    return AnalysisError(f"option {name!r} must be {limits}, but is {text!r}")


@dataclass(frozen=True)
class Option:
    """One declared option. ``fixed``: it may not change between two runs on one checkpoint."""

    name: str
    values: ValueType
    default: Any
    meaning: str
    fixed: bool = False

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty where there is none to write."""
        return "" if self.default is None else self.values.show(self.default)


_OPTION = "option"


def option(
    name: str, values: ValueType, default: Any, meaning: str, *, fixed: bool = False, secret: bool = False
) -> Any:
    """A field of a dataclass of options. ``secret``: its value is in no ``repr``."""
    return field(default=default, repr=not secret, metadata={_OPTION: Option(name, values, default, meaning, fixed)})


def declared(options: Any) -> Iterator[tuple[Option, Any]]:
    """The options of a dataclass and of its groups, each with the value that ``options`` has, as they are declared."""
    for each in fields(options):
        value = getattr(options, each.name)
        if _OPTION in each.metadata:
            yield each.metadata[_OPTION], value
        elif is_dataclass(value):
            yield from declared(value)


def parsed(default: _Declared, given: Mapping[str, str]) -> _Declared:
    """``default`` with the options that are given, by their proper names, each checked."""
    changed: dict[str, Any] = {}
    for each in fields(default):  # type: ignore[arg-type]  # a dataclass, which a type variable cannot say
        value = getattr(default, each.name)
        declaration = each.metadata.get(_OPTION)
        if declaration is None:
            changed[each.name] = parsed(value, given) if is_dataclass(value) else value
        elif declaration.name in given:
            changed[each.name] = declaration.values.parse(declaration.name, given[declaration.name])
    return replace(default, **changed)  # type: ignore[type-var]
