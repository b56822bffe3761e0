"""What the API needs of the layer that knows Spark. That layer hands in an implementation with each stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import Named
from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Options
from tailrace.api.processors import ProcessorCode, TimeMode
from tailrace.api.relations import OutputMode, Relation, SparkHop
from tailrace.api.tables import LookupTable
from tailrace.api.windows import AnyWindow
from tailrace.types import Field


class StreamingQuery(Protocol):
    """A started query, with the names of PySpark's."""

    @property
    def name(self) -> str | None: ...

    @property
    def isActive(self) -> bool: ...

    @property
    def lastProgress(self) -> Any: ...

    @property
    def status(self) -> Any: ...

    def explain(self) -> None: ...

    def stop(self) -> None: ...

    def when_ended(self, action: Callable[[], None]) -> None: ...

    def awaitTermination(self, timeout: float | None = None) -> bool | None: ...


@dataclass(frozen=True)
class Projected:
    """A stream with columns of what a user's expressions give, and what was asked of it in names of these columns.

    ``time``: the column of the watermark. ``ansi``: whether sums that do not fit are errors. ``finish``: a function of
    DataFrames, to be put behind the aggregation where its rows are not yet what was asked for, and a text for it.
    """

    source: object
    schema: tuple[Field, ...]
    time: str | None
    groups: tuple[str | AnyWindow, ...]
    aggregates: tuple[Aggregate, ...]
    ansi: bool
    finish: tuple[Callable[..., object], str] | None


class Runtime(Protocol):
    """Starts and explains queries."""

    @property
    def ansi(self) -> bool:
        """Whether the session follows ANSI rules: then an overflowing sum is an error."""

    def fields(self, schema: object) -> tuple[Field, ...]:
        """The columns of a schema as a user writes it: a DDL string, or Spark's own."""

    def processor(self, processor: object, output: object, time_mode: TimeMode, *, pandas: bool) -> ProcessorCode:
        """A ``StatefulProcessor``, and the columns of what it gives."""

    def initial_state(self, grouped: object, keys: Sequence[Field], title: str) -> Callable[[], object]:
        """Gives the rows of a grouped static DataFrame, with which a processor begins. ``title``: its method."""

    def group_state(
        self, function: object, output: object, state: object, timeout: str, *, watermarked: bool
    ) -> tuple[ProcessorCode, TimeMode]:
        """A function of a ``GroupState``, and the clock of its timeout."""

    def table_fields(self, table: LookupTable) -> tuple[Field, ...]:
        """The columns of a lookup table, by its schema or by its files."""

    def enriched(
        self, source: object, table: object, on: Sequence[object], how: str
    ) -> tuple[object, tuple[Field, ...]]:
        """The user's stream joined with a static DataFrame, and the columns of that."""

    def transformed(
        self, source: object, function: Callable[..., object], time: str | None, label: str
    ) -> tuple[object, tuple[Field, ...], str | None]:
        """The user's stream through a function of DataFrames, the columns of that, and the one that ``time`` is there.

        ``label``: the user's call, for errors.
        """

    def rows(self, source: object) -> object:
        """The DataFrame of the user's stream."""

    def projected(
        self,
        source: object,
        schema: Sequence[Field],
        time: str | None,
        groups: Sequence[object],
        aggregates: Sequence[object],
        *,
        whole: bool,
    ) -> Projected:
        """Groups and aggregates with expressions of PySpark's among them, over names. ``time``: the watermark's column.

        ``whole``: with the stream's other columns too, but for those whose name a group takes.
        """

    def with_columns(
        self, source: object, schema: Sequence[Field], columns: Sequence[object], call: str, *, beside: bool
    ) -> tuple[object, tuple[Field, ...], tuple[Named, ...]]:
        """The stream with a column for each of PySpark's that it does not have yet.

        In the place of one of the same name; with ``beside`` by another name. ``call``: the user's, for errors.
        """

    def hop(self, relation: Relation, function: Callable[..., object], label: str, *others: Relation) -> SparkHop:
        """Operators' rows through a function of DataFrames. ``label``: the user's call, for errors and plans."""

    def start(self, query: QueryDefinition) -> StreamingQuery: ...

    def explain(self, relation: Relation, output_mode: OutputMode, options: Options) -> str:
        """The plan such a query would have, before a sink and a checkpoint are chosen."""
