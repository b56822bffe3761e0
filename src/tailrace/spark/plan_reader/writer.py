"""``tailrace.writeStream``: a plain PySpark query as it is, on Tailrace where it can be, and else on Spark.

A writer takes PySpark's calls. Spark's own writer gets each of them at once, so that a wrong call fails where it is
made, with Spark's error; what the query is run by is decided when it is started. Not thread-safe, as any builder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter as SparkWriter
from pyspark.sql.streaming import StreamingQuery as SparkQuery

from tailrace.api.checks.writer import FILE_FORMATS, OWN_FORMATS
from tailrace.api.options import CHECKPOINT_LOCATION, OPTIONS, STATE_LOCATION, WatermarkRule, default_state_location
from tailrace.api.relations import OutputMode
from tailrace.api.runtime import StreamingQuery
from tailrace.api.table_options import TABLE_FORMATS, option_of_table
from tailrace.api.writer import DataStreamWriter
from tailrace.commit.plan_file import read_plan as read_plan_file
from tailrace.env.stores.location import open_store
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import ON_SPARK, ExplainedQuery
from tailrace.spark.expressions.places import at_place, call_site
from tailrace.spark.plan_reader.checkpoint import checkpoint_of, passing_checkpoint
from tailrace.spark.plan_reader.reader import read_plan
from tailrace.spark.query.runtime import SparkRuntime

_FORMATS = (*FILE_FORMATS, *OWN_FORMATS, *TABLE_FORMATS)
_OURS = frozenset(each.name.lower() for each in OPTIONS if each.name != CHECKPOINT_LOCATION)
_log = logging.getLogger("tailrace")


def writeStream(df: DataFrame, fallback: bool = True) -> PlainWriter:
    """Writes the rows of a streaming DataFrame as ``df.writeStream`` does, with Tailrace's operators in Spark's place.

    The query is PySpark's own, unchanged. What Tailrace cannot run in a way that gives Spark's rows runs on Spark, and
    the reason is logged and stands in ``explain()``; with ``fallback=False`` it is raised instead.

    >>> from pyspark.sql import functions as F
    >>> rows = spark.readStream.schema("ts timestamp, channel string").parquet("/data/bids")
    >>> counts = rows.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "1 minute"), F.upper("channel")).count()
    >>> writer = tr.writeStream(counts).outputMode("append").format("parquet")  # and .start(...)
    """
    return PlainWriter(df, fallback)


class PlainWriter:
    """PySpark's ``DataStreamWriter``, for a query that Tailrace may run."""

    def __init__(self, df: DataFrame, fallback: bool) -> None:
        self._frame = df
        self._site = call_site()
        self._fallback = fallback
        self._spark = SparkWriter(df)
        self._calls: list[Callable[[DataStreamWriter], object]] = []
        self._options: dict[str, str] = {}
        self._refusals: list[str] = []
        self._mode = "append"
        self._name: str | None = None
        self._format = ""

    def outputMode(self, outputMode: str) -> PlainWriter:
        self._spark.outputMode(outputMode)
        self._mode = outputMode
        return self

    def format(self, source: str) -> PlainWriter:
        self._check_format(source)
        self._format = source.lower()
        return self._both("format", source)

    def option(self, key: str, value: Any) -> PlainWriter:
        if str(key).lower() not in _OURS:
            self._spark.option(key, value)
        self._options[str(key).lower()] = str(value)
        self._calls.append(lambda writer: writer.option(key, value))
        return self

    def options(self, **options: Any) -> PlainWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: Any) -> PlainWriter:
        return self._both("partitionBy", *cols)

    def queryName(self, queryName: str) -> PlainWriter:
        self._name = queryName
        return self._both("queryName", queryName)

    def trigger(self, **kwargs: Any) -> PlainWriter:
        return self._both("trigger", **kwargs)

    def foreachBatch(self, func: Callable[..., object]) -> PlainWriter:
        self._format = "foreachbatch"
        return self._both("foreachBatch", func)

    def foreach(self, f: Any) -> PlainWriter:
        self._format = "foreach"
        return self._both("foreach", f)

    def clusterBy(self, *cols: str) -> PlainWriter:
        self._spark.clusterBy(*cols)
        self._refusals.append("clusterBy: Tailrace writes files; use partitionBy for folders, or foreachBatch")
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery | SparkQuery:
        """Starts the query, on Tailrace or on Spark."""
        self.options(**options)
        for name, value in (
            ("outputMode", outputMode),
            ("partitionBy", partitionBy),
            ("format", format),
            ("queryName", queryName),
        ):
            if value is not None:
                getattr(self, name)(value)
        try:
            return self._on_tailrace(path)
        except AnalysisError as error:
            refusal = self._check_fallback(error)
        return ExplainedQuery(self._spark.start(path), str(refusal))

    def _on_tailrace(self, path: str | None) -> StreamingQuery:
        writer, spark = self._tailrace_writer(), self._frame.sparkSession
        with ExitStack() as undo:
            checkpoint = checkpoint_of(spark, self._options, self._name) or passing_checkpoint(
                spark, self._format, undo
            )
            if checkpoint:
                writer.option(CHECKPOINT_LOCATION, checkpoint)
            query = writer.start(path)
            query.when_ended(undo.pop_all().close)
        return query

    def explain(self) -> None:
        """Prints the plan that Tailrace would run, or why Spark would run the query. Nothing is started."""
        try:
            print(self._tailrace_writer().plan_text())
        except AnalysisError as error:
            print(f"{ON_SPARK}: {self._with_place(error)}")

    def toTable(
        self, tableName: str, format: str | None = None, *args: Any, **kwargs: Any
    ) -> StreamingQuery | SparkQuery:
        """Starts the query: on Tailrace where the format's tables take an epoch by one transaction, else on Spark."""
        place = option_of_table((format or self._format).lower(), tableName)
        if place is not None:
            return self.option(*place).start(None, format, *args, **kwargs)
        error = AnalysisError(
            f"toTable({tableName!r}): Tailrace writes to no tables of this format; use foreachBatch, or a format whose "
            f"tables take an epoch by one transaction and have names: postgresql, dbapi, iceberg"
        )
        refusal = self._check_fallback(error)
        args = (format, *args)
        return ExplainedQuery(self._spark.toTable(tableName, *args, **kwargs), str(refusal))

    def _tailrace_writer(self) -> DataStreamWriter:
        if self._refusals:
            raise AnalysisError(self._refusals[0])
        read = read_plan(self._frame, OutputMode(self._mode.lower()))
        writer = DataStreamWriter(read.relation, SparkRuntime(self._frame.sparkSession))
        if read.by_watermark:
            writer.option("watermark", WatermarkRule.SPARK.value)  # unless the user says otherwise
        for call in self._calls:
            call(writer)
        same = read.unchanging and self._mode.lower() == "update"
        return writer.outputMode("append" if same else self._mode)

    def _check_fallback(self, error: AnalysisError) -> AnalysisError:
        """What stands in the way, with the place of it, or else of the query."""
        refusal = self._with_place(error)
        if not self._fallback:
            raise refusal from error
        self._check_state(refusal)
        _log.warning("the query runs on Spark, and not on Tailrace: %s", refusal)
        return refusal

    def _with_place(self, error: AnalysisError) -> AnalysisError:
        return at_place(error, lambda _: self._site)

    def _check_state(self, refusal: AnalysisError) -> None:
        """Spark would begin with an empty state where Tailrace has one."""
        checkpoint = checkpoint_of(self._frame.sparkSession, self._options, self._name)
        state = self._options.get(STATE_LOCATION.lower()) or (checkpoint and default_state_location(checkpoint))
        if state and read_plan_file(open_store(state)) is not None:
            raise AnalysisError(
                f"{refusal}. Spark could run the query, but not go on with its state, which is Tailrace's, in {state}: "
                f"undo the change, or start with a new {CHECKPOINT_LOCATION}"
            ) from refusal

    def _both(self, name: str, *args: Any, **kwargs: Any) -> PlainWriter:
        getattr(self._spark, name)(*args, **kwargs)
        self._calls.append(lambda writer: getattr(writer, name)(*args, **kwargs))
        return self

    def _check_format(self, source: str) -> None:
        if source.lower() not in _FORMATS:
            self._refusals.append(
                f"format {source!r}: Tailrace writes {', '.join(_FORMATS)}; use foreachBatch with a write that is "
                f"idempotent by epoch"
            )
