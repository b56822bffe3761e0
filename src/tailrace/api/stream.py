"""A stream, grouped, aggregated: three frozen steps, each checked when it is called, before Spark sees anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tailrace.api import aggregates
from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import check_key, resolve
from tailrace.api.definition import Aggregation, OutputMode, Watermark, WindowFunction
from tailrace.api.duration import Duration, parse_duration
from tailrace.api.options import Options
from tailrace.api.runtime import Runtime
from tailrace.api.windows import AnyWindow, SessionWindow, Window
from tailrace.api.writer import DataStreamWriter
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.types import Field


@dataclass(frozen=True)
class Stream:
    """A streaming DataFrame in Tailrace's hands."""

    source: object
    schema: tuple[Field, ...]
    runtime: Runtime
    watermark: Watermark | None = None

    @property
    def time_column(self) -> Field | None:
        return None if self.watermark is None else self.watermark.column

    def withWatermark(self, eventTime: str, delayThreshold: Duration) -> Stream:
        """Rows may come up to ``delayThreshold`` behind the largest event time; later, their windows are closed."""
        if self.watermark is not None:
            raise AnalysisError(
                f"withWatermark: the stream already has a watermark, on {self.watermark.column.name!r}, and takes one "
                f"only: remove one of the two calls"
            )
        column = resolve(eventTime, self.schema, "withWatermark")
        _check_time(column, "withWatermark")
        delay = parse_duration(delayThreshold, "withWatermark: delayThreshold", zero_ok=True)
        return replace(self, watermark=Watermark(column, delay))

    def groupBy(self, *cols: str | AnyWindow | Sequence[str | AnyWindow]) -> GroupedStream:
        """Groups by columns and at most one window, or by sessions. Without any: one group of all rows."""
        keys: list[Field] = []
        window: AnyWindow | None = None
        window_position = 0
        for col in _flat(cols):
            if isinstance(col, str) and (brought := self._brought_window(col)) is not None:
                col = brought
            if not isinstance(col, Window | SessionWindow):
                keys.append(self._key(col))
            elif window is not None:
                raise AnalysisError(
                    "groupBy takes one window, but got two: aggregate by the shorter one in this query and by the "
                    "longer in another"
                )
            else:
                window = self._resolve_window(col)
                window_position = len(keys)
        return GroupedStream(self, tuple(keys), window, window_position)

    groupby = groupBy

    def agg(self, *exprs: Aggregate | dict[str, str]) -> AggregatedStream:
        """Aggregates all rows as one group."""
        return self.groupBy().agg(*exprs)

    def _brought_window(self, name: str) -> Window | None:
        """The window that rows of an aggregated stream come with, where ``name`` is its column."""
        upstream = self.source if isinstance(self.source, Aggregation) else None
        window = None if upstream is None else upstream.window
        if window is None or resolve(name, self.schema, "groupBy").name != window.name:
            return None
        if isinstance(window, SessionWindow):
            raise AnalysisError(
                f"groupBy: {name!r} are sessions, each with bounds of its own, so that hardly any two rows share one: "
                f"group by windows over their ends, tailrace.window({name!r}, '1 hour')"
            )
        length = window.size if window.lasts is None else window.lasts
        return replace(window, time_column=window.name, size=window.slide, lasts=length)

    def _key(self, col: object) -> Field:
        if not isinstance(col, str):
            raise AnalysisError(
                f"groupBy takes column names, tailrace.window(...) and tailrace.session_window(...), but got {col!r} "
                f"({type(col).__name__}): compute "
                f"expressions before tailrace.stream(...), for example with df.withColumn, and name the column here"
            )
        field = resolve(col, self.schema, "groupBy")
        check_key(field, "groupBy")
        return field

    def _resolve_window(self, window: AnyWindow) -> AnyWindow:
        where = "window" if isinstance(window, Window) else "session_window"
        column = resolve(window.time_column, self.schema, where)
        _check_time(column, where)
        if self.watermark is not None and column != self.watermark.column:
            raise AnalysisError(
                f"{where} is over {column.name!r} but the watermark is on {self.watermark.column.name!r}, so its "
                f"windows would never close: use the same column for both"
            )
        return replace(window, time_column=column.name)


