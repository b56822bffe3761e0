"""A stream and the columns it is grouped by: the step between ``groupBy`` and what is made of the groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tailrace.api import aggregates
from tailrace.api.aggregates import Aggregate
from tailrace.api.checks.process import keyed_process
from tailrace.api.checks.stateful_processor import (
    check_grouping,
    output_mode_of,
    stateful_processing,
    time_mode_of,
)
from tailrace.api.checks.top_n import ranking
from tailrace.api.checks.window_function import check_columns, check_window_function
from tailrace.api.columns import Column, ColumnOrName, Named, resolve
from tailrace.api.processors import ProcessorCode, StatefulProcessing, TimeMode
from tailrace.api.relations import Aggregation, OutputMode, StateTtl, Watermark, WindowFunction
from tailrace.api.runtime import Projected
from tailrace.api.windows import AnyWindow, CountWindow, Window, has_columns
from tailrace.errors import AnalysisError
from tailrace.types import Field

if TYPE_CHECKING:
    from tailrace.api.stream import Stream

STORES = ("RMW", "AAR", "AUR")


@dataclass(frozen=True)
class GroupedStream:
    """A stream and the columns it is grouped by.

    ``given``: the groups as the user named them, of the stream ``ungrouped``. Where PySpark's Columns are among them,
    ``stream`` has a column for each.
    """

    stream: Stream
    keys: tuple[Field, ...]
    window: AnyWindow | None
    window_position: int
    given: tuple[object, ...]
    ungrouped: Stream
    chosen_store: str | None = None

    def store(self, pattern: str) -> GroupedStream:
        """Keep the state of what follows in this store, ``RMW``, ``AAR`` or ``AUR``, and not in the usual one.

        The answer is the same in every store that is allowed; ``explain()`` says which is used and why. One that cannot
        give it is refused when the query is planned.

        >>> prices = bids.groupBy(tr.window("ts", "1 hour"), "auction").store("AUR").agg(tr.median("price"))
        """
        name = pattern.strip().upper() if isinstance(pattern, str) else pattern
        if name not in STORES:
            raise AnalysisError(
                f"store takes one of {', '.join(STORES)}, but got {pattern!r}: see docs/explanation/stores.md"
            )
        return replace(self, chosen_store=name)

    def agg(self, *exprs: Aggregate | Column | dict[str, str]) -> Stream:
        """One output column for each aggregate; ``{"price": "max"}`` is understood as in PySpark.

        PySpark's own functions may stand beside Tailrace's, of any expressions. What is made of aggregates, as in
        ``F.max("price") / F.count("*")``, Spark makes of the rows of each epoch.

        >>> from pyspark.sql import functions as F
        >>> spread = bids.groupBy(F.col("auction") % 8).agg(F.max("price") - F.min("price"), tr.count())
        """
        wanted = [aggregate for expr in exprs for aggregate in _aggregates(expr)]
        if not wanted:
            raise AnalysisError("agg needs at least one aggregate: .agg(tailrace.count(), tailrace.max('price'))")
        aggregates = [each for each in wanted if isinstance(each, Aggregate) and not _of_columns(each)]
        if not has_columns(self.given) and len(aggregates) == len(wanted):
            return self._aggregated(aggregates, self.stream.runtime.ansi)
        grouped, projected = projected_groups(self.ungrouped, self.given, wanted)
        grouped = replace(grouped, chosen_store=self.chosen_store)
        made = grouped._aggregated(projected.aggregates, projected.ansi)
        if projected.finish is None:
            return made
        return made.through(*projected.finish)

    def _aggregated(self, wanted: Sequence[Aggregate], ansi: bool) -> Stream:
        aggregates = (*(self._resolve(aggregate) for aggregate in wanted), *self._event_time())
        return self._made(self.stream, window_position=self.window_position, aggregates=aggregates, ansi=ansi)

    def _made(self, stream: Stream, **own: Any) -> Stream:
        """An aggregation of the groups, with what is its ``own``."""
        aggregation = Aggregation(
            source=stream.source,
            schema=stream.schema,
            watermark=stream.watermark,
            window=self.window,
            keys=self.keys,
            store=self.chosen_store,
            state_ttl=self._ttl(),
            **own,
        )
        return stream.derived(aggregation)

    def applyInWindow(
        self,
        func: Callable[..., object],
        schema: object,
        columns: Sequence[ColumnOrName] | None = None,
        perKey: bool = False,
    ) -> Stream:
        """Calls ``func`` with the rows of a window, a ``pyarrow.Table``; it returns one with the columns of ``schema``.

        A call gets a whole window, all of its rows on one server, however many they are. The output is the window's
        column and then the function's. ``columns``: what it reads; all by default. It must depend on nothing else.

        With ``perKey`` there are group columns beside the window, and the function treats each of these keys by itself.
        So every server calls it with keys that it has, in a large window with some of them (about 32 MB of rows), each
        key complete.

        Sessions and windows by count are each key's own. So a call gets many of them at once, whole: its table has the
        window's column too, and the function gives it back with each row that it makes of that window.

        >>> def best(rows):
        ...     return rows.filter(pc.equal(rows["n"], pc.max(rows["n"])))
        >>> counts = bids.groupBy(tr.window("ts", "1 hour"), "auction").agg(tr.count().alias("n"))
        >>> busiest = counts.groupBy("window").applyInWindow(best, "auction bigint, n bigint")
        """
        stream = self.stream
        check_window_function(func, self.window, self.keys, perKey)
        fields = stream.runtime.fields(schema)
        if not fields:
            raise AnalysisError("applyInWindow: the schema has no column")
        wanted = [field.name for field in stream.schema] if columns is None else list(columns)
        stream, wanted = self._read(wanted, "applyInWindow: columns")
        if not wanted:
            raise AnalysisError("applyInWindow: columns is empty, and a table without columns has no rows: name one")
        read = tuple(resolve(name, stream.schema, "applyInWindow: columns") for name in wanted)
        check_columns(self.window, self.keys, read, fields)
        function = WindowFunction(func, fields, read)
        return self._made(stream, window_position=0, aggregates=(), ansi=stream.runtime.ansi, function=function)

    def process(
        self,
        func: Callable[..., object],
        schema: object,
        state: object,
        timers: str | None = None,
        columns: Sequence[ColumnOrName] | None = None,
        timeMode: str = "eventTime",
        eventTime: str | None = None,
    ) -> Stream:
        """Calls ``func`` with the rows of an epoch and the state of their keys; it returns output and new state.

        ``func(rows, state)`` gets two ``pyarrow.Table``: the rows (group columns, event time, ``columns``: all by
        default), by key and then event time; and one row for each of their keys, with the columns of ``state``, null
        where the key is new. It returns a pair: a table with the columns of ``schema``, and the state of the keys that
        stay. A key that it was given and does not return is forgotten.

        ``timers``: a timestamp column of the state. When the watermark has reached it (``timeMode="processingTime"``:
        when an epoch begins at or after it), ``func(rows, state, due)`` gets the key in ``state`` too, whether it has
        rows or not, and ``due``, a boolean array, says of each row of ``state`` whether its time has come.

        Large epochs are given in several calls, a key always in one: treat every key by itself. ``eventTime``: the
        column of ``schema`` that is the event time of the output, for windows over it.

        >>> def first_of_each(rows, state):
        ...     ...
        >>> bidders = bids.groupBy("bidder").process(first_of_each, "bidder bigint", state="seen boolean")
        """
        stream, names = self._read(columns, "process: columns")
        made = keyed_process(
            stream.source,
            stream.schema,
            stream.watermark,
            self.keys,
            self.window,
            self.chosen_store,
            stream.ttl,
            func,
            stream.runtime.fields(schema),
            stream.runtime.fields(state),
            timers=timers,
            time_mode=timeMode,
            columns=names,
            time_name=eventTime,
        )
        return stream.derived(made)

    def transformWithState(
        self,
        statefulProcessor: object,
        outputStructType: object,
        outputMode: str,
        timeMode: str,
        initialState: object = None,
        eventTimeColumnName: str = "",
    ) -> Stream:
        """PySpark's ``transformWithState``: a ``StatefulProcessor`` as it is, called with ``Row`` objects.

        Its Python runs key by key, while the state of all keys of a batch comes and goes at once. ``process``, which
        sees whole batches, is many times as fast.

        >>> from pyspark.sql import Row
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Count(StatefulProcessor):
        ...     def init(self, handle):
        ...         self.n = handle.getValueState("n", "n bigint")
        ...
        ...     def handleInputRows(self, key, rows, timerValues):
        ...         before = self.n.get() or (0,)
        ...         self.n.update((before[0] + len(list(rows)),))
        ...         yield Row(bidder=key[0], n=self.n.get()[0])
        >>> counts = bids.groupBy("bidder").transformWithState(Count(), "bidder bigint, n bigint", "Append", "None")
        """
        return self._processed(
            statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName, pandas=False
        )

    def transformWithStateInPandas(
        self,
        statefulProcessor: object,
        outputStructType: object,
        outputMode: str,
        timeMode: str,
        initialState: object = None,
        eventTimeColumnName: str = "",
    ) -> Stream:
        """PySpark's ``transformWithStateInPandas``: as ``transformWithState``, with pandas frames for rows."""
        return self._processed(
            statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName, pandas=True
        )

    def applyInPandasWithState(
        self,
        func: Callable[..., object],
        outputStructType: object,
        stateStructType: object,
        outputMode: str,
        timeoutConf: str,
    ) -> Stream:
        """PySpark's ``applyInPandasWithState``: a function of a key, its rows as pandas frames, and its group state.

        >>> def count(key, frames, state):
        ...     n = sum(map(len, frames)) + (state.getOption or (0,))[0]
        ...     state.update((n,))
        ...     yield pd.DataFrame({"bidder": [key[0]], "n": [n]})
        >>> counts = bids.groupBy("bidder").applyInPandasWithState(
        ...     count, "bidder bigint, n bigint", "n bigint", "update", "NoTimeout"
        ... )
        """
        title, stream = "applyInPandasWithState", self.stream
        check_grouping(self.window, self.chosen_store, stream.ttl, title)
        watermarked = stream.watermark is not None
        code, time_mode = stream.runtime.group_state(
            func, outputStructType, stateStructType, timeoutConf, watermarked=watermarked
        )
        mode = output_mode_of(outputMode, title)
        return stream.derived(self._per_key(code, mode, time_mode, timeouts=time_mode is not TimeMode.NONE))

    def _processed(
        self,
        processor: object,
        output: object,
        output_mode: str,
        time_mode: str,
        initial: object,
        time_name: str,
        *,
        pandas: bool,
    ) -> Stream:
        title, stream = "transformWithStateInPandas" if pandas else "transformWithState", self.stream
        check_grouping(self.window, self.chosen_store, stream.ttl, title)
        mode, clock = output_mode_of(output_mode, title), time_mode_of(time_mode, title)
        code = stream.runtime.processor(processor, output, clock, pandas=pandas)
        if initial is not None:
            code = replace(code, initial=stream.runtime.initial_state(initial, self.keys, code.title))
        return stream.derived(self._per_key(code, mode, clock, time_name=time_name))

    def _per_key(self, code: ProcessorCode, mode: OutputMode, clock: TimeMode, **more: Any) -> StatefulProcessing:
        stream = self.stream
        return stateful_processing(stream.source, stream.schema, stream.watermark, self.keys, code, mode, clock, **more)

    def topN(
        self,
        n: int,
        orderBy: ColumnOrName | Sequence[ColumnOrName],
        ascending: bool | Sequence[bool] = False,
        columns: Sequence[ColumnOrName] | None = None,
        rank: str = "rank",
    ) -> Stream:
        """The ``n`` best rows of each group: the group columns, ``columns`` (all others by default), and the rank.

        ``orderBy`` and ``ascending`` are as in PySpark's ``orderBy``, largest first by default; null is smallest. A
        Column may say its order itself (``F.asc("price")``); without ``columns`` an expression is in the output too. Of
        equal rows the one with the earlier event time is better, then the one with the smaller other columns. In
        ``update`` mode all rows of each group whose best rows changed are given: a sink puts them in place of what it
        has by the group columns and the rank. With a window, ``append`` gives its best rows when it closes.

        Of sessions, windows by count and your own all rows are kept until they close, and ``update`` gives the best of
        each that rows came for, changed or not.

        >>> best = bids.groupBy("auction").topN(10, "price")
        """
        usual = "RMW" if self.window is None or isinstance(self.window, Window) else "AUR"
        if self.chosen_store not in (None, usual):
            raise AnalysisError(f"topN keeps its rows in {usual} and not in {self.chosen_store}: remove .store(...)")
        stream, names = self._read(columns, "topN: columns")
        stream, *order = ordering(stream, orderBy, ascending)
        groups = (self.keys, self.window, self.window_position)
        asked = (n, *order, names, rank)
        made = ranking(stream.source, stream.schema, stream.watermark, stream.brought_window, *groups, *asked)
        return stream.derived(replace(made, state_ttl=self._ttl()))

    def count(self) -> Stream:
        """Rows of each group, in a column ``count``."""
        return self.agg(aggregates.BY_NAME["count"]("*").alias("count"))

    def sum(self, *cols: ColumnOrName) -> Stream:
        return self._each("sum", cols)

    def min(self, *cols: ColumnOrName) -> Stream:
        return self._each("min", cols)

    def max(self, *cols: ColumnOrName) -> Stream:
        return self._each("max", cols)

    def avg(self, *cols: ColumnOrName) -> Stream:
        return self._each("avg", cols)

    def mean(self, *cols: ColumnOrName) -> Stream:
        return self._each("avg", cols)

    def _each(self, function: str, cols: tuple[ColumnOrName, ...]) -> Stream:
        if not cols:
            raise AnalysisError(f"{function} needs the columns' names: .{function}('price')")
        return self.agg(*(aggregates.BY_NAME[function](col) for col in cols))

    def _read(self, columns: Any, where: str) -> tuple[Stream, Any]:
        """The stream with a column for each Column among those that are read, and their names."""
        if not isinstance(columns, list | tuple):
            return self.stream, columns
        stream, names = self.stream.named(columns, where)
        lost = [key.name for key in self.keys if key not in stream.schema]
        if lost:
            raise AnalysisError(f"{where}: {lost[0]!r} is a group column: give yours another name with .alias(...)")
        return stream, names

    def _event_time(self) -> tuple[Aggregate, ...]:
        """The output column with the event time of windows by count, where it was asked for."""
        if not isinstance(self.window, CountWindow) or self.window.event_time is None:
            return ()
        assert self.stream.watermark is not None
        return (aggregates.BY_NAME["max"](self.stream.watermark.column.name).alias(self.window.event_time),)

    def _ttl(self) -> StateTtl | None:
        """That of the stream, where keys are kept for ever: elsewhere it is refused, see ``Stream.derived``."""
        return self.stream.ttl if self.window is None or isinstance(self.window, CountWindow) else None

    def _resolve(self, aggregate: Aggregate) -> Aggregate:
        fields = [resolve(column, self.stream.schema, aggregate.name) for column in aggregate.names]
        brought = self.stream.brought_window
        for field in fields:
            if brought is not None and field.name == brought.name and not isinstance(brought, CountWindow):
                raise AnalysisError(
                    f"{aggregate.name}: column {field.name!r} is the window that rows come from and cannot be "
                    f"aggregated: group by it, groupBy({field.name!r}), or by a longer one, "
                    f"tailrace.window({field.name!r}, '1 hour')"
                )
        resolved = replace(aggregate, columns=tuple(field.name for field in fields))
        resolved.function.check(resolved.name, fields)
        timed = self.window is not None and not isinstance(self.window, CountWindow)
        if resolved.function.needs_time and self.stream.watermark is None and not timed:
            raise AnalysisError(
                f"{aggregate.name}: {aggregate.function.name} is by event time (then by value), so that a replay "
                f"gives the same row, and this stream has no event time: name it with "
                f".withWatermark('ts', '10 seconds') before groupBy, or use min or max"
            )
        return resolved


