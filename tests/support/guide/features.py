"""The table of ``docs/how-to/coming-from-spark.md``: every stateful feature, who takes it, and why not Tailrace.

``python tests/support/guide/features.py`` writes it, and a test compares it. A verdict is what ``tailrace.writeStream``
and Spark's own check of streaming plans say of a query that uses the feature; nothing is run. That the rows are Spark's
is for the tests that run queries on both.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

import tailrace as tr
from support.docs.pages import DOCS
from support.session import session_builder
from tailrace.spark.expressions.catalyst import ON_SPARK

PAGE = DOCS / "how-to/coming-from-spark.md"
_BEGIN, _END = "<!-- the table: written by a test -->\n", "<!-- the end of the table -->\n"
_SCHEMA = "k bigint, ts timestamp, v bigint, d double, text string, gap string, flag boolean"
Build = Callable[["Streams"], DataFrame]


@dataclass(frozen=True)
class Streams:
    """Two streams with a watermark, one without, a table."""

    rows: DataFrame
    others: DataFrame
    unmarked: DataFrame
    table: DataFrame


@dataclass(frozen=True)
class Feature:
    name: str
    build: Build
    mode: str = "append"
    writer: Callable[[Any], Any] = lambda writer: writer


def _windowed(*aggregates: Column) -> Build:
    return lambda all_: all_.rows.groupBy(F.window("ts", "1 minute"), "k").agg(*aggregates)


def _grouped(*keys: Any) -> Build:
    return lambda all_: all_.rows.groupBy(*keys).agg(F.count("*").alias("n"))


def _sql(text: str) -> Build:
    def build(all_: Streams) -> DataFrame:
        all_.rows.createOrReplaceTempView("feature_rows")
        return all_.rows.sparkSession.sql(text)

    return build


_RANGE = "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval 1 hour"


def _joined(how: str, condition: str = _RANGE) -> Build:
    return lambda all_: all_.rows.alias("a").join(all_.others.alias("b"), F.expr(condition), how)


def _counts(rows: DataFrame, minutes: int = 1) -> DataFrame:
    return rows.groupBy(F.window("ts", f"{minutes} minutes"), "k").count()


class RunningCount(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from rows


def _last(_: Any, frames: Iterator[pd.DataFrame], __: Any) -> Iterator[pd.DataFrame]:
    yield from frames


def _mean(values: pd.Series) -> float:
    return float(values.mean())


def _aggregates() -> dict[str, list[Column]]:
    return {
        "count, sum, avg, min, max": [F.count("v"), F.sum("v"), F.avg("v"), F.min("text"), F.max("d")],
        "count_if, bool_and, bool_or, every": [F.count_if("flag"), F.bool_and("flag"), F.expr("some(flag)")],
        "min_by, max_by": [F.min_by("text", "v"), F.max_by("text", "v")],
        "max_by of several rows": [F.expr("max_by(text, v, 3)")],
        "structs in max, max_by and collect_list": [
            F.max(F.struct("v", "text")),
            F.max_by(F.struct("v", "d"), F.struct("v", "text")),
            F.collect_list(F.struct("v", "text")),
        ],
        "stddev, variance, in samples and populations": [
            F.stddev("d"),
            F.stddev_pop("d"),
            F.variance("d"),
            F.var_pop("v"),
        ],
        "median, percentile": [F.median("v"), F.expr("percentile(v, 0.9)")],
        "collect_list, collect_set": [F.collect_list("v"), F.collect_set("text")],
        "FILTER (WHERE ...)": [F.expr("sum(v) FILTER (WHERE d > 1)")],
        "expressions of aggregates": [(F.sum("v") / F.count("*") + 1).alias("x")],
        "count(DISTINCT ...), sum(DISTINCT ...)": [F.count_distinct("v"), F.sum_distinct("v")],
        "first, last, any_value": [F.first("v")],
        "approx_count_distinct": [F.approx_count_distinct("k")],
        "percentile_approx": [F.percentile_approx("v", 0.5)],
        "corr, covar_samp, covar_pop": [F.corr("v", "d")],
        "skewness, kurtosis": [F.skewness("d")],
        "mode": [F.mode("v")],
        "bit_and, bit_or, bit_xor": [F.bit_and("v")],
        "try_sum, try_avg": [F.try_sum("v")],
        "listagg, string_agg": [F.expr("listagg(text, ',')")],
        "regr_slope and its like": [F.regr_slope("v", "d")],
        "hll_sketch_agg and other sketches": [F.hll_sketch_agg("v")],
        "functions of pandas": [F.pandas_udf(_mean, "double")("d")],
    }


def features() -> dict[str, tuple[Feature, ...]]:
    """By what they are about. Columns of PySpark need a session: so it is a function."""
    return {
        "Groups and windows": (
            Feature("groups without a window", _grouped("k"), "update"),
            Feature("groups without a window, all of them", _grouped("k"), "complete"),
            Feature("groups of expressions", _grouped(F.upper("text"), F.col("v") % 10), "update"),
            Feature("all rows in one group", _grouped(), "update"),
            Feature("tumbling windows", _grouped(F.window("ts", "1 minute"), "k")),
            Feature("tumbling windows, updated", _grouped(F.window("ts", "1 minute"), "k"), "update"),
            Feature(
                "sliding windows, with an offset", _grouped(F.window("ts", "10 minutes", "5 minutes", "1 minute"), "k")
            ),
            Feature("session windows", _grouped(F.session_window("ts", "5 minutes"), "k")),
            Feature("session windows, a gap of each row", _grouped(F.session_window("ts", F.col("gap")), "k")),
            Feature("the event time itself as a group", _grouped("ts", "k")),
            Feature(
                "HAVING, and expressions above", lambda a: _counts(a.rows).where("count > 3").select("k", "window.end")
            ),
            Feature("complete mode in order", lambda a: a.rows.groupBy("k").count().orderBy("count"), "complete"),
            Feature("rollup, cube, grouping sets", lambda a: a.rows.rollup("k", "text").count(), "update"),
            Feature(
                "pivot, with its values", lambda a: a.rows.groupBy("k").pivot("text", ["a", "b"]).count(), "update"
            ),
            Feature("doubles as keys", _grouped("d"), "update"),
        ),
        "Aggregates": tuple(Feature(name, _windowed(*columns)) for name, columns in _aggregates().items()),
        "Duplicates": (
            Feature("dropDuplicates", lambda a: a.rows.dropDuplicates(["k"])),
            Feature("dropDuplicates with the event time", lambda a: a.rows.dropDuplicates(["k", "ts"])),
            Feature("dropDuplicatesWithinWatermark", lambda a: a.rows.dropDuplicatesWithinWatermark(["k"])),
            Feature("distinct", lambda a: a.rows.select("k", "ts").distinct()),
            Feature("SELECT DISTINCT", _sql("SELECT DISTINCT k FROM feature_rows"), "update"),
        ),
        "Joins of streams": (
            Feature("inner, with a range of time", _joined("inner")),
            Feature("inner, for ever", _joined("inner", "a.k = b.k")),
            Feature("left outer", _joined("left")),
            Feature("right outer", _joined("right")),
            Feature("full outer", _joined("full")),
            Feature("left semi", _joined("left_semi")),
            Feature("left anti", _joined("left_anti")),
            Feature("without equal columns", _joined("inner", "b.ts >= a.ts")),
            Feature(
                "on windows",
                lambda a: a.rows.select(F.window("ts", "1 minute"), "k").join(
                    a.others.select(F.window("ts", "1 minute"), "k"), ["window", "k"]
                ),
            ),
            Feature("of a stream with a table", lambda a: a.rows.join(a.table, "k")),
            Feature("of an operator's rows with a table", lambda a: _counts(a.rows).join(a.table, "k")),
        ),
        "Several operators": (
            Feature(
                "windows of windows",
                lambda a: _counts(a.rows).groupBy(F.window(F.window_time("window"), "1 hour")).agg(F.max("count")),
            ),
            Feature("duplicates, then windows", lambda a: _counts(a.rows.dropDuplicates(["k", "ts"]))),
            Feature("union of streams, then windows", lambda a: _counts(a.rows.union(a.others))),
            Feature(
                "join, then windows",
                lambda a: _counts(_joined("inner")(a).select(F.col("a.ts").alias("ts"), F.col("a.k"))),
            ),
            Feature(
                "windows of two streams, joined",
                lambda a: _counts(a.rows).join(_counts(a.others), ["window", "k"], "inner"),
            ),
            Feature("union of operators' rows", lambda a: _counts(a.rows).union(_counts(a.others))),
            Feature("a limit of rows", lambda a: a.rows.limit(10)),
        ),
        "Functions of a key's rows": (
            Feature(
                "transformWithStateInPandas",
                lambda a: a.unmarked.groupBy("k").transformWithStateInPandas(
                    RunningCount(), "n bigint", "Update", "None"
                ),
                "update",
            ),
            Feature(
                "transformWithState",
                lambda a: a.unmarked.groupBy("k").transformWithState(RunningCount(), "n bigint", "Update", "None"),
                "update",
            ),
            Feature(
                "applyInPandasWithState",
                lambda a: a.unmarked.groupBy("k").applyInPandasWithState(
                    _last, _SCHEMA, "n bigint", "Update", GroupStateTimeout.NoTimeout
                ),
                "update",
            ),
        ),
        "Triggers and sinks": (
            Feature(
                "trigger(processingTime=...)", _grouped("k"), "update", lambda w: w.trigger(processingTime="1 second")
            ),
            Feature("trigger(availableNow=True)", _grouped("k"), "update", lambda w: w.trigger(availableNow=True)),
            Feature("trigger(once=True)", _grouped("k"), "update", lambda w: w.trigger(once=True)),
            Feature("trigger(continuous=...)", _grouped("k"), "update", lambda w: w.trigger(continuous="1 second")),
            Feature("trigger(realTime=...)", _grouped("k"), "update", lambda w: w.trigger(realTime="5 minutes")),
            Feature("foreachBatch", _grouped("k"), "update", lambda w: w.foreachBatch(lambda *_: None)),
            Feature("foreach", _grouped("k"), "update", lambda w: w.foreach(lambda _: None)),
            *(
                Feature(f"format({name!r})", _windowed(F.count("*")), "append", lambda w, name=name: w.format(name))
                for name in ("parquet", "memory", "console", "noop", "kafka", "delta", "iceberg", "hudi")
            ),
        ),
    }


def table(spark: SparkSession) -> str:
    streams = _streams(spark)
    lines = []
    for group, members in features().items():
        lines += [f"\n### {group}\n\n", "| feature | mode | in Spark | `tr.writeStream` |\n|---|---|---|---|\n"]
        lines += [_line(feature, streams) for feature in members]
    return "".join(lines) + "\n"


def page_with(text: str) -> str:
    """The page, with this table in the place of the one that it has."""
    before, rest = PAGE.read_text(encoding="utf-8").split(_BEGIN)
    return before + _BEGIN + text + _END + rest.split(_END)[1]


def _line(feature: Feature, streams: Streams) -> str:
    frame = feature.build(streams)
    taken = _spark_takes(frame, feature.mode)
    reason = why_spark(feature.writer(tr.writeStream(frame).outputMode(feature.mode)))
    other = "Spark" if taken else "refused"
    verdict = "Tailrace" if reason is None else f"{other}: {reason}"
    cells = (feature.name, feature.mode, "yes" if taken else "refused", verdict)
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |\n"


def why_spark(writer: Any) -> str | None:
    """What the writer of a plain query says before it is started: None where Tailrace runs it."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        writer.explain()
    mark, _, reason = shown.getvalue().strip().partition(": ")
    return without_place(reason) if mark == ON_SPARK else None


def without_place(reason: str) -> str:
    """Without the line of the program that it names."""
    return re.sub(r" \(at .*\)$", "", reason)


def _spark_takes(frame: DataFrame, mode: str) -> bool:
    jvm: Any = SparkContext._jvm
    jdf: Any = frame._jdf
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(
            jdf.queryExecution().analyzed(), getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.title())()
        )
    except PySparkException:
        return False
    return True


def _streams(spark: SparkSession) -> Streams:
    def stream() -> DataFrame:
        return spark.readStream.schema(_SCHEMA).parquet(tempfile.mkdtemp())

    rows, others = (stream().withWatermark("ts", "10 minutes") for _ in range(2))
    return Streams(rows, others, stream(), spark.createDataFrame([(1, "a")], "k bigint, about string"))


if __name__ == "__main__":
    PAGE.write_text(page_with(table(session_builder("local[1]").getOrCreate())), encoding="utf-8")
