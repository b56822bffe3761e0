"""Finding a user's columns in a schema, by Spark's default rules: case does not matter, backticks may quote a name.

A resolved name is always the schema's own spelling, so that everything behind the API compares names exactly.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tailrace.errors import AnalysisError
from tailrace.types import DataType, Field


@runtime_checkable
class Column(Protocol):
    """A Column of PySpark's, which the layer that knows Spark looks into, and nothing else."""

    def alias(self, *alias: str, **kwargs: Any) -> Any: ...

    def isNotNull(self) -> Any: ...

    def substr(self, startPos: Any, length: Any) -> Any: ...


@dataclass(frozen=True)
class Named:
    """What a Column is called in a stream. ``computed``: it is none of the stream's own.

    ``ascending``: as ``F.asc`` and ``F.desc`` say; None: it says nothing of an order.
    """

    name: str
    computed: bool
    ascending: bool | None


ColumnOrName: TypeAlias = Column | str

_COLUMN = re.compile("Column<'(.*?)'>", re.DOTALL)
_SHOWN_MAX = 160
_COLLATED = "string collate"
KEY_TYPES = "integers, string, boolean, date, timestamp, timestamp_ntz, decimal, binary"


def resolve(name: object, schema: Sequence[Field], where: str) -> Field:
    """The field a user means by ``name``; ``where`` names the call in an error.

    >>> resolve("PRICE", [Field("price", DataType("int"))], "sum").name
    'price'
    """
    if not isinstance(name, str):
        raise AnalysisError(
            f"{where} takes column names, but got {name!r} ({type(name).__name__}): give the name as a string, and "
            f"compute expressions before, for example with withColumn"
        )
    wanted = unquoted(name)
    exact = [field for field in schema if field.name == wanted]
    found = exact or [field for field in schema if field.name.lower() == wanted.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise AnalysisError(
            f"{where}: column {name!r} is ambiguous, it may be any of {', '.join(f.name for f in found)}: "
            f"rename one first"
        )
    raise AnalysisError(f"{where}: there is no column {name!r}. {_advice(wanted, schema)}")


def unquoted(name: str) -> str:
    """A name without the backticks that Spark lets a user put around it.

    >>> unquoted("`a.b`")
    'a.b'
    """
    if len(name) > 2 and name.startswith("`") and name.endswith("`"):
        return name[1:-1].replace("``", "`")
    return name


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name most like ``name``, whatever the case, or ``None`` where none is near."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def shown_call(name: str, arguments: Iterable[object]) -> str:
    """A call as a user may have written it, for messages and plans.

    >>> shown_call("select", ["a", "b"])
    'select(a, b)'
    """
    given = ", ".join(_COLUMN.sub(r"\1", str(each)) for each in arguments)
    return f"{name}({given[:_SHOWN_MAX]})"


def _advice(wanted: str, schema: Sequence[Field]) -> str:
    names = [field.name for field in schema]
    advice = f"The columns are: {', '.join(names)}." if names else "The stream has no columns."
    outer = wanted.partition(".")[0]
    if any(field.name.lower() == outer.lower() for field in schema) and outer != wanted:
        return (
            f"A field of a struct is a Column, F.col('{wanted}'), or is made a column first, "
            f".withColumn('x', F.col('{wanted}')). {advice}"
        )
    near = closest(wanted, names)
    if near is not None:
        return f"Did you mean {near!r}? {advice}"
    return advice


def check_collation(field: Field, where: str) -> None:
    """Refuse a string whose equality is not the equality of its bytes: state compares bytes."""
    if field.type.name.startswith(_COLLATED):
        raise AnalysisError(
            f"{where}: column {field.name!r} is a {field.type}, and only strings compared by their bytes are "
            f"supported: cast it first, for example .withColumn({field.name!r}, "
            f"F.collate({field.name!r}, 'UTF8_BINARY'))"
        )


CANNOT_BE_PASSED_ON = "cannot be passed on: leave it out or cast it first, for example with F.to_json(...)"
CANNOT_BE_STATE = (
    "cannot be kept: use numbers, strings, booleans, dates, timestamps, decimals or binary, and for anything else a "
    "string or binary of it"
)


def check_kept(fields: Iterable[Field], where: str, advice: str) -> None:
    """``where``: what the fields are. ``advice``: what fails with a type that has no form of ours, and what to do."""
    for field in fields:
        if field.type.kind is None:
            raise AnalysisError(f"{where} {field.name!r} is a {field.type}, which {advice}")


def check_key(field: Field, where: str, what: str = "a group column") -> None:
    """Refuse a column that cannot be part of a key."""
    check_collation(field, where)
    if field.type.kind is not None and field.type.equal_by_bytes:
        return
    raise AnalysisError(
        f"{where}: column {field.name!r} is a {field.type} and cannot be {what}. "
        f"Supported are: {KEY_TYPES}. {_key_advice(field.type)}"
    )


def _key_advice(type_: DataType) -> str:
    if type_.is_float:
        return (
            "Equality of floating-point numbers is treacherous: round it to a decimal, or group by an integer bucket."
        )
    if str(type_).startswith("struct<"):
        return "Make the struct's fields columns of their own and group by those."
    if str(type_).startswith(("array<", "map<", "variant")):
        return "Make a column that stands for it, for example F.to_json(...) or F.xxhash64(...), and group by that."
    return "Cast it to one of these first."


def check_time(column: Field, where: str) -> None:
    if not column.type.is_time:
        raise AnalysisError(
            f"{where}: event time must be a timestamp, but column {column.name!r} is a {column.type}: cast it first, "
            f"for example .withColumn({column.name!r}, "
            f"F.col({column.name!r}).cast('timestamp'))"
        )


def check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise AnalysisError(
                f"two output columns would be called {name!r} (names differ by more than case): the output is "
                f"{', '.join(names)}. Give one another name with .alias(...)"
            )
        seen[name.lower()] = name