def projected_groups(
    stream: Stream, groups: Sequence[object], aggregates: Sequence[object] = (), *, whole: bool = False
) -> tuple[GroupedStream, Projected]:
    """The groups, of a stream that has a column for each expression among them and among the aggregates."""
    watermark = stream.watermark
    time = None if watermark is None else watermark.column.name
    made = stream.runtime.projected(stream.source, stream.schema, time, groups, aggregates, whole=whole)
    if watermark is not None and made.time is not None:
        watermark = Watermark(Field(made.time, watermark.column.type), watermark.delay)
    projected = replace(stream, source=made.source, schema=made.schema, watermark=watermark)
    return projected.groupBy(*made.groups), made


def ordering(stream: Stream, order_by: Any, ascending: Any) -> tuple[Stream, Any, Any]:
    """The stream with a column for each Column that rows are ordered by, their names, and whether smaller is better."""
    given = list(order_by) if isinstance(order_by, list | tuple) else [order_by]
    if not any(isinstance(each, Column) for each in given):
        return stream, order_by, ascending
    stream, found = stream.with_columns(given, "topN: orderBy", beside=True)
    each_way = [ascending] * len(found) if isinstance(ascending, bool) else ascending
    if isinstance(each_way, list | tuple) and len(each_way) == len(found):
        own = [each.ascending if isinstance(each, Named) else None for each in found]
        each_way = [said if said is not None else usual for said, usual in zip(own, each_way, strict=True)]
    return stream, [each.name if isinstance(each, Named) else each for each in found], each_way


def _of_columns(aggregate: Aggregate) -> bool:
    return len(aggregate.names) < len(aggregate.columns)


def _aggregates(expr: object) -> Sequence[Aggregate | Column]:
    if isinstance(expr, Aggregate):
        return [expr]
    if isinstance(expr, Column):
        return [expr]
    if isinstance(expr, dict):
        unknown = [name for name in expr.values() if name not in aggregates.BY_NAME]
        if unknown:
            raise AnalysisError(f"agg: there is no aggregate {unknown[0]!r}; there are {', '.join(aggregates.BY_NAME)}")
        return [aggregates.BY_NAME[name](column) for column, name in expr.items()]
    if callable(expr):
        raise AnalysisError(f"agg: {expr!r} is a function, not an aggregate: call it, for example tailrace.count()")
    raise AnalysisError(
        f"agg takes aggregates, such as tailrace.max('price') or pyspark.sql.functions.max('price'), but got {expr!r} "
        f"({type(expr).__name__})"
    )
