"""PySpark's per-key functions in a plain query: Spark's rows in Spark's epochs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries import processors as p
from support.queries.plain import PlainQuery, batches
from support.queries.processor_programs import PROCESSORS, RECORDED
from tailrace.spark.plan_reader.reader import read_plan

RESTARTED = ("initial state", "sessions with timers")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", PROCESSORS)
def test_rows_of_processors_are_those_that_spark_gave(spark: SparkSession, tmp_path: Path, name: str) -> None:
    mode, make = PROCESSORS[name]
    parts = (p.BATCHES[:3], p.BATCHES[3:]) if name in RESTARTED else (p.BATCHES,)
    found = p.run("plain", spark, tmp_path, make, mode, parts)
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    assert [list(map(repr, found[epoch])) for epoch in sorted(found)] == recorded


def test_keys_that_the_function_does_not_see(spark: SparkSession, tmp_path: Path) -> None:
    """A key that is an expression, with the name of a column; filters and expressions below and above."""

    def longest(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = pd.concat(frames)
        seen = ",".join(sorted(map(str, rows["text"].dropna().unique())))
        count = len(rows) + (state.get[0] if state.exists else 0)
        state.update((count,))
        columns = " ".join(rows.columns)
        yield pd.DataFrame({"low": [key[0]], "i": [key[1]], "n": [count], "seen": [f"{seen}; {columns}"]})

    def ask(rows: DataFrame) -> DataFrame:
        marked = rows.where("unique % 5 != 0").select("i", "text", "ts").withWatermark("ts", "5 seconds")
        grouped = marked.groupBy(F.lower("text").alias("TEXT"), "i")
        made = grouped.applyInPandasWithState(
            longest, "low string, i int, n bigint, seen string", "n bigint", "update", "NoTimeout"
        )
        return made.where("i > 0").select(F.upper("low").alias("up"), F.col("n") * 2, "seen")

    seed = random.randrange(2**32)
    print(f"seed {seed}")
    tables = [table.filter(table["i"].is_valid()) for table in batches(random.Random(seed))]
    assert PlainQuery(spark, tmp_path, tables, ask, "update").check() > 10


def test_windows_over_a_processors_own_event_time(spark: SparkSession, tmp_path: Path) -> None:
    """``eventTimeColumnName`` makes the output's event time, by which the windows behind it close."""

    def make(grouped: Any) -> DataFrame:
        schema = "at timestamp, who string, number bigint"
        made = grouped.transformWithState(p.Numbered(), schema, "Append", "EventTime", eventTimeColumnName="at")
        counts = made.groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("n"), F.sum("number"))
        return counts.select("window.start", "n", "sum(number)")

    found = p.run("plain", spark, tmp_path / "plain", make, "append", (p.BATCHES,))
    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, p.ROCKSDB)
    try:
        wanted = p.run("spark", spark, tmp_path / "spark", make, "append", (p.BATCHES,))
    finally:
        spark.conf.unset(provider)
    assert found == wanted and sum(map(len, wanted.values())) > 3


def test_what_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = p.ScriptedSource(tmp_path / "in", p.SCHEMA).stream(spark)

    def refused(grouped: Any, message: str, function: Any = p.hurried) -> None:
        made = grouped.applyInPandasWithState(function, p.OUTPUT, "n bigint", "Update", "NoTimeout")
        with pytest.raises(tr.AnalysisError, match=message):
            read_plan(made)

    refused(rows.select("k", F.array("v").alias("more")).groupBy("k"), "column 'more' is a array<bigint>")
    large = random.randbytes(2 << 20)
    refused(rows.groupBy("k"), "larger than a megabyte", lambda key, frames, state: iter((len(large),)))
