"""Values between a user's Python and the state: what PySpark's schemas make of them on the way in and out.

As in Spark, a timestamp without a zone is one of this machine's zone on its way into the state, and comes back as such.

Threads: immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

_EPOCH = datetime(1970, 1, 1)
_MICROS = 1_000_000
_PLAIN = frozenset({bool, int, float, str, bytes, type(None), date, datetime, Decimal})


class StateValues:
    """Tuples of one schema."""

    def __init__(self, schema: StructType, what: str) -> None:
        self._what = what
        self._names = schema.names
        self._count = len(schema.names)
        kinds = [(number, field.dataType) for number, field in enumerate(schema.fields)]
        self._inward = [(number, _to_micros(kind)) for number, kind in kinds if _is_time(kind)]
        self._outward = [(number, _from_micros(kind)) for number, kind in kinds if _is_time(kind)]

    def inward(self, given: Any) -> tuple[Any, ...]:
        """What is kept of a value of the user's: plain Python, timestamps as microseconds."""
        if isinstance(given, Mapping):
            given = tuple(given.get(name) for name in self._names)
        elif not isinstance(given, tuple | list):
            raise TypeError(
                f"{self._what} takes a tuple with a value for each of its fields ({', '.join(self._names)}), but was "
                f"given {given!r} ({type(given).__name__})"
            )
        if len(given) != self._count:
            raise ValueError(
                f"{self._what} has {self._count} fields ({', '.join(self._names)}), but was given {len(given)} values: "
                f"{tuple(given)!r}"
            )
        values = tuple(given) if _PLAIN.issuperset(map(type, given)) else tuple(map(_plain, given))
        return self._converted(values, self._inward) if self._inward else values

    def outward(self, kept: Sequence[Any]) -> tuple[Any, ...]:
        """A value as the user sees it; what lies behind its fields is left out."""
        values = tuple(kept[: self._count]) if len(kept) > self._count else tuple(kept)
        return self._converted(values, self._outward) if self._outward else values

    def _converted(self, values: tuple[Any, ...], chosen: list[tuple[int, Callable[[Any], Any]]]) -> tuple[Any, ...]:
        cells = list(values)
        for number, convert in chosen:
            if cells[number] is not None:
                cells[number] = convert(cells[number])
        return tuple(cells)


def _plain(value: Any) -> Any:
    """Plain Python for numpy's and pandas' scalars."""
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    return value


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | TimestampNTZType)


def _to_micros(kind: DataType) -> Callable[[Any], int]:
    if isinstance(kind, TimestampNTZType):
        return lambda value: _micros(value - _EPOCH)
    return lambda value: int(value.replace(microsecond=0).timestamp()) * _MICROS + value.microsecond


def _from_micros(kind: DataType) -> Callable[[int], datetime]:
    return kind.fromInternal


def _micros(span: timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * _MICROS + span.microseconds
