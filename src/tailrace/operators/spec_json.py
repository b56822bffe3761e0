"""Descriptions as JSON: frozen dataclasses to plain data and back, by the types of their fields.

Understood are dataclasses, enumerations, tuples, ``None`` and what JSON has itself. Where a field may hold one of
several classes, each of them has a class variable ``kind``, which is written with it and chooses the class when it is
read. The JSON is kept with checkpoints: a field that is renamed or changes its meaning needs a new version of the
fingerprint (``plan.fingerprint``).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union

_T = TypeVar("_T")


def to_plain(value: Any) -> Any:
    """What ``json.dumps`` takes."""
    if is_dataclass(value) and not isinstance(value, type):
        plain = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        kind = _kind(type(value))
        return plain if kind is None else {"kind": kind, **plain}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    return value


def from_plain(cls: Callable[..., _T], plain: Mapping[str, Any]) -> _T:
    """A description of class ``cls``. Fields that are not there have their defaults."""
    hints = _hints(cls)
    given = {name: _value(hint, plain[name]) for name, hint in hints.items() if name in plain}
    return cls(**given)


def _value(hint: Any, plain: Any) -> Any:
    if plain is None:
        return None
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _value(_chosen([each for each in typing.get_args(hint) if each is not type(None)], plain), plain)
    if origin is tuple:
        of = typing.get_args(hint)
        return tuple(_value(of[0] if of[-1] is Ellipsis else of[at], each) for at, each in enumerate(plain))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(plain)
    return from_plain(hint, plain) if isinstance(hint, type) and is_dataclass(hint) else plain


def _chosen(classes: list[Any], plain: Any) -> Any:
    """Which of several types a value has; what JSON has itself stands for itself."""
    if len(classes) == 1:
        return classes[0]
    if isinstance(plain, list):
        return next(each for each in classes if typing.get_origin(each) is tuple)
    if not isinstance(plain, dict):
        return type(plain)
    found = [each for each in classes if is_dataclass(each) and _kind(each) == plain.get("kind")]
    if not found:
        kinds = ", ".join(str(_kind(each)) for each in classes)
        raise ValueError(f"a description is none of {kinds}: {plain!r}")
    return found[0]


def _kind(cls: Any) -> str | None:
    """That of a class among several: not a field of the same name."""
    kind = getattr(cls, "kind", None)
    return kind if isinstance(kind, str) and "kind" not in _hints(cls) else None


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}
