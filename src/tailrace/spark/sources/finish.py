"""What Spark makes of an aggregation's rows where more than aggregates was asked for: ``F.max("a") - F.min("a")``."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from tailrace.api.columns import shown_call
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Leaf, Template, plan_of


class Finish:
    """A function of an operator's rows: its first ``groups`` columns, ``shown``, and what other columns it has.

    ``names``: where the expressions that are shown find the operator's keys and aggregates. ``shown``: expressions of
    these, and names of columns.
    """

    def __init__(self, names: Sequence[tuple[Expression, str]], shown: Sequence[Expression | str], groups: int) -> None:
        self._names = names
        self._shown = shown
        self._groups = groups
        self._template: Template | None = None
        self.label = shown_call("agg", (each.name for each in shown if isinstance(each, Expression)))

    def __call__(self, frame: DataFrame) -> DataFrame:
        if self._template is None:
            self._template = self._template_for(frame)
        return self._template.over(frame)

    def _template_for(self, frame: DataFrame) -> Template:
        names = frame.columns
        own = plan_of(frame.sparkSession.createDataFrame([], frame.schema)).output
        read = {name for _, name in self._names} | {each for each in self._shown if isinstance(each, str)}
        chosen = [own[names.index(each)] if isinstance(each, str) else each for each in self._shown]
        others = [each for number, each in enumerate(own) if number >= self._groups and names[number] not in read]
        leaf = [*((each, names.index(name)) for each, name in self._names), *zip(own, range(len(own)), strict=True)]
        return Template(Leaf(leaf, [*own[: self._groups], *chosen, *others]))
