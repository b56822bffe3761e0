"""``writeStream``: where a stream's rows go and how the query runs, with PySpark's methods.

As in PySpark a writer is changed by its methods, which return it. Each method checks what it is given; ``start``
checks what only holds for all of it together. Not thread-safe, as any builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tailrace.api.checks.late_rows import late_sink
from tailrace.api.checks.writer import FILE_FORMATS, OWN_FORMATS, check_format, check_row_writer
from tailrace.api.columns import resolve
from tailrace.api.definition import (
    AvailableNow,
    Foreach,
    ForeachBatch,
    Format,
    Once,
    ProcessingTime,
    QueryDefinition,
    Sink,
    TableSink,
    Trigger,
)
from tailrace.api.duration import Duration, parse_duration
from tailrace.api.options import Options, parse_locations, parse_options, split_options
from tailrace.api.relations import OutputMode, Relation
from tailrace.api.runtime import Runtime, StreamingQuery
from tailrace.api.table_options import TABLE_FORMATS, option_of_table, parse_table_options
from tailrace.api.windows import CountWindow
from tailrace.errors import AnalysisError
from tailrace.ids import Micros

_FLAT_FORMATS = ("csv", "text")
_DEFAULT_FORMAT = "parquet"
_WITHOUT_EPOCHS = {
    "continuous": "has no epochs, and Spark's continuous mode has no state",
    "realTime": "gives rows while an epoch runs, and Tailrace gives them, exactly once, when it is done",
}
_SOON = (
    "use processingTime='0 seconds' for an epoch as soon as the one before is done. tailrace.writeStream(df) leaves a "
    "query with this trigger to Spark"
)
OptionValue = str | int | float | bool | None


class DataStreamWriter:
    """Collects what :meth:`start` needs."""

    def __init__(self, relation: Relation, runtime: Runtime) -> None:
        self._relation = relation
        self._runtime = runtime
        self._mode = OutputMode.APPEND
        self._own_sink: ForeachBatch | Foreach | None = None
        self._late: Sink | None = None
        self._format: str | None = None
        self._options: dict[str, str] = {}
        self._partition_by: tuple[str, ...] = ()
        self._name: str | None = None
        self._trigger: Trigger = ProcessingTime(Micros(0))

    def outputMode(self, outputMode: str) -> DataStreamWriter:
        """``append``: rows that are final, as those of closed windows. ``update``: the rows that changed.

        ``complete``: the rows of all groups of an aggregation, each epoch, for sinks that replace what they have. No
        watermark drops state then, and an epoch costs as much as the state is large.
        """
        try:
            self._mode = OutputMode(outputMode.strip().lower() if isinstance(outputMode, str) else outputMode)
        except ValueError:
            raise AnalysisError(f"outputMode must be 'append', 'update' or 'complete', but is {outputMode!r}") from None
        return self

    def foreachBatch(self, func: Callable[..., object]) -> DataStreamWriter:
        """Calls ``func(DataFrame, epoch)`` once an epoch, and again with the same rows when an epoch is replayed."""
        if not callable(func):
            raise AnalysisError(f"foreachBatch takes a function of (DataFrame, epoch), but got {func!r}")
        self._own_sink = ForeachBatch(func)
        return self

    def lateRows(
        self,
        func: Callable[..., object] | None = None,
        *,
        format: str | None = None,
        path: str | None = None,
        **options: OptionValue,
    ) -> DataStreamWriter:
        """A second sink, for rows that come too late for every window, or have no event time.

        ``func(DataFrame, epoch)`` as for :meth:`foreachBatch`, or one of Spark's file formats and a path, where every
        epoch gets a folder of its own. An epoch that is replayed gives the same rows again. The rows have the columns
        that the query reads, and ``tailrace_reason``; those of a join also ``tailrace_side``.
        """
        self._late = late_sink(func, format, path, options)
        return self

    def foreach(self, f: object) -> DataStreamWriter:
        """Calls ``f(row)``, or an object's ``open(partition, epoch)``, ``process(row)`` and ``close(error)``, in tasks.

        As in PySpark, and as slow: Python runs once a row. Where the object has ``open``, a partition of an epoch has
        the same rows whenever it comes, so that ``open`` may return False for one that was written before.
        """
        check_row_writer(f)
        self._own_sink = Foreach(f)
        return self

    def format(self, source: str) -> DataStreamWriter:
        """One of Spark's formats of files by name, ``postgresql``, ``dbapi``, ``kafka``, ``delta``, ``iceberg``, or
        ``memory``, ``console``, ``noop``."""
        if not isinstance(source, str) or not source.strip():
            raise AnalysisError(f"format takes a format's name, for example 'parquet', but got {source!r}")
        name = source.strip()
        known = name.lower() in (*FILE_FORMATS, *OWN_FORMATS, *TABLE_FORMATS)
        self._format = name.lower() if known else name
        return self

    def option(self, key: str, value: OptionValue) -> DataStreamWriter:
        """One of Tailrace's options, or one of the sink's format. ``None`` unsets it."""
        if not isinstance(key, str) or not key:
            raise AnalysisError(f"option takes a name and a value, but the name is {key!r}")
        # Names differ without regard to case, so that a later spelling replaces an earlier one, as in Spark.
        self._options = {name: old for name, old in self._options.items() if name.lower() != key.lower()}
        if isinstance(value, bool):
            self._options[key] = "true" if value else "false"
        elif value is not None:
            self._options[key] = str(value)
        return self

    def options(self, **options: OptionValue) -> DataStreamWriter:
        """Several of :meth:`option`."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def queryName(self, queryName: str) -> DataStreamWriter:
        """The query's name in progress reports, and of the table where the format is ``memory``."""
        if not isinstance(queryName, str) or not queryName.strip():
            raise AnalysisError(f"queryName takes a name that is not empty, but got {queryName!r}")
        self._name = queryName
        return self

    def trigger(
        self,
        *,
        processingTime: Duration | None = None,
        once: bool | None = None,
        continuous: Duration | None = None,
        availableNow: bool | None = None,
        realTime: Duration | None = None,
    ) -> DataStreamWriter:
        """``processingTime="1 second"``, ``availableNow=True``, or ``once=True``: all that is there, in one epoch."""
        for other, interval in (("continuous", continuous), ("realTime", realTime)):
            if interval is not None:
                raise AnalysisError(f"trigger: {other}={interval!r} {_WITHOUT_EPOCHS[other]}: {_SOON}")
        if [processingTime, availableNow, once].count(None) != 2:
            raise AnalysisError(
                "trigger takes exactly one of processingTime='1 second', availableNow=True and once=True"
            )
        if processingTime is not None:
            self._trigger = ProcessingTime(parse_duration(processingTime, "trigger: processingTime", zero_ok=True))
        elif availableNow is True:
            self._trigger = AvailableNow()
        elif once is True:
            self._trigger = Once()
        else:
            name, value = ("once", once) if availableNow is None else ("availableNow", availableNow)
            raise AnalysisError(f"trigger: {name} must be True where it is given, but is {value!r}")
        return self

    def partitionBy(self, *cols: str | list[str]) -> DataStreamWriter:
        """Folders by these output columns, where the format writes files."""
        names = cols[0] if len(cols) == 1 and isinstance(cols[0], list) else cols
        self._partition_by = tuple(resolve(name, self._relation.fields, "partitionBy").name for name in names)
        window = self._relation.window
        if window is not None and not isinstance(window, CountWindow) and window.name in self._partition_by:
            raise AnalysisError(
                f"partitionBy: {window.name!r} is a struct, and folders need plain columns: use foreachBatch and make "
                f"a column of {window.name}.start in it"
            )
        return self

    def clusterBy(self, *cols: str | list[str]) -> NoReturn:
        """Refused: see the message."""
        raise AnalysisError(
            "clusterBy is for tables that keep their rows together by these columns, and Tailrace writes files: use "
            "partitionBy for folders, or foreachBatch with a write to such a table that is idempotent by epoch"
        )

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: OptionValue,
    ) -> StreamingQuery:
        """Starts the query into a table by its name. Tables have names in ``postgresql``, ``dbapi`` and ``iceberg``;
        one of ``delta`` is a path, as in Spark's SQL: ``toTable("delta.`/data/counts`")``."""
        place = option_of_table((format or self._format or "").lower(), tableName)
        if place is None:
            raise AnalysisError(
                f"toTable({tableName!r}) needs a format whose tables take an epoch by one transaction: "
                f".format('postgresql'), 'dbapi' or 'iceberg'. Spark's own tables would have a replayed epoch twice: "
                f"use foreachBatch with a write that is idempotent by epoch, or format('parquet') with a path"
            )
        self.option(*place)
        return self.start(None, format, outputMode, partitionBy, queryName, **options)

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: OptionValue,
    ) -> StreamingQuery:
        """Checks the whole and starts the query."""
        self.options(**options)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        if path is not None:
            self.option("path", str(path))
        return self._runtime.start(self._definition())

    def plan_text(self) -> str:
        """The plan that this would run; where it is written to may still be missing."""
        options, _, _ = self._checked_options()
        return self._runtime.explain(self._relation, self._mode, options)

    def _checked_options(self) -> tuple[Options, dict[str, str], dict[str, str]]:
        """Of the query; ours as they are written, and those of the sink."""
        refusal = self._relation.refusal(self._mode)
        if refusal is not None:
            raise AnalysisError(refusal)
        ours, rest = split_options(self._options)
        return parse_options(ours), ours, rest

    def _definition(self) -> QueryDefinition:
        options, ours, rest = self._checked_options()
        sink = self._sink(rest)
        checkpoint, state = parse_locations(ours)
        return QueryDefinition(
            self._relation, self._mode, sink, options, self._trigger, self._name, checkpoint, state, self._late
        )

    def _sink(self, rest: dict[str, str]) -> Sink:
        if self._own_sink is None:
            return self._format_sink(rest)
        call = "foreachBatch" if isinstance(self._own_sink, ForeachBatch) else "foreach"
        if self._format is not None and self._format.lower() != call.lower():
            raise AnalysisError(
                f"both {call} and format({self._format!r}) are set, and a query has one sink: remove one"
            )
        if rest or self._partition_by:
            extra = ", ".join([*rest, *(["partitionBy"] if self._partition_by else [])])
            raise AnalysisError(f"with {call} nothing reads {extra}: remove it, or use it inside your function")
        return self._own_sink

    def _format_sink(self, rest: dict[str, str]) -> Format | TableSink:
        path = next((value for name, value in rest.items() if name.lower() == "path"), None)
        name = self._format
        if name is None and path is None:
            raise AnalysisError(
                "the query has no sink: add .foreachBatch(function), or .format('parquet') and a path, or "
                ".format('console')"
            )
        name = name or _DEFAULT_FORMAT
        check_format(name, "writeStream", tables=True)
        if name in TABLE_FORMATS:
            return self._table_sink(name, rest)
        if self._mode is OutputMode.COMPLETE and name not in OWN_FORMATS:
            raise AnalysisError(
                f"format {name!r} adds each epoch's rows to those before, and outputMode 'complete' gives all rows in "
                f"every epoch: use foreachBatch and overwrite there, rows.write.mode('overwrite')..., or format "
                f"'memory' or 'console', or outputMode 'append' or 'update'"
            )
        if name in FILE_FORMATS and not path:
            raise AnalysisError(f"format {name!r} needs a path: .start('/path/of/the/output') or .option('path', ...)")
        if name == "memory" and self._name is None:
            raise AnalysisError("format 'memory' needs the name of its table: .queryName('results')")
        window = self._relation.window
        if name in _FLAT_FORMATS and window is not None and not isinstance(window, CountWindow):
            raise AnalysisError(
                f"format {name!r} cannot hold the struct column {window.name!r}: use 'parquet', 'orc' or 'json', or "
                f"foreachBatch where you select {window.name}.start and {window.name}.end"
            )
        if self._partition_by and name in OWN_FORMATS:
            raise AnalysisError(f"format {name!r} writes no folders: remove partitionBy")
        others = tuple(sorted((key, value) for key, value in rest.items() if key.lower() != "path"))
        return Format(name, path, others, self._partition_by)

    def _table_sink(self, name: str, rest: dict[str, str]) -> TableSink:
        if self._partition_by:
            raise AnalysisError(f"format {name!r} writes no folders: remove partitionBy")
        options = parse_table_options(name, rest)
        refusal = options.refusal(self._mode)
        if refusal is not None:
            raise AnalysisError(f"format {name!r}: {refusal}")
        return TableSink(name, options)
