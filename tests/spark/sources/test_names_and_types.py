"""Names and types of outputs, and the reading of durations, against Spark's own analysis. Runs no job."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from py4j.java_gateway import get_field
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.duration import parse_duration
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.plan.physical import plan_relation
from tailrace.types import DataType, Field

COLUMNS = {
    "ts": "timestamp",
    "t": "tinyint",
    "s": "smallint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "d5": "decimal(5,0)",
    "d18": "decimal(18,6)",
    "d30": "decimal(30,10)",
    "d38": "decimal(38,38)",
    "d36": "decimal(38,0)",
    "text": "string",
    "b": "boolean",
    "day": "date",
    "n": "timestamp_ntz",
    "raw": "binary",
}
NUMBERS = ("t", "s", "i", "l", "f", "d", "d5", "d18", "d30", "d38", "d36")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items()))


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        *((function, NUMBERS) for function in ("sum", "avg", "mean", "stddev", "stddev_samp")),
        *((function, NUMBERS) for function in ("stddev_pop", "var_pop", "var_samp", "variance", "sum_distinct")),
        *((function, tuple(COLUMNS)) for function in ("count", "min", "max", "first", "last")),
        *((function, tuple(COLUMNS)) for function in ("count_distinct", "collect_set", "approx_count_distinct")),
        *((function, ("b",)) for function in ("bool_and", "bool_or")),
    ],
)
def test_names_and_types_are_sparks(frame: DataFrame, function: str, columns: tuple[str, ...]) -> None:
    theirs, ours = ([getattr(module, function)(column) for column in columns] for module in (F, tr))
    check(frame, ours, theirs)


def test_names_and_types_with_more_arguments_are_sparks(frame: DataFrame) -> None:
    def calls(of: ModuleType) -> list[Any]:
        return [
            of.count_distinct("i", "text"),
            of.count_distinct("d30", "b", "raw"),
            of.approx_count_distinct("text", 0.02),
            of.min_by("day", "i"),
            of.max_by("text", "d30"),
            of.first("n", True),
            *(of.approx_percentile(column, 0.25) for column in ("t", "l", "f", "d18", "day", "ts", "n")),
            *(of.approx_percentile("i", share, 500) for share in (0.0, 0, 1.0, 0.999)),
            of.approx_percentile("d", [0.1, 1.0, 0]),
            of.percentile_approx("d5", (0.5,), 200),
        ]

    check(frame, calls(tr), calls(F))


def check(frame: DataFrame, ours: list[Any], theirs: list[Column]) -> None:
    schema = tuple(Field(name, DataType(type_)) for name, type_ in COLUMNS.items())
    stream = Stream(frame, schema, RecordingRuntime()).withWatermark("ts", "1 second")
    outputs = plan_relation(stream.agg(*ours).source, OutputMode.UPDATE, Options()).operator.outputs
    expected = [(field.name, field.dataType.simpleString()) for field in frame.agg(*theirs).schema]
    assert [(output.name, output.type.name) for output in outputs] == expected


@pytest.mark.parametrize(
    "text",
    ["10 seconds", "1 minute 30 seconds", "interval 5 hours", "1.5 seconds", "1.123456789 seconds", ".5 seconds",
     "1. second", "- 1 second", "+1 second", "2 weeks -1 day", "1  WEEK", "3 milliseconds 4 microseconds",
     "1 second 1 second", "10 sec", "10s", "1.5 minutes", "1 nanosecond", "", "interval", "1.1234567891 seconds",
     "1e3 seconds", "1 second -", "-1.5 seconds", "1 secondss", "1 s", "10\tseconds", "1 month"],
)  # fmt: skip
def test_durations_are_read_as_spark_reads_them(spark: SparkSession, text: str) -> None:
    try:
        ours: int | None = parse_duration(text, "it", zero_ok=True, negative_ok=True)
    except AnalysisError:
        ours = None
    # The parser that `window` and triggers use; month-long intervals are refused by those after it.
    parser = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.util.IntervalUtils  # type: ignore[union-attr]
    try:
        interval = parser.fromIntervalString(text)
        months, days, micros = (get_field(interval, part) for part in ("months", "days", "microseconds"))
        theirs = None if months else days * 86_400_000_000 + micros
    except PySparkException:
        theirs = None
    assert ours == theirs