@dataclass(frozen=True)
class GroupedStream:
    """A stream and the columns it is grouped by."""

    stream: Stream
    keys: tuple[Field, ...]
    window: AnyWindow | None
    window_position: int

    def agg(self, *exprs: Aggregate | dict[str, str]) -> AggregatedStream:
        """One output column for each aggregate; ``{"price": "max"}`` is understood as in PySpark."""
        wanted = [aggregate for expr in exprs for aggregate in _aggregates(expr)]
        if not wanted:
            raise AnalysisError("agg needs at least one aggregate: .agg(tailrace.count(), tailrace.max('price'))")
        stream = self.stream
        aggregation = Aggregation(
            source=stream.source,
            schema=stream.schema,
            watermark=stream.watermark,
            window=self.window,
            window_position=self.window_position,
            keys=self.keys,
            aggregates=tuple(self._resolve(aggregate) for aggregate in wanted),
            ansi=stream.runtime.ansi,
        )
        _check_names(aggregation.columns)
        return AggregatedStream(aggregation, stream.runtime)

    def applyInWindow(
        self, func: Callable[..., object], schema: object, columns: Sequence[str] | None = None
    ) -> AggregatedStream:
        """Calls ``func`` with the rows of a window, a ``pyarrow.Table``; it returns one with the columns of ``schema``.

        A table holds whole keys: all rows of a key (the other group columns) are in one call. A window too large for
        one call is given in several; without group columns beside the window it never is. The output is the window's
        column and then the function's. ``columns``: what it reads; all by default. It must depend on nothing else.

        >>> def best(rows):                                                                   # doctest: +SKIP
        ...     return rows.filter(pc.equal(rows["n"], pc.max(rows["n"])))
        >>> counts.groupBy("window").applyInWindow(best, "auction bigint, n bigint")          # doctest: +SKIP
        """
        stream = self.stream
        if not callable(func):
            raise AnalysisError(f"applyInWindow takes a function, but got {func!r} ({type(func).__name__})")
        if self.window is None:
            raise AnalysisError(
                "applyInWindow needs a window, whose end is when the function is called: add "
                "tailrace.window('ts', '10 seconds') to groupBy"
            )
        if isinstance(self.window, SessionWindow):
            raise AnalysisError(
                "applyInWindow is for windows that end for all keys at once, and sessions end key by key: use "
                "tailrace.collect_list and tailrace.top_k over sessions, or a window"
            )
        fields = stream.runtime.fields(schema)
        if not fields:
            raise AnalysisError("applyInWindow: the schema has no column")
        wanted = [field.name for field in stream.schema] if columns is None else list(columns)
        if not wanted:
            raise AnalysisError("applyInWindow: columns is empty, and a table without columns has no rows: name one")
        read = tuple(resolve(name, stream.schema, "applyInWindow: columns") for name in wanted)
        for field in (*read, *fields):
            kept = field.type if field in read else field.type.element or field.type
            if kept.kind is None:
                raise AnalysisError(
                    f"applyInWindow: column {field.name!r} is a {field.type}, which is not supported: leave it out "
                    f"with columns=[...], or cast it before tailrace.stream(...)"
                )
        made = Aggregation(
            source=stream.source,
            schema=stream.schema,
            watermark=stream.watermark,
            window=self.window,
            window_position=0,
            keys=self.keys,
            aggregates=(),
            ansi=stream.runtime.ansi,
            function=WindowFunction(func, fields, read),
        )
        _check_names(made.columns)
        return AggregatedStream(made, stream.runtime)

    def count(self) -> AggregatedStream:
        """Rows of each group, in a column ``count``."""
        return self.agg(aggregates.count().alias("count"))

    def sum(self, *cols: str) -> AggregatedStream:
        return self._each("sum", cols)

    def min(self, *cols: str) -> AggregatedStream:
        return self._each("min", cols)

    def max(self, *cols: str) -> AggregatedStream:
        return self._each("max", cols)

    def avg(self, *cols: str) -> AggregatedStream:
        return self._each("avg", cols)

    def mean(self, *cols: str) -> AggregatedStream:
        return self._each("avg", cols)

    def _each(self, function: str, cols: tuple[str, ...]) -> AggregatedStream:
        if not cols:
            raise AnalysisError(f"{function} needs the columns' names: .{function}('price')")
        return self.agg(*(aggregates.BY_NAME[function](col) for col in cols))

    def _resolve(self, aggregate: Aggregate) -> Aggregate:
        if aggregate.column is None:
            return aggregate
        field = resolve(aggregate.column, self.stream.schema, aggregate.name)
        if isinstance(self.stream.source, Aggregation) and field == self.stream.time_column:
            raise AnalysisError(
                f"{aggregate.name}: column {field.name!r} is the window that rows come from and cannot be aggregated: "
                f"group by it, groupBy({field.name!r}), or by a longer one, tailrace.window({field.name!r}, '1 hour')"
            )
        resolved = replace(aggregate, column=field.name)
        resolved.check_input(field)
        if resolved.whole_group and self.window is None:
            raise AnalysisError(
                f"{aggregate.name}: {aggregate.function} keeps every row of its group, and without a window a group "
                f"never ends: add tailrace.window('ts', '10 seconds') to groupBy"
            )
        if resolved.needs_time and self.stream.watermark is None and self.window is None:
            raise AnalysisError(
                f"{aggregate.name}: {aggregate.function} is by event time (then by value), so that a replay gives the "
                f"same row, and this stream has no event time: name it with .withWatermark('ts', '10 seconds') before "
                f"groupBy, or use min or max"
            )
        return resolved


