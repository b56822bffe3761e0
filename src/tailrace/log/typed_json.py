"""Plain JSON data as values of a type, or an error that says which part does not fit.

Messages and log entries are read by it: what a peer or a file says is not believed, since a string where a number
belongs would be compared, stored and met much later. Types are those that messages are made of: ``int`` (of 64 bits),
``float``, ``str``, ``bool``, ``None``, unions with it, tuples, mappings from strings, named tuples and dataclasses.

An error names the type of what came and not the value, which may be a secret.

Threads: any.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
"""Of the numbers of epochs, times and hashes, and of checksums."""

_NAME_CHARS_MAX = 40
"""Of a peer's own names in an error."""

_Value = TypeVar("_Value")
_Reader = Callable[[Any], Any]


class MalformedError(ValueError):
    """The data is not a value of the type that it should be of."""


def parsed(data: bytes | str) -> Any:
    """The JSON in some bytes. ``MalformedError`` where there is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"it is no JSON: {str(error)[:200]}") from None


def typed(kind: type[_Value], raw: Any) -> _Value:
    """``raw`` as a value of this type."""
    value: _Value = _inside(getattr(kind, "__name__", ""), _reader(cast(Any, kind)), raw)
    return value


def item(raw: Any, name: str, kind: type[_Value]) -> _Value:
    """One item of an object."""
    if not isinstance(raw, Mapping):
        _misfit("an object", raw)
    if name not in raw:
        raise MalformedError(f"{name!r} is missing")
    value: _Value = _inside(name, _reader(cast(Any, kind)), raw[name])
    return value


def _inside(where: str, reader: _Reader, raw: Any) -> Any:
    """Said of the error as it comes up, so that nothing is said of what is right."""
    try:
        return reader(raw)
    except MalformedError as error:
        raise MalformedError(f"{where[:_NAME_CHARS_MAX]}: {error}") from None


def _misfit(wanted: str, raw: Any) -> NoReturn:
    if isinstance(raw, bool) or raw is None:
        found = "null" if raw is None else "a boolean"
    elif isinstance(raw, int | float):
        found = "another number"
    else:
        found = "a text" if isinstance(raw, str) else "an object" if isinstance(raw, Mapping) else "a list"
    raise MalformedError(f"it should be {wanted} and is {found}")


@cache
def _reader(kind: Any) -> _Reader:
    """Made once for a type: messages are read in every epoch, with an item for each partition."""
    if kind is Any:
        return lambda raw: raw
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (other,) = (each for each in args if each is not NoneType)  # nothing else is in any message
        return _or_none(_reader(other))
    if origin is tuple and len(args) == 2 and args[1] is ...:
        return _list_of(_reader(args[0]))
    if origin is tuple:
        return _items([_reader(each) for each in args], tuple)
    if origin is not None and issubclass(origin, Mapping):
        return _object_of(_reader(args[1]))
    hints = get_type_hints(kind)
    if hasattr(kind, "_fields"):  # a named tuple
        return _items([_reader(each) for each in hints.values()], lambda values: kind(*values))
    return _fields(kind, {name: _reader(each) for name, each in hints.items()})


def _integer(raw: Any) -> int:
    if type(raw) is not int or not _INT_MIN <= raw <= _INT_MAX:
        _misfit("an integer of 64 bits", raw)
    return raw


def _number(raw: Any) -> float:
    if type(raw) not in (int, float) or not math.isfinite(raw):
        _misfit("a number", raw)
    return float(raw)


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else _misfit("a text", raw)


def _boolean(raw: Any) -> bool:
    return raw if isinstance(raw, bool) else _misfit("a boolean", raw)


_SCALARS: dict[Any, _Reader] = {int: _integer, float: _number, str: _text, bool: _boolean}


def _or_none(reader: _Reader) -> _Reader:
    return lambda raw: None if raw is None else reader(raw)


def _list_of(reader: _Reader) -> _Reader:
    def read(raw: Any) -> tuple[Any, ...]:
        return tuple(map(reader, raw)) if isinstance(raw, list | tuple) else _misfit("a list", raw)

    return read


def _items(readers: list[_Reader], made: Callable[[list[Any]], Any]) -> _Reader:
    def read(raw: Any) -> Any:
        if not isinstance(raw, list | tuple) or len(raw) != len(readers):
            _misfit(f"a list of {len(readers)}", raw)
        return made([reader(each) for reader, each in zip(readers, raw, strict=True)])

    return read


def _object_of(reader: _Reader) -> _Reader:
    def read(raw: Any) -> dict[str, Any]:
        if not isinstance(raw, Mapping):
            _misfit("an object", raw)
        return {name: _inside(name, reader, each) for name, each in raw.items()}

    return read


def _fields(kind: Any, readers: dict[str, _Reader]) -> _Reader:
    """Of a dataclass: no field is unknown, and none is missing that has no default."""
    fields = dataclasses.fields(kind)
    none = dataclasses.MISSING
    required = {each.name for each in fields if each.default is none and each.default_factory is none}
    known = {each.name for each in fields}

    def read(raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            _misfit("an object", raw)
        if not raw.keys() <= known:
            raise MalformedError(f"it has no {sorted(raw.keys() - known)[0][:_NAME_CHARS_MAX]!r}")
        if not required <= raw.keys():
            raise MalformedError(f"{sorted(required - raw.keys())[0]!r} is missing")
        return kind(**{name: _inside(name, readers[name], each) for name, each in raw.items()})

    return read
