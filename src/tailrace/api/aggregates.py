"""An aggregate as a user asks for it. It only says what is wanted: what that is, its descriptor knows.

The descriptors, and the functions that users call, are in ``operators.aggregate.functions``, which this module may not
import. They register themselves here when that package is imported: a query cannot be made without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tailrace.api.columns import ColumnOrName
from tailrace.errors import AnalysisError
from tailrace.types import DataType, Field


class AggregateFunction(Protocol):
    """What the API needs of an aggregate's descriptor."""

    @property
    def name(self) -> str: ...

    @property
    def needs_time(self) -> bool:
        """Whether the answer depends on event time."""

    @property
    def holistic(self) -> bool:
        """Whether it needs every row of its group, and not only a few values that are merged as rows come."""

    def check(self, shown: str, fields: Sequence[Field]) -> None:
        """Refuse columns that this aggregate cannot take. ``shown``: the output's name."""

    def result_type(
        self, columns: tuple[str, ...], types: tuple[DataType, ...], arguments: tuple[Any, ...]
    ) -> DataType:
        """The type of the output, Spark's own."""


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of columns; a count of rows has none. ``shown``: its default name, with ``{}`` for the columns.

    ``columns``: what the user gave. In a relation they are names.
    """

    function: AggregateFunction
    columns: tuple[ColumnOrName, ...]
    arguments: tuple[Any, ...] = ()
    shown: str = "{}"
    code: str | None = None  # a user's functions, packed
    alias_name: str | None = None

    def alias(self, name: str) -> Aggregate:
        """The same aggregate with another output name."""
        if not isinstance(name, str) or not name:
            raise AnalysisError(f"alias takes a name that is not empty, but got {name!r}: .alias('total')")
        return replace(self, alias_name=name)

    @property
    def name(self) -> str:
        """The name of the output column: the alias, or Spark's default."""
        return self.shown.format(", ".join(map(str, self.columns))) if self.alias_name is None else self.alias_name

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of one that is resolved."""
        return tuple(column for column in self.columns if isinstance(column, str))

    def output_type(self, schema: Sequence[Field]) -> DataType:
        """The type of the output, Spark's own, over columns of this schema."""
        by_name = {field.name: field.type for field in schema}
        types = tuple(by_name[column] for column in self.names)
        return self.function.result_type(self.names, types, self.arguments)


BY_NAME: dict[str, Callable[[ColumnOrName], Aggregate]] = {}
"""Those that need no more than a column's name, for ``agg({"price": "max"})``, as PySpark allows it."""
