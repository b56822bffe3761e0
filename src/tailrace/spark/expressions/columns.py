"""The columns that an operator reads, made by Spark of the user's expressions before the operator gets its rows.

Of a plain query they are named by number: the user's names may come twice, and what state is kept by must not change
where a name does. ``in_users_words`` puts the expressions back into messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import Column, DataFrame

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression

_NAME = re.compile(r"\b[acklr]\d+(_\d+)?\b")
_TEXT_MAX = 200


class Texts:
    """What the names of a query's columns stand for."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}
        self._expressions: dict[str, Expression] = {}
        self._users: dict[str, str] = {}

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Names of ours, and the user's own for those columns."""
        return tuple(self._users.items())

    def call(self, name: str, users: str) -> None:
        """The user has a name for it, too."""
        self._users[name] = users

    def add(self, name: str, text: str, expression: Expression | None = None) -> str:
        """The name. ``expression``: what it stands for, where that is one of the user's."""
        self._by_name[name] = text[:_TEXT_MAX]
        if expression is not None:
            self._expressions[name] = expression
            if expression.is_attribute:
                self.call(name, expression.name)
        return name

    def place_in(self, message: str) -> str:
        """Where the first expression that a message names is written; empty where that is not known."""
        named = (self._expressions.get(found.group()) for found in _NAME.finditer(message))
        return next((each.place for each in named if each is not None and each.place), "")

    def in_users_words(self, message: str) -> str:
        return _NAME.sub(lambda found: self._by_name.get(found.group(), found.group()), message)

    def legend(self) -> str:
        return ", ".join(f"{name} = {text}" for name, text in self._by_name.items() if name != text)


class Columns:
    """``name``: makes the names, of a number and a text. ``gone``: a column of the plan that is not there any more
    where these are made, and what it is.
    """

    def __init__(self, texts: Texts, name: Callable[[int, str], str], gone: tuple[int, str] | None) -> None:
        self._texts = texts
        self._name = name
        self._gone = gone
        self._taken: list[tuple[Expression | None, Column, str]] = []
        self._references: set[int] = set()

    def take(self, expression: Expression) -> str:
        """The name of the column with an expression's values."""
        self.check(expression)
        for taken, _, name in self._taken:
            if taken is not None and taken.same_as(expression):
                return name
        return self.put(expression)

    def put(self, expression: Expression, name: str | None = None) -> str:
        """The name of a column of its own with an expression's values, which ``take`` finds again."""
        self.check(expression)
        text = expression.name if expression.is_attribute else expression.text
        return self._add(expression, expression.column(), text, name)

    def make(self, column: Column, text: str, name: str | None = None) -> str:
        """The name of a column of its own: of what is made of the user's expressions, or has to have that name."""
        return self._add(None, column, text, name)

    def check(self, expression: Expression) -> None:
        """Refuse an expression that cannot be computed before the operator; others may be part of a column."""
        if self._gone is not None and self._gone[0] in expression.references:
            raise AnalysisError(f"{expression.text}: {self._gone[1]} is known to the operator alone")
        self._references |= expression.references

    def of(self, frame: DataFrame) -> DataFrame:
        """The columns, of a DataFrame with what they are made of."""
        return frame.select(*(column.alias(name) for _, column, name in self._taken))

    @property
    def taken(self) -> list[tuple[str, Expression | None]]:
        """By name, what each column has the values of; None: of more than an expression of the user's."""
        return [(name, expression) for expression, _, name in self._taken]

    @property
    def references(self) -> frozenset[int]:
        """The columns of the plan that they are made of."""
        return frozenset(self._references)

    def _add(self, expression: Expression | None, column: Column, text: str, name: str | None = None) -> str:
        name = name or self._name(len(self._taken), text)
        self._taken.append((expression, column, name))
        return self._texts.add(name, text, expression)
