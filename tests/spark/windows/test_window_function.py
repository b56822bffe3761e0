"""A user's function of a window's rows: right answers, the same on replay, and errors that name operator and epoch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.queries.engines import tailrace_stream
from support.queries.simple import SCHEMA, WINDOWED, batches
from tailrace.testing import ScriptedSource, expected


def best(rows: pa.Table) -> pa.Table:
    """All rows with the largest count: ties stay."""
    return rows.filter(pc.equal(rows["n"], pc.max(rows["n"]))).select(["k", "n"])


def counts(spark: SparkSession, path: Path, tables: tuple[pa.Table, ...]) -> Any:
    source = ScriptedSource(path / "in", SCHEMA)
    source.add(tables)
    return tailrace_stream(source.stream(spark), WINDOWED)


def run(stream: Any, checkpoint: Path, mode: str = "append") -> dict[int, list[dict[str, Any]]]:
    output: dict[int, list[dict[str, Any]]] = {}

    def save(batch: DataFrame, epoch: int) -> None:
        output[epoch] = batch.toArrow().to_pylist()

    writer = stream.writeStream.outputMode(mode).foreachBatch(save).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return output


def rows(found: dict[int, list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    return sorted(
        (e, str(r["window"]["start"]), -1 if r["k"] is None else r["k"], r["n"]) for e in found for r in found[e]
    )


def test_the_rows_with_the_most_of_each_window(spark: SparkSession, tmp_path: Path) -> None:
    tables = batches(10)
    stream = counts(spark, tmp_path, tables).groupBy("window").applyInWindow(best, "k bigint, n bigint")
    assert stream.columns == ["window", "k", "n"]
    found = run(stream, tmp_path / "check")
    wanted: dict[int, list[dict[str, Any]]] = {}
    for epoch in expected(spark, WINDOWED, tables):
        by_window: dict[str, list[dict[str, Any]]] = {}
        for row in epoch.rows.to_pylist():
            by_window.setdefault(str(row["window"]), []).append(row)
        wanted[epoch.epoch] = [
            row for group in by_window.values() for row in group if row["n"] == max(r["n"] for r in group)
        ]
    assert rows(found) == rows(wanted)
    assert len(rows(found)) > 5


def test_the_source_rows_by_key(spark: SparkSession, tmp_path: Path) -> None:
    def spans(table: pa.Table) -> pa.Table:
        assert table.column_names == ["k", "ts", "v"]
        times = table["ts"].cast(pa.int64())
        assert times.to_pylist() == sorted(times.to_pylist())
        made = table.append_column("t", times).group_by("k").aggregate([("t", "min"), ("t", "max"), ("v", "sum")])
        return made.rename_columns({"t_min": "first", "t_max": "last", "v_sum": "total"})

    source = ScriptedSource(tmp_path / "in", SCHEMA)
    tables = batches(8)
    source.add(tables)
    stream = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "5 seconds")
        .groupBy(tr.window("ts", "10 seconds", "5 seconds"), "k")
        .applyInWindow(spans, "k bigint, total bigint, first bigint, last bigint", perKey=True)
    )
    found = {(str(r["window"]), r["k"]): r["total"] for rows in run(stream, tmp_path / "check").values() for r in rows}
    wanted = {
        (str(row["window"]), row["k"]): row["total"]
        for epoch in expected(spark, WINDOWED, tables)
        for row in epoch.rows.to_pylist()
    }
    assert found == wanted and found


def test_a_function_that_fails_is_named_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def divides(table: pa.Table) -> pa.Table:
        return pa.table({"k": [1 // 0], "n": [0]})

    def other_columns(table: pa.Table) -> pa.Table:
        return pa.table({"key": ["a"]})

    def no_table(table: pa.Table) -> Any:
        return 7

    def leaves(table: pa.Table) -> pa.Table:
        sys.exit(3)

    tables = batches(10)
    stream = counts(spark, tmp_path, tables).groupBy("window")
    for function, message in (
        (divides, r"operator aggregate-2, epoch \d+: function divides raised ZeroDivisionError(.|\n)*1 // 0"),
        (
            other_columns,
            r"function other_columns gave a table of key string, and was declared to give k int64, n int64",
        ),
        (leaves, r"function leaves raised SystemExit: 3"),
        (no_table, r"function no_table gave a int, and must give a pyarrow.Table"),
    ):
        with pytest.raises(tr.UserFunctionError, match=message):
            run(stream.applyInWindow(function, "k bigint, n bigint"), tmp_path / "check")
    mended = run(stream.applyInWindow(best, "k bigint, n bigint"), tmp_path / "check")
    complete = run(stream.applyInWindow(best, "k bigint, n bigint"), tmp_path / "another")
    assert rows(mended) == [row for row in rows(complete) if row[0] >= min(mended)]
    assert rows(mended)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.applyInWindow(7, "k bigint"), "takes a function, but got 7"),
        (lambda g: g.applyInWindow(best, "k bigin"), "cannot be read"),
        (lambda g: g.applyInWindow(best, "k map<string,int>"), "is a map<string,int>, which is not supported"),
        (lambda g: g.applyInWindow(best, 7), "DDL string"),
        (lambda g: g.applyInWindow(best, "k bigint", columns=["nn"]), "no column 'nn'"),
        (lambda g: g.applyInWindow(best, "k bigint", columns=[]), "columns is empty"),
    ],
)
def test_bad_calls_are_refused(spark: SparkSession, tmp_path: Path, call: Any, message: str) -> None:
    grouped = counts(spark, tmp_path, batches(1)).groupBy("window")
    with pytest.raises(tr.AnalysisError, match=message):
        call(grouped)
