"""The column types that Tailrace understands, without Spark and without Arrow.

A type is written as Spark's ``simpleString`` writes it (``bigint``, ``decimal(10,2)``, ``timestamp_ntz``), so that
messages, plans and checkpoints read alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a value lies in a state record. The names are written into checkpoints: never rename one."""

    INT64 = "int64"  # one word: integers, booleans, dates, timestamps, decimals up to 18 digits
    FLOAT64 = "float64"  # one word: float and double
    INT128 = "int128"  # two words, low then high: decimals above 18 digits
    BYTES = "bytes"  # one word: the place of a length-prefixed byte string


INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
TIMES = ("timestamp", "timestamp_ntz")
_PLAIN = {
    **dict.fromkeys((*INTEGERS, "boolean", "date", *TIMES), Kind.INT64),
    **dict.fromkeys(FLOATS, Kind.FLOAT64),
    **dict.fromkeys(("string", "binary"), Kind.BYTES),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_ARRAY = re.compile(r"array<(.+)>", re.DOTALL)
_WINDOW = re.compile(r"struct<start:(\w+),end:\1>")
_PACKED = re.compile(r"packed<(.+)\n(.+)>", re.DOTALL)
_COMPARED_OTHERWISE = re.compile(r"\b(float|double|map)\b")


@dataclass(frozen=True)
class DataType:
    """A column's type by its Spark name. ``kind`` is ``None`` where Tailrace cannot keep such a value.

    >>> DataType("decimal(20,2)").kind
    <Kind.INT128: 'int128'>
    """

    name: str

    @property
    def kind(self) -> Kind | None:
        if self.is_decimal:
            return Kind.INT64 if self.precision <= 18 else Kind.INT128
        return Kind.BYTES if self.packed is not None else _PLAIN.get(self.name)

    @property
    def is_decimal(self) -> bool:
        return _DECIMAL.fullmatch(self.name) is not None

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS

    @property
    def is_float(self) -> bool:
        return self.name in FLOATS

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_float or self.is_decimal

    @property
    def is_time(self) -> bool:
        return self.name in TIMES

    @property
    def element(self) -> DataType | None:
        """Of an array, the type of its elements."""
        found = _ARRAY.fullmatch(self.name)
        return DataType(found.group(1)) if found else None

    @property
    def bounds(self) -> DataType | None:
        """Of a window, the type of its start and its end."""
        found = _WINDOW.fullmatch(self.name)
        return DataType(found.group(1)) if found else None

    @property
    def packed(self) -> str | None:
        """Of structs, arrays and maps that are kept as byte strings (``state.rows.nested``), their type as Spark's JSON
        has it.
        """
        found = _PACKED.fullmatch(self.name)
        return found.group(2) if found else None

    @property
    def equal_by_bytes(self) -> bool:
        """Whether two values are equal exactly where what is kept of them is."""
        return not self.is_float and (self.packed is None or _COMPARED_OTHERWISE.search(str(self)) is None)

    @property
    def precision(self) -> int:
        return int(self._decimal_part(1))

    @property
    def scale(self) -> int:
        return int(self._decimal_part(2))

    def _decimal_part(self, group: int) -> str:
        found = _DECIMAL.fullmatch(self.name)
        if found is None:
            raise ValueError(f"{self.name} is not a decimal type")
        return found.group(group)

    def __str__(self) -> str:
        """As a user would write it."""
        if (element := self.element) is not None:
            return f"array<{element}>"
        found = _PACKED.fullmatch(self.name)
        return found.group(1) if found else self.name


def decimal(precision: int, scale: int) -> DataType:
    """A decimal type, bounded at 38 digits as Spark bounds its own."""
    return DataType(f"decimal({min(38, precision)},{min(38, scale)})")


def array(element: DataType) -> DataType:
    return DataType(f"array<{element.name}>")


def window_of(bounds: DataType) -> DataType:
    """A window with bounds of this type.

    >>> window_of(TIMESTAMP).bounds
    DataType(name='timestamp')
    """
    return DataType(f"struct<start:{bounds.name},end:{bounds.name}>")


def packed(text: str, json: str) -> DataType:
    """Of structs, arrays and maps that are kept as byte strings.

    >>> str(packed("array<int>", "{}"))
    'array<int>'
    """
    return DataType(f"packed<{text}\n{json}>")


BIGINT = DataType("bigint")
DOUBLE = DataType("double")
TIMESTAMP = DataType("timestamp")


@dataclass(frozen=True)
class Field:
    name: str
    type: DataType
