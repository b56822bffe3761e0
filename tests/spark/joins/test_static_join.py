"""A stream joined with a static table, through Spark: the rows that Spark would join, then Tailrace's operators."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.queries.join_query import Kept, run
from support.queries.simple import SCHEMA, SECOND, batches
from tailrace.testing import ScriptedSource
from tailrace.testing.compare import rows_of

NAMES = {0: "zero", 1: "one", 2: "two", 5: None}
"""Keys of the stream are 0 to 6, and null."""
KINDS = {"zero": "even", "two": "even"}


def frame(spark: SparkSession, path: Path, epochs: int = 4) -> Any:
    source = ScriptedSource(path / "in", SCHEMA)
    source.add(batches(epochs))
    return source.stream(spark)


def table(spark: SparkSession, **columns: list[Any]) -> Any:
    return spark.createDataFrame(pa.table(columns))


def test_rows_meet_tables_before_they_are_windowed(spark: SparkSession, tmp_path: Path) -> None:
    """An inner join with a table in Parquet files, which has a key twice, then a left outer join."""
    keys = [*NAMES, 2]
    table(spark, k=keys, name=[NAMES[key] for key in keys]).write.parquet(str(tmp_path / "names"))
    kinds = table(spark, NAME=list(KINDS), kind=list(KINDS.values()))
    stream = tr.stream(frame(spark, tmp_path)).withWatermark("ts", "5 seconds")
    met = stream.join(spark.read.parquet(str(tmp_path / "names")), "K").join(kinds, ["name"], "LEFT")
    assert met.columns == ["name", "k", "ts", "v", "kind"]
    counted = met.groupBy(tr.window("ts", "4 seconds"), "kind").agg(tr.count().alias("n"), tr.max("v").alias("top"))
    kept = run(counted, tmp_path / "check")
    groups: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    wanted: list[Counter[str]] = []
    newest, closed = 0, 0
    for each in batches(4):
        for row in rows_of(each):
            for _ in range(keys.count(row["k"])):
                # By the watermark of what has met the table: rows that did not are gone before it.
                newest = max(newest, row["ts"])
                start = row["ts"] // (4 * SECOND) * 4 * SECOND
                if start + 4 * SECOND > closed:
                    groups[start, KINDS.get(NAMES[row["k"]] or "")].append(row["v"])
        closed = newest - 5 * SECOND
        done = [key for key in groups if key[0] + 4 * SECOND <= closed]
        lists = [(key, groups.pop(key)) for key in done]
        wanted.append(
            Counter(repr(((at, at + 4 * SECOND), kind, len(values), max(values))) for (at, kind), values in lists)
        )
    assert any(wanted)
    kept.check(wanted)


@pytest.mark.long
@pytest.mark.parametrize(("how", "there"), [("left_semi", True), ("leftanti", False)])
def test_a_table_may_choose_rows(spark: SparkSession, tmp_path: Path, how: str, there: bool) -> None:
    chosen = tr.stream(frame(spark, tmp_path)).join(table(spark, k=[1, 1, 2], v=[7, 8, 9]), "k", how)
    assert chosen.columns == ["k", "ts", "v"]
    kept = run(chosen.groupBy().agg(tr.sum("v").alias("total")), tmp_path / "check", Kept(), "update")
    total, wanted = 0, []
    for each in batches(4):
        total += sum(row["v"] for row in rows_of(each) if (row["k"] in (1, 2)) == there)
        wanted.append(Counter([repr((total,))]))
    kept.check(wanted)


def test_tables_that_cannot_be_joined_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    read = frame(spark, tmp_path, 1)
    stream = tr.stream(read)
    names = table(spark, k=[1], name=["one"])

    def refused(error: str, other: Any, on: Any = "k", how: Any = "inner") -> None:
        with pytest.raises(tr.AnalysisError, match=error):
            stream.join(other, on, how)

    refused("streaming DataFrame: wrap it in tailrace.stream", read)
    refused("both the stream and the table have V, .* rename or drop them", table(spark, k=[1], V=[2]))
    refused("in the table: there is no column 'v'", names, "v")
    refused("in the stream: there is no column 'name'", names, ["k", "name"])
    refused("how must be one of inner, left, .* but is 'right'", names, how="right")
    refused("but is None", names, how=None)
    refused("a static DataFrame, but got dict: make one", {"k": 1})
    refused("both the stream and the table have k", names, names["k"] == 1)
