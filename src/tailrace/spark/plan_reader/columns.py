"""The columns that an operator reads, made by Spark of the user's expressions before the operator gets its rows.

They are named by number: the user's names may come twice, and what state is kept by must not change where a name does.
``in_users_words`` puts the expressions back into messages.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame, SparkSession

from tailrace.errors import AnalysisError
from tailrace.spark.plan_reader.catalyst import Expression, Node

_NAME = re.compile(r"\b[ac]\d+\b")
_TEXT_MAX = 200


class Columns:
    """``gone``: a column of the plan that is not there any more where these are made, and what it is."""

    def __init__(self, gone: tuple[int, str] | None = None) -> None:
        self._gone = gone
        self._taken: list[tuple[Expression | None, Column, str]] = []
        self.texts: dict[str, str] = {}
        """What names stand for."""

    def take(self, expression: Expression) -> str:
        """The name of the column with an expression's values."""
        self.check(expression)
        for number, (taken, _, _) in enumerate(self._taken):
            if taken is not None and taken.same_as(expression):
                return f"c{number}"
        return self._add(expression, expression.column(), expression.text)

    def make(self, column: Column, text: str) -> str:
        """The name of a column that is no expression of the user's, but made of some."""
        return self._add(None, column, text)

    def check(self, expression: Expression) -> None:
        """Refuse an expression that cannot be computed before the operator."""
        if self._gone is not None and self._gone[0] in expression.references:
            raise AnalysisError(f"{expression.text}: {self._gone[1]} is known to the operator alone")

    def name(self, name: str, text: str) -> str:
        """Remembers what a name stands for that is given elsewhere."""
        self.texts[name] = text[:_TEXT_MAX]
        return name

    def frame(self, plan: Node, spark: SparkSession) -> DataFrame:
        made = [column.alias(f"c{number}") for number, (_, column, _) in enumerate(self._taken)]
        return plan.frame(spark).select(*made)

    def in_users_words(self, message: str) -> str:
        return _NAME.sub(lambda found: self.texts.get(found.group(), found.group()), message)

    def legend(self) -> str:
        return ", ".join(f"{name} = {text}" for name, text in self.texts.items())

    def _add(self, expression: Expression | None, column: Column, text: str) -> str:
        self._taken.append((expression, column, text))
        return self.name(f"c{len(self._taken) - 1}", text)
