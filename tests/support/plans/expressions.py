"""Random SQL expressions over columns of known families: what may be a key, an argument, a condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

KEY_FAMILIES = ("integer", "extreme", "decimal", "string", "boolean", "date", "timestamp", "local", "binary")
"""Doubles are no keys: Tailrace refuses them."""


@dataclass(frozen=True)
class Typed:
    """An expression as SQL text."""

    text: str
    family: str


class Scope:
    """``columns``: families by name. ``any_case``: whether names may be written in other letters."""

    def __init__(self, rng: Random, columns: dict[str, str], any_case: bool = False) -> None:
        self._rng = rng
        self._columns = columns
        self._any_case = any_case

    def columns(self, *families: str) -> list[str]:
        return [name for name, family in self._columns.items() if not families or family in families]

    def any_of(self, *families: str) -> Typed:
        """An expression of one of the families, most often of one that a column has."""
        there = [family for family in families if self.columns(family)]
        return self.of(self._rng.choice(there if there and self._rng.random() < 0.9 else families))

    def of(self, family: str) -> Typed:
        rng = self._rng
        makers = _MAKERS.get(family, [])
        columns = self.columns(family)
        if columns and (not makers or rng.random() < 0.5):
            return Typed(self._spelled(rng.choice(columns)), family)
        if not makers:
            return Typed("CAST(NULL AS DOUBLE)" if family in ("double", "finite") else "1", family)
        text = rng.choice(makers)(self)
        if rng.random() < 0.1:
            text = f"CASE WHEN {self.condition()} THEN {text} END"
        return Typed(text, family)

    def condition(self) -> str:
        rng = self._rng
        made = [make for family, make in _CONDITIONS.items() if self.columns(family)]
        if not made:
            return f"{self.choose(*(self.columns() or ['1']))} IS NOT NULL"
        text = rng.choice(made)(self)
        return text if rng.random() < 0.8 else f"({text} {rng.choice(['AND', 'OR'])} {rng.choice(made)(self)})"

    def column(self, family: str, otherwise: str = "") -> str:
        columns = self.columns(family)
        return self._spelled(self._rng.choice(columns)) if columns else otherwise

    def choose(self, *texts: str) -> str:
        return self._rng.choice(texts)

    def _spelled(self, name: str) -> str:
        return name.upper() if self._any_case and self._rng.random() < 0.2 else name


def _integer(scope: Scope) -> str:
    column = scope.column("integer", "length('ab')")
    text, day = scope.column("string", "'xy'"), scope.column("date", "DATE'2026-03-29'")
    time = scope.column("timestamp", "TIMESTAMP'2026-03-29 00:30:00Z'")
    return scope.choose(
        *(each.format(column) for each in ("({} + 1)", "({} * 2)", "abs({})", "({} % 3)", "coalesce({}, 0)")),
        *(f"length({text})", f"dayofyear({day})", f"hour({time})", f"CAST({column} AS BIGINT)"),
    )


def _string(scope: Scope) -> str:
    column, number = scope.column("string", "'Ab'"), scope.column("integer", "7")
    time = scope.column("timestamp", "TIMESTAMP'2026-03-29 00:30:00Z'")
    return scope.choose(
        *(each.format(column) for each in ("upper({})", "lower({})", "concat({0}, '-', {0})", "substring({}, 1, 2)")),
        *(each.format(column) for each in ("coalesce({}, 'none')", "trim({})", "nullif({}, 'a')", "reverse({})")),
        *(f"CAST({number} AS STRING)", f"date_format({time}, 'yyyy-MM-dd HH')"),
    )


def _decimal(scope: Scope) -> str:
    column, number = scope.column("decimal", "1.50BD"), scope.column("integer", "7")
    made = (each.format(column) for each in ("({} * 2)", "({} + 0.5BD)", "-{}", "round({}, 1)"))
    return scope.choose(*made, f"CAST({number} AS DECIMAL(20, 1))")


def _finite(scope: Scope) -> str:
    column, number = scope.column("finite", "0.5D"), scope.column("integer", "7")
    return scope.choose(f"({column} * 2)", f"abs({column})", f"CAST({number} AS DOUBLE)", f"({column} + 0.25D)")


def _boolean(scope: Scope) -> str:
    return scope.condition()


def _date(scope: Scope) -> str:
    column, time = (
        scope.column("date", "DATE'2026-03-29'"),
        scope.column("timestamp", "TIMESTAMP'2026-03-29 23:30:00Z'"),
    )
    return scope.choose(f"date_add({column}, 1)", f"last_day({column})", f"to_date({time})")


def _timestamp(scope: Scope) -> str:
    column = scope.column("timestamp", "TIMESTAMP'2026-03-28 23:30:00Z'")
    return scope.choose(
        f"date_trunc('DAY', {column})", f"({column} + INTERVAL 1 DAY)", f"({column} - INTERVAL 3 SECONDS)"
    )


def _local(scope: Scope) -> str:
    column = scope.column("local", "TIMESTAMP_NTZ'2026-03-28 23:30:00'")
    return scope.choose(f"({column} + INTERVAL 1 DAY)", f"coalesce({column}, TIMESTAMP_NTZ'2026-01-01 00:00:00')")


def _binary(scope: Scope) -> str:
    return f"CAST({scope.column('string', repr('x'))} AS BINARY)"


_MAKERS: dict[str, list[Callable[[Scope], str]]] = {
    "integer": [_integer],
    "string": [_string],
    "decimal": [_decimal],
    "finite": [_finite],
    "boolean": [_boolean],
    "date": [_date],
    "timestamp": [_timestamp],
    "local": [_local],
    "binary": [_binary],
}
_TEXT_TESTS = ("{} = 'a'", "{} > 'B'", "{} LIKE 'a%'", "{} IN ('', 'ab', 'ß')", "{} IS NULL", "length({}) < 2")
_CONDITIONS: dict[str, Callable[[Scope], str]] = {
    "integer": lambda scope: scope.choose(
        *("{} > 0", "{} <= 1", "{} != 2", "{} <=> 0", "{} IN (0, 1, 7)", "{} NOT IN (1, 2)", "{} IS NULL")
    ).format(scope.column("integer")),
    "string": lambda scope: scope.choose(*_TEXT_TESTS).format(scope.column("string")),
    "date": lambda scope: f"{scope.column('date')} > DATE'2026-01-01'",
    "decimal": lambda scope: f"({scope.column('decimal')} BETWEEN -1 AND 3)",
    "boolean": lambda scope: scope.choose("{}", "NOT {}", "{} IS NOT NULL", "coalesce({}, true)").format(
        scope.column("boolean")
    ),
    "timestamp": lambda scope: f"second({scope.column('timestamp')}) % 3 != 1",
}
"""By the family that they are about."""