@dataclass(frozen=True)
class AggregatedStream:
    """A query but for its sink."""

    definition: Aggregation
    runtime: Runtime

    @property
    def columns(self) -> list[str]:
        """The output's columns, in order."""
        return list(self.definition.columns)

    @property
    def writeStream(self) -> DataStreamWriter:
        return DataStreamWriter(self.definition, self.runtime)

    def groupBy(self, *cols: str | AnyWindow | Sequence[str | AnyWindow]) -> GroupedStream:
        """Aggregates the rows of closed windows again: by the same window (its column's name) or by another one.

        ``groupBy("window")`` brings together what has the same window; ``tailrace.window("window", "1 hour")`` takes
        the last moment of a row's window as its event time, as Spark's ``window_time`` does.
        """
        made = self.definition
        if made.window is None or made.watermark is None:
            raise AnalysisError(
                "an aggregation can be grouped again once its rows are final: give it a window "
                "(.groupBy(tailrace.window('ts', '10 seconds'), ...)) and a watermark (.withWatermark('ts', ...))"
            )
        assert made.time_column is not None
        time = Field(made.window.name, made.time_column.type)
        return Stream(made, made.fields, self.runtime, Watermark(time, Micros(0))).groupBy(*cols)

    groupby = groupBy

    def explain(self) -> None:
        """Prints the plan this has with default options; a started query's ``explain()`` shows its own."""
        closes = self.definition.window is not None and self.definition.watermark is not None
        mode = OutputMode.APPEND if closes else OutputMode.UPDATE
        print(self.runtime.explain(self.definition, mode, Options()))


def _flat(cols: tuple[str | AnyWindow | Sequence[str | AnyWindow], ...]) -> list[object]:
    if len(cols) == 1 and isinstance(cols[0], list | tuple):
        return list(cols[0])
    return list(cols)


def _aggregates(expr: object) -> list[Aggregate]:
    if isinstance(expr, Aggregate):
        return [expr]
    if isinstance(expr, dict):
        unknown = [name for name in expr.values() if name not in aggregates.BY_NAME]
        if unknown:
            raise AnalysisError(f"agg: there is no aggregate {unknown[0]!r}; there are {', '.join(aggregates.BY_NAME)}")
        return [aggregates.BY_NAME[name](column) for column, name in expr.items()]
    if callable(expr):
        raise AnalysisError(f"agg: {expr!r} is a function, not an aggregate: call it, for example tailrace.count()")
    raise AnalysisError(
        f"agg takes Tailrace's aggregates, but got {expr!r} ({type(expr).__name__}): use tailrace.max('price') in "
        f"place of pyspark.sql.functions.max('price')"
    )


def _check_time(column: Field, where: str) -> None:
    if not column.type.is_time:
        raise AnalysisError(
            f"{where}: event time must be a timestamp, but column {column.name!r} is a {column.type}: cast it before "
            f"tailrace.stream(...), for example df.withColumn({column.name!r}, "
            f"F.col({column.name!r}).cast('timestamp'))"
        )


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise AnalysisError(
                f"two output columns would be called {name!r} (names differ by more than case): the output is "
                f"{', '.join(names)}. Give one another name with .alias(...)"
            )
        seen[name.lower()] = name
