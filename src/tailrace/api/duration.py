"""Durations as Spark writes them, in microseconds.

Accepts what Spark's own interval parser accepts and that has a fixed length: months and years are refused, because
a window or a delay of "one month" has no number of microseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from tailrace.errors import AnalysisError
from tailrace.ids import Micros

Duration: TypeAlias = str | timedelta
"""What a user may give where a duration is asked for."""

_UNITS = {
    "week": 7 * 24 * 3600 * 1_000_000,
    "day": 24 * 3600 * 1_000_000,
    "hour": 3600 * 1_000_000,
    "minute": 60 * 1_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_NO_FIXED_LENGTH = {"month": "30 days", "year": "365 days"}
_TERM = re.compile(r"([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s+([a-z]+)(?:\s+|$)", re.ASCII)
_INTERVAL = re.compile(r"interval\s+")
_LIMIT = 2**63 - 1
_DIGITS_MAX = 40  # far past the limit; Python refuses to read numbers of thousands of digits
_EXAMPLE = 'write for example "10 seconds", "1 minute 30 seconds" or timedelta(seconds=10)'


def parse_duration(given: Duration, argument: str, *, zero_ok: bool = False, negative_ok: bool = False) -> Micros:
    """The duration in microseconds. ``argument`` says in an error where ``given`` was found.

    >>> parse_duration("1 minute 30 seconds", "delayThreshold")
    90000000
    >>> parse_duration("interval 5 milliseconds", "delayThreshold")
    5000
    >>> parse_duration(timedelta(days=1), "windowDuration")
    86400000000
    """
    if isinstance(given, timedelta):
        micros = given // timedelta(microseconds=1)
    elif isinstance(given, str):
        micros = _parse_text(given, argument)
    else:
        raise AnalysisError(f"{argument} must be a duration, not {given!r} ({type(given).__name__}): {_EXAMPLE}")
    if abs(micros) > _LIMIT:
        raise _too_long(given, argument)
    if micros < 0 and not negative_ok:
        raise AnalysisError(f"{argument} must not be negative, but {_shown(given)} was given: {_EXAMPLE}")
    if micros == 0 and not zero_ok:
        raise AnalysisError(f"{argument} must be longer than zero, but {_shown(given)} was given: {_EXAMPLE}")
    return Micros(micros)


def _parse_text(given: str, argument: str) -> int:
    text = given.strip().lower()
    prefix = _INTERVAL.match(text)
    at = prefix.end() if prefix else 0
    if at == len(text):
        raise _unparsable(given, argument)
    micros = 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            raise _unparsable(given, argument)
        sign, number, unit = term.groups()
        length = _term_micros(number, unit.removesuffix("s"), given, argument)
        micros += -length if sign == "-" else length
        at = term.end()
    return micros


def _term_micros(number: str, unit: str, given: str, argument: str) -> int:
    if unit in _NO_FIXED_LENGTH:
        raise AnalysisError(
            f"{argument} must have a fixed length, and a {unit} has none ({_shown(given)} was given): "
            f'write days instead, for example "{_NO_FIXED_LENGTH[unit]}"'
        )
    if unit not in _UNITS:
        raise _unparsable(given, argument, f"; {unit!r} is no unit, the units are {', '.join(_UNITS)}")
    whole, point, fraction = number.partition(".")
    if point and unit != "second":
        raise _unparsable(given, argument, "; only seconds may have a fraction")
    if len(fraction) > 9:
        raise _unparsable(given, argument, "; nothing is finer than a microsecond")
    if len(whole) > _DIGITS_MAX:
        raise _too_long(given, argument)
    micros = int(whole or "0") * _UNITS[unit]
    # Digits below a microsecond are cut off, as Spark cuts them.
    return micros + int(fraction.ljust(6, "0")[:6])


def format_duration(micros: int) -> str:
    """The duration as :func:`parse_duration` reads it, largest units first.

    >>> format_duration(90_000_000)
    '1 minute 30 seconds'
    >>> format_duration(0)
    '0 seconds'
    """
    rest = abs(micros)
    parts = []
    for unit, length in _UNITS.items():
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{'-' if micros < 0 else ''}{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


def _unparsable(given: str, argument: str, why: str = "") -> AnalysisError:
    return AnalysisError(f"{argument} cannot be read as a duration: {_shown(given)}{why}; {_EXAMPLE}")


def _too_long(given: Duration, argument: str) -> AnalysisError:
    return AnalysisError(f"{argument} is too long: {_shown(given)} is more than 292,000 years; {_EXAMPLE}")


def _shown(given: Duration) -> str:
    return f'"{given}"' if isinstance(given, str) else repr(given)
