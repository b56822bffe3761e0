"""A stream in Tailrace's hands: frozen, each step checked when it is called, before Spark sees anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.api.aggregates import Aggregate
from tailrace.api.checks.dedup import deduplication
from tailrace.api.checks.grouping import group_key, group_window, same_window
from tailrace.api.checks.join import JoinInput, key_columns, stream_join
from tailrace.api.checks.lookup import lookup_join
from tailrace.api.checks.ttl import check_ttl_used, dedup_ttl, state_ttl
from tailrace.api.columns import Column, ColumnOrName, Named, check_names, check_time, resolve, shown_call
from tailrace.api.duration import Duration, parse_duration
from tailrace.api.grouped import GroupedStream, projected_groups
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode, PassThrough, Relation, SparkHop, StateTtl, Watermark
from tailrace.api.runtime import Runtime
from tailrace.api.tables import LookupTable
from tailrace.api.windows import AnyWindow, has_columns
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
    ttl: StateTtl | None = None

    @property
    def columns(self) -> list[str]:
        """The columns' names, in order."""
        return [field.name for field in self.schema]

    @property
    def relation(self) -> Relation | None:
        """What made these rows, where that was Tailrace."""
        return self.source if isinstance(self.source, Relation) else None

    @property
    def brought_window(self) -> AnyWindow | None:
        """The window that rows come with, from a windowed operator upstream."""
        return None if self.relation is None else self.relation.window

    def derived(self, relation: Relation) -> Stream:
        """The stream of what an operator makes of this one."""
        check_names([field.name for field in relation.fields])
        check_ttl_used(self.ttl, relation)
        return replace(self, source=relation, schema=relation.fields, watermark=relation.event_time, ttl=None)

    def withWatermark(self, eventTime: ColumnOrName, delayThreshold: Duration) -> Stream:
        """Rows may come up to ``delayThreshold`` behind the largest event time; later, their windows are closed."""
        if self.relation is not None:
            raise AnalysisError(
                "withWatermark: these rows have the event time and the watermark of what they were made of: call it "
                "right after tailrace.stream(...); of a join, name the event time of its rows with eventTime='at'"
            )
        if self.watermark is not None:
            raise AnalysisError(
                f"withWatermark: the stream already has a watermark, on {self.watermark.column.name!r}, and takes one "
                f"only: remove one of the two calls"
            )
        stream, (name,) = self.named([eventTime], "withWatermark")
        column = resolve(name, stream.schema, "withWatermark")
        check_time(column, "withWatermark")
        delay = parse_duration(delayThreshold, "withWatermark: delayThreshold", zero_ok=True)
        return replace(stream, watermark=Watermark(column, delay))

    def withStateTtl(self, ttl: Duration, timeMode: str = "eventTime") -> Stream:
        """The next operator forgets a key that was not updated for ``ttl``; if it comes again, it starts anew.

        For aggregates and ``topN`` without a window, windows by count (a key that is forgotten loses its open window),
        ``process``, and ``dropDuplicates``, which remembers a key so long after the row that it has given.
        ``timeMode``: ``eventTime``, by the watermark, or ``processingTime``, by the time at which an epoch begins.

        >>> counts = bids.withStateTtl("1 hour").groupBy("bidder").agg(tr.count())
        """
        return replace(self, ttl=state_ttl(ttl, timeMode, self.watermark, self.ttl))

    def transform(self, function: Callable[..., object], *args: object, **kwargs: object) -> Stream:
        """The stream through a function from DataFrame to DataFrame, as PySpark's ``DataFrame.transform``.

        Stateless: it keeps nothing from row to row. Before the first operator it is the same as transforming before
        ``tailrace.stream(...)``, but that what lies before and after each one is a point from which state that is not
        in memory may be asked for ahead of its rows; the function is called again when a query starts. Behind an
        operator Spark applies it to the rows that the operator gives in each epoch.

        >>> dear = bids.transform(lambda frame: frame.where("price > 100")).groupBy("auction").agg(tr.count())
        """
        given = (lambda frame: function(frame, *args, **kwargs)) if args or kwargs else function
        return self.through(given, "transform")

    def select(self, *cols: ColumnOrName | Sequence[ColumnOrName]) -> Stream:
        """PySpark's ``select``. As all that follows here, before, between or behind operators, as ``transform``.

        >>> from pyspark.sql import functions as F
        >>> hours = bids.select("auction", "price", "ts", F.hour("ts").alias("hour")).groupBy("hour").count()
        """
        return self.through(lambda rows: rows.select(*cols), shown_call("select", cols))

    def selectExpr(self, *expr: str | Sequence[str]) -> Stream:
        """PySpark's ``selectExpr``: columns as SQL writes them."""
        return self.through(lambda rows: rows.selectExpr(*expr), shown_call("selectExpr", expr))

    def where(self, condition: ColumnOrName) -> Stream:
        """The rows for which the condition holds, a Column or SQL's text.

        >>> busy = bids.where("price > 0").groupBy(tr.window("ts", "1 hour"), "auction").count().where("count > 10")
        """
        return self.through(lambda rows: rows.where(condition), shown_call("where", [condition]))

    filter = where

    def withColumn(self, colName: str, col: Column) -> Stream:
        """One more column, or another one in the place of that name."""
        return self.through(lambda rows: rows.withColumn(colName, col), shown_call("withColumn", [colName, col]))

    def withColumns(self, colsMap: Mapping[str, Column]) -> Stream:
        """Several of :meth:`withColumn`."""
        given = dict(colsMap)
        label = shown_call("withColumns", [part for pair in given.items() for part in pair])
        return self.through(lambda rows: rows.withColumns(given), label)

    def withColumnRenamed(self, existing: str, new: str) -> Stream:
        """A column by another name. A watermark on it stays."""
        label = shown_call("withColumnRenamed", [existing, new])
        return self.through(lambda rows: rows.withColumnRenamed(existing, new), label)

    def withColumnsRenamed(self, colsMap: Mapping[str, str]) -> Stream:
        """Several of :meth:`withColumnRenamed`."""
        given = dict(colsMap)
        label = shown_call("withColumnsRenamed", [part for pair in given.items() for part in pair])
        return self.through(lambda rows: rows.withColumnsRenamed(given), label)

    def drop(self, *cols: ColumnOrName) -> Stream:
        """Without these columns."""
        return self.through(lambda rows: rows.drop(*cols), shown_call("drop", cols))

    def alias(self, alias: str) -> Stream:
        """The stream by a name, for columns that are called ``alias.column``."""
        return self.through(lambda rows: rows.alias(alias), shown_call("alias", [alias]))

    def union(self, other: Stream) -> Stream:
        """The rows of both, columns by their place: of two streams as they are read, or of what operators made of them.

        Both need the same watermark, or none: that of two streams is best given behind their union.

        >>> both = bids.where("price > 100").union(bids.where("price <= 100")).groupBy("auction").count()
        """
        self._check_union(other, "union")
        return self._united(other, lambda rows, others: rows.union(others), "union")

    def unionByName(self, other: Stream, allowMissingColumns: bool = False) -> Stream:
        """As ``union``, columns by their names; with ``allowMissingColumns`` null where one side lacks one."""
        self._check_union(other, "unionByName")
        return self._united(other, lambda rows, others: rows.unionByName(others, allowMissingColumns), "unionByName")

    def _united(self, other: Stream, function: Callable[[Any, Any], object], label: str) -> Stream:
        if self.relation is not None and other.relation is not None:
            return self._behind(self.runtime.hop(self.relation, function, label, other.relation))
        others = self.runtime.rows(other.source)
        return self.through(lambda rows: function(rows, others), label)

    def _check_union(self, other: object, where: str) -> None:
        if not isinstance(other, Stream):
            raise AnalysisError(
                f"{where} takes another stream, but got a {type(other).__name__}: wrap it in tailrace.stream(...)"
            )
        if (self.relation is None) != (other.relation is None):
            raise AnalysisError(
                f"{where}: one side is a stream as it is read, and the other one is what an operator has made: unite "
                f"streams before operators, or what operators make behind them"
            )
        marks = [_mark(each, by_name=where != "union") for each in (self, other)]
        if marks[0] != marks[1]:
            raise AnalysisError(
                f"{where}: the watermarks of both sides differ, or are on other columns: call .withWatermark(...) "
                f"once, behind {where}"
            )

    def through(self, function: Callable[..., Any], label: str) -> Stream:
        """What a function of DataFrames makes of the rows, without a state. ``label``: the user's call."""
        if self.relation is not None:
            return self._behind(self.runtime.hop(self.relation, function, label))
        watermark = self.watermark
        time = None if watermark is None else watermark.column.name
        source, schema, kept = self.runtime.transformed(self.source, function, time, label)
        if watermark is not None:
            column = Field(kept or "", watermark.column.type)
            if column not in schema:
                raise AnalysisError(
                    f"{label}: the watermark is on {watermark.column.name!r}, and the rows behind it have no such "
                    f"column, or another type of it: keep it, or call withWatermark behind it"
                )
            watermark = Watermark(column, watermark.delay)
        return replace(self, source=source, schema=schema, watermark=watermark)

    def _behind(self, hop: Relation) -> Stream:
        check_names([field.name for field in hop.fields])
        return replace(self, source=hop, schema=hop.fields, watermark=hop.event_time)

    def pipe(self, function: Callable[..., Stream], *args: object, **kwargs: object) -> Stream:
        """The stream through a function from stream to stream, so that such functions can be chained.

        For operators that have no method here, and for steps of your own that several queries share.

        >>> from tailrace.operators.row_number import row_number
        >>> firsts = bids.pipe(row_number, "auction", limit=10)
        """
        made = function(self, *args, **kwargs)
        if not isinstance(made, Stream):
            raise AnalysisError(
                f"pipe: the function must give a stream, but gave a {type(made).__name__}; for a function from "
                f"DataFrame to DataFrame there is transform(...)"
            )
        return made

    def groupBy(self, *cols: ColumnOrName | AnyWindow | Sequence[ColumnOrName | AnyWindow]) -> GroupedStream:
        """Groups by columns and at most one window, of any kind. Without any: one group of all rows.

        A column is named, or is an expression of PySpark's; ``F.window`` and ``F.session_window`` are windows.

        Of windows that were aggregated, ``groupBy("window")`` brings together what has the same window, and
        ``tailrace.window("window", "1 hour")`` takes the last moment of a row's window as its event time, as Spark's
        ``window_time`` does.

        >>> from pyspark.sql import functions as F
        >>> counts = bids.groupBy(F.window("ts", "1 hour"), (F.col("price") % 10).alias("last digit")).count()
        """
        self._check_final("grouped again")
        read, given = self._read(), _flat(cols)
        if has_columns(given):
            named, _ = projected_groups(self, given, whole=True)
            return replace(named, given=tuple(given), ungrouped=self)
        keys: list[Field] = []
        window: AnyWindow | None = None
        window_position = 0
        for col in given:
            if isinstance(col, str) and (brought := same_window(col, read.schema, read.brought_window)) is not None:
                col = brought
            if not isinstance(col, AnyWindow):
                keys.append(group_key(col, self.schema))
            elif window is not None:
                raise AnalysisError(
                    "groupBy takes one window, but got two: aggregate by the shorter one in this query and by the "
                    "longer in another"
                )
            else:
                window = group_window(col, self.schema, self.watermark)
                window_position = len(keys)
        return GroupedStream(read, tuple(keys), window, window_position, tuple(given), self)

    groupby = groupBy

    def agg(self, *exprs: Aggregate | Column | dict[str, str]) -> Stream:
        """Aggregates all rows as one group."""
        return self.groupBy().agg(*exprs)

    def join(
        self,
        other: object,
        on: ColumnOrName | Sequence[ColumnOrName],
        how: str = "inner",
        *,
        within: tuple[Duration | None, Duration | None] | None = None,
        window: AnyWindow | None = None,
        validTo: str | None = None,
        ttl: Duration | None = None,
        eventTime: str | None = None,
    ) -> Stream:
        """Joins with another stream, a lookup table (``tailrace.table``), or a static DataFrame (then as Spark does).

        ``on``: columns that both have and that must be equal, or Columns that both can compute; with a static DataFrame
        also a condition, as in PySpark. ``how``: ``inner``, ``left_outer``, ``right_outer``, ``full_outer`` or
        ``left_semi``. Of two streams, at most one condition in time: ``within=(lower, upper)``, both
        inclusive, bounds the other's event time minus this one's; ``window`` takes pairs of one window; ``validTo``
        names a column of either side with the end of a row's validity, which begins at its event time. ``ttl``: forget
        a row so long after its time. ``eventTime``: name of an output column with the later of both event times, for a
        window over the pairs.

        >>> clicked = views.join(clicks, "ad", within=("0 seconds", "10 minutes"))
        >>> sold = offers.join(orders, "item", validTo="ends", eventTime="time")
        """
        given = key_columns(on)
        if isinstance(other, Stream):
            (left, keys), (right, _) = self._sides(other, given)
            sides = (
                JoinInput(left.source, left.schema, left.watermark),
                JoinInput(right.source, right.schema, right.watermark),
            )
            made = stream_join(
                *sides, keys, how, within=within, window=window, valid_to=validTo, ttl=ttl, time_name=eventTime
            )
            check_ttl_used(other.ttl, made)
            return self.derived(made)
        if any(asked is not None for asked in (within, window, validTo, ttl, eventTime)):
            raise AnalysisError(
                "join: within, window, validTo, ttl and eventTime are for two streams, and a table has no event time: "
                "remove them, or wrap the other side in tailrace.stream(...)"
            )
        if isinstance(other, LookupTable):
            self._check_final("joined with a table")
            left, keys = self.named(given, "join: on")
            left = left._read()
            read = JoinInput(left.source, left.schema, left.watermark)
            return self.derived(
                lookup_join(read, self.brought_window, other, self.runtime.table_fields(other), keys, how)
            )
        if self.relation is not None:
            raise AnalysisError(
                "join: a table joins the rows that a stream reads, not those that an operator has made: join it "
                "right after tailrace.stream(...), or in foreachBatch"
            )
        source, schema = self.runtime.enriched(self.source, other, given, how)
        return replace(self, source=source, schema=schema)

    def _sides(self, other: Stream, on: Sequence[object]) -> list[tuple[Stream, list[Any]]]:
        advice = (
            "each side computes it by itself, as a key. A condition over both sides is for plain queries, "
            "tailrace.writeStream(df); here, name what is equal, and bound the times with within=(...)"
        )
        try:
            sides = [each.named(on, "join: on") for each in (self, other)]
        except AnalysisError as error:
            raise AnalysisError(f"{error} In a join of two streams {advice}") from error
        for col, name in zip(on, sides[0][1], strict=True):
            if isinstance(col, Column) and resolve(name, sides[0][0].schema, "join").type.name == "boolean":
                raise AnalysisError(f"join: on: {name} is true or false, and in a join of two streams {advice}")
        return sides

    def dropDuplicates(self, subset: Sequence[ColumnOrName] | None = None) -> Stream:
        """The first row of each key, whole; ``subset``: the columns of the key, all by default.

        Without a watermark a key is remembered for ever. With one, rows at or before it are late and dropped; and where
        its column is among the keys, a key is forgotten once the watermark has reached it.
        """
        return self._deduplicate(subset, "dropDuplicates", within=False)

    drop_duplicates = dropDuplicates

    def dropDuplicatesWithinWatermark(self, subset: Sequence[ColumnOrName] | None = None) -> Stream:
        """As ``dropDuplicates``, but a key is forgotten once the watermark has reached its row's event time and delay.

        So rows of a key are dropped as long as their event times are less than the delay apart.
        """
        return self._deduplicate(subset, "dropDuplicatesWithinWatermark", within=True)

    def _deduplicate(self, subset: object, where: str, *, within: bool) -> Stream:
        self._check_final("deduplicated")

        def made(stream: Stream, keys: object) -> Stream:
            read = stream.source, stream.schema, stream.watermark, stream.brought_window
            relation = deduplication(*read, keys, where, within=within)
            return stream.derived(replace(relation, state_ttl=dedup_ttl(stream.ttl, within)))

        return self.by_keys(subset, where, made)

    def by_keys(self, cols: object, where: str, make: Callable[[Stream, Any], Stream]) -> Stream:
        """What an operator makes of the stream by keys, without columns that were computed for it alone."""
        if not isinstance(cols, list | tuple):
            return make(self._read(), cols)
        stream, found = self.with_columns(cols, where, beside=True)
        made = make(stream._read(), [_quoted(each.name) if isinstance(each, Named) else each for each in found])
        own = {each.name for each in found if isinstance(each, Named) and each.computed}
        kept = [_quoted(name) for name in made.columns if name not in own]
        return made.through(lambda rows: rows.select(*kept), where) if own else made

    def named(self, cols: Sequence[object], where: str) -> tuple[Stream, list[Any]]:
        """The stream with a column for each Column among these, and the names of all. ``where``: the user's call."""
        stream, found = self.with_columns(cols, where)
        return stream, [_quoted(each.name) if isinstance(each, Named) else each for each in found]

    def with_columns(self, cols: Sequence[object], where: str, *, beside: bool = False) -> tuple[Stream, list[Any]]:
        """As ``named``, but each Column becomes a ``Named``. ``beside``: none takes the place of another column."""
        columns = [each for each in cols if isinstance(each, Column)]
        if not columns:
            return self, list(cols)
        source, schema, named = self.runtime.with_columns(self.source, self.schema, columns, where, beside=beside)
        watermark = source.event_time if isinstance(source, Relation) else self.watermark
        if watermark is not None and watermark.column not in schema:
            raise AnalysisError(
                f"{where}: the watermark is on {watermark.column.name!r}, and a column of another type takes its name: "
                f"give that one another with .alias(...)"
            )
        found = iter(named)
        stream = replace(self, source=source, schema=schema, watermark=watermark)
        return stream, [next(found) if isinstance(each, Column) else each for each in cols]

    @property
    def writeStream(self) -> DataStreamWriter:
        """Where the rows go, as in PySpark."""
        return DataStreamWriter(self._made(), self.runtime)

    def explain(self) -> None:
        """Prints the plan this has with default options; a started query's ``explain()`` shows its own."""
        relation = self._made()
        mode = OutputMode.UPDATE if relation.refusal(OutputMode.APPEND) else OutputMode.APPEND
        print(self.runtime.explain(relation, mode, Options()))

    def _read(self) -> Stream:
        """The stream as an operator reads it: servers exchange an operator's rows, and leave out columns themselves."""
        hop = self.source
        return replace(self, source=hop.inputs[0]) if isinstance(hop, SparkHop) and hop.chooses else self

    def _made(self) -> Relation:
        return PassThrough(self.source, self.schema) if self.relation is None else self.relation

    def _check_final(self, done: str) -> None:
        if self.relation is None or self.relation.refusal(OutputMode.APPEND) is None:
            return
        raise AnalysisError(
            f"an aggregation can be {done} once its rows are final: give it a window "
            "(.groupBy(tailrace.window('ts', '10 seconds'), ...)) and a watermark (.withWatermark('ts', ...))"
        )


def _mark(stream: Stream, *, by_name: bool) -> tuple[str | int, Micros] | None:
    """Where the event time of a union's side is, and the delay of its watermark."""
    mark = stream.watermark
    if mark is None:
        return None
    return mark.column.name if by_name else stream.schema.index(mark.column), mark.delay


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _flat(cols: Sequence[object]) -> list[object]:
    if len(cols) == 1 and isinstance(cols[0], list | tuple):
        return list(cols[0])
    return list(cols)
