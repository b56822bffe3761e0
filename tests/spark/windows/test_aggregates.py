"""Every aggregate and window kind gives Spark's own answer, epoch by epoch, on random input.

The oracle is a Spark batch query over the rows that an independent model of lateness lets through. Few queries with
much inside each: a query costs seconds before its first row. Overflow of sums has tests of its own, below: here ANSI
mode is off, so that integers wrap, in any order, to the same number.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support import random_columns as values
from support.queries.engines import ask_tailrace, check, run, spark_stream, tailrace_stream
from support.queries.random_queries import SECOND, Case, Timing, cases, make_batches, value_columns
from tailrace.testing import Aggregate, Question, ScriptedSource, Windows, expected

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


@pytest.fixture
def wrapping(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with ANSI mode off, and with batches of few rows, so that one task sends several."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "17")
    yield spark
    spark.conf.unset("spark.sql.ansi.enabled")
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def verify(spark: SparkSession, case: Case, path: Path) -> None:
    output = ask_tailrace(spark, case.question, case.batches, path, case.options, case.files_per_epoch)
    wanted = expected(spark, case.question, case.batches)
    check(output, wanted, case.group, case.scales)
    assert [progress.late_rows for progress in output.progress] == [epoch.late for epoch in wanted]


@settings(max_examples=120 if LONG else 3)
@given(case=cases())
def test_random_queries(wrapping: SparkSession, tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    print(case)
    verify(wrapping, case, tmp_path_factory.mktemp("random"))


# A state record holds some sixty values at most, so that all types go into several queries, each of another kind.
WIDE = {
    "global": (None, "update", ("tinyint", "double", "string")),
    "tumbling": (Windows(10 * SECOND, 10 * SECOND), "append", ("smallint", "decimal(38,10)", "binary")),
    "tumbling, changes": (Windows(7 * SECOND, 7 * SECOND, SECOND), "update", ("bigint", "decimal(9,2)", "date")),
    "sliding": (Windows(10 * SECOND, 5 * SECOND), "append", ("float", "decimal(18,4)", "timestamp")),
    "sliding, uneven": (Windows(10 * SECOND, 4 * SECOND, -SECOND), "append", ("int", "decimal(19,0)", "boolean")),
    "sliding, changes": (Windows(10 * SECOND, 3 * SECOND), "update", ("decimal(38,38)", "timestamp_ntz")),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", WIDE)
def test_every_aggregate_on_every_type(wrapping: SparkSession, tmp_path: Path, kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    windows, mode, type_names = WIDE[kind]
    keys = {"k": values.Pool.make("string", rng, 3, nulls=True)}
    columns, aggregates = value_columns(type_names)
    timing = Timing(1_700_000_000 * SECOND, 8 * SECOND, 5 * SECOND, 30 * SECOND, 0.02)
    schema, batches = make_batches(rng, keys, columns, timing, [60, 0, 60, 60, 1])
    question = Question(tuple(keys), tuple(aggregates), windows, "ts", 3 * SECOND, mode)
    verify(wrapping, Case(question, schema, batches, {}, 3, seed), tmp_path)


def test_all_types_are_in_the_queries_above() -> None:
    assert sorted(name for _, _, names in WIDE.values() for name in names) == sorted(values.ARROW)


def test_keys_of_every_type_at_once(wrapping: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    keys = {f"k{i}": values.Pool.make(name, rng, 1, nulls=True) for i, name in enumerate(values.KEY_TYPES)}
    timing = Timing(1_700_000_000 * SECOND, 8 * SECOND, 5 * SECOND, 30 * SECOND, 0.02)
    # Two values for each of fifteen keys would make every row a group of its own: most rows share a few.
    schema, drawn = make_batches(rng, keys, {"v": ("bigint", True)}, timing, [60, 60, 0, 60])
    batches = tuple(_few_keys(rng, list(keys), batch) for batch in drawn)
    aggregates = (Aggregate("sum", "v", "s"), Aggregate("last", "v", "l"))
    question = Question(tuple(keys), aggregates, Windows(20 * SECOND, 20 * SECOND), "ts", 3 * SECOND, "update")
    verify(wrapping, Case(question, schema, batches, {}, 1, seed), tmp_path)


def _few_keys(rng: random.Random, keys: list[str], batch: pa.Table) -> pa.Table:
    if batch.num_rows == 0:
        return batch
    rows = [rng.randrange(min(3, batch.num_rows)) for _ in range(batch.num_rows)]
    shared = batch.select(keys).take(rows)
    for name in keys:
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), shared[name])
    return batch


@settings(max_examples=40 if LONG else 2)
@given(case=cases(rule="spark"))
def test_sparks_watermark_rule_equals_sparks_own_stream(
    wrapping: SparkSession, tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    """The same files through Spark's own stateful operator; both see data batches only."""
    print(case)
    if case.question.windows is None:
        return
    path = tmp_path_factory.mktemp("rule")
    fair = tuple(a for a in case.question.aggregates if a.function not in ("first", "last"))
    case = replace(case, question=replace(case.question, aggregates=fair))
    ours = ask_tailrace(wrapping, case.question, case.batches, path, case.options, case.files_per_epoch)
    source = ScriptedSource(path / "in", case.schema, files_per_epoch=case.files_per_epoch)
    theirs = run(spark_stream(source.stream(wrapping), case.question), case.question, path / "theirs")
    wanted = expected(wrapping, case.question, case.batches)
    check(theirs, wanted, case.group, case.scales)
    check(ours, wanted, case.group, case.scales)


# --- sums that leave their type -------------------------------------------------------------------------------------


def _sum_of(type_name: str, numbers: list[Any]) -> tuple[Question, tuple[pa.Table, ...]]:
    table = pa.table({"k": pa.array([1] * len(numbers), pa.int64()), "v": values.array(type_name, numbers)})
    aggregates = (Aggregate("sum", "v", "s"), Aggregate("count", "v", "n"))
    return Question(("k",), aggregates, output_mode="update"), tuple(table.slice(i, 1) for i in range(len(numbers)))


OVERFLOWS: dict[str, list[Any]] = {
    "bigint": [2**63 - 1, 1],
    "bigint down": [-(2**63), -1],
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10)] * 2,
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflowing_sum_is_an_error_under_ansi_rules(spark: SparkSession, tmp_path: Path, name: str) -> None:
    question, batches = _sum_of(name.split()[0], OVERFLOWS[name])
    with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"):
        expected(spark, question, batches)
    with pytest.raises(tr.SumOverflowError, match=f"a sum left the range of {re.escape(name.split()[0])}"):
        ask_tailrace(spark, question, batches, tmp_path)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", OVERFLOWS)
def test_without_ansi_integers_wrap_and_decimals_become_null(wrapping: SparkSession, tmp_path: Path, name: str) -> None:
    question, batches = _sum_of(name.split()[0], OVERFLOWS[name])
    check(ask_tailrace(wrapping, question, batches, tmp_path), expected(wrapping, question, batches), ("k",), {})


def test_a_small_sum_under_ansi_rules_is_no_overflow(spark: SparkSession, tmp_path: Path) -> None:
    question, batches = _sum_of("bigint", [2**63 - 1, -1, 1, -(2**63)])
    check(ask_tailrace(spark, question, batches, tmp_path), expected(spark, question, batches), ("k",), {})


# --- keys that collide ----------------------------------------------------------------------------------------------

COLLIDING: dict[str, list[tuple[int | None, ...]]] = {
    # Spark's xxhash64 passes over nulls, so that these hash alike; the engine may only compare the keys themselves.
    "two columns": [(None, 1), (1, None)],
    "two columns, the other order, windows": [(1, None), (None, 1)],
    "three columns": [(None, None, 7), (None, 7, None), (7, None, None)],
    "three columns, two values, windows": [(1, 2, None), (1, None, 2), (None, 1, 2)],
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", COLLIDING)
def test_keys_with_the_same_hash_are_never_merged(spark: SparkSession, tmp_path: Path, name: str) -> None:
    windowed = "windows" in name
    rows = COLLIDING[name]
    keys = [f"k{i}" for i in range(len(rows[0]))]
    table = pa.table(
        {
            **{key: pa.array([row[i] for row in rows] * 2, pa.int64()) for i, key in enumerate(keys)},
            "ts": pa.array([SECOND * 1_700_000_000] * 2 * len(rows), values.UTC),
            "v": pa.array([10**i for i in range(len(rows))] * 2, pa.int64()),
        }
    )
    hashes = spark.createDataFrame(table).select(F.xxhash64(*keys)).distinct().count()
    assert hashes == 1, "the keys of this test no longer collide"
    windows = Windows(10 * SECOND, 10 * SECOND) if windowed else None
    question = Question(tuple(keys), (Aggregate("sum", "v", "s"),), windows, "ts", 0, "update")
    batches = (table, table.slice(0, 1), table.slice(len(rows) - 1, 1), table)
    group = (*(("window",) if windowed else ()), *keys)
    output = ask_tailrace(spark, question, batches, tmp_path)
    check(output, expected(spark, question, batches), group, {})
    assert output.tables[0].num_rows == len(rows)


def test_colliding_keys_stay_apart_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("v", pa.int64())])
    batch = pa.table([[None, 1], [1, None], [1, 100]], schema=schema)
    question = Question(("a", "b"), (Aggregate("sum", "v", "s"),), output_mode="update")
    source = ScriptedSource(tmp_path / "in", schema)
    source.add([batch, batch])
    first = run(tailrace_stream(source.stream(spark), question), question, tmp_path / "check")
    source.add([batch.slice(1, 1), batch])
    both = run(tailrace_stream(source.stream(spark), question), question, tmp_path / "check", output=first)
    wanted = expected(spark, question, (batch, batch, batch.slice(1, 1), batch))
    check(both, wanted, ("a", "b"), {})


# --- details of the interface ---------------------------------------------------------------------------------------


def test_rows_without_any_column_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the rows is read, and each counts."""
    schema = pa.schema([("v", pa.int64())])
    batches = tuple(pa.table([list(range(rows))], schema=schema) for rows in (100, 0, 50))
    question = Question((), (Aggregate("count", None, "n"),), output_mode="update")
    output = ask_tailrace(spark, question, batches, tmp_path)
    check(output, expected(spark, question, batches), (), {})
    assert output.tables[2].to_pylist() == [{"n": 150}]


def test_late_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("ts", values.UTC), ("v", pa.int64())])
    batches = tuple(
        pa.table([[None if t is None else t * SECOND for t in times], [1] * len(times)], schema=schema)
        for times in ([5, 25], [6, 15, 26, None], [], [19, 20, 100])  # 15: its window ends at the watermark, 20
    )
    windows = Windows(10 * SECOND, 10 * SECOND)
    question = Question((), (Aggregate("count", None, "n"),), windows, "ts", 5 * SECOND)
    output = ask_tailrace(spark, question, batches, tmp_path)
    wanted = expected(spark, question, batches)
    check(output, wanted, ("window",), {})
    assert [epoch.late for epoch in wanted] == [0, 2, 0, 1]
    assert [progress.late_rows for progress in output.progress] == [0, 2, 0, 1]


def test_default_names_and_types_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.float32()), ("d", pa.decimal128(9, 2))])
    source = ScriptedSource(tmp_path / "in", schema)
    source.add([pa.table([[1], [0.5], [Decimal("1.25")]], schema=schema)])
    names = ("count", "sum", "min", "max", "avg", "stddev")
    ours: list[object] = [tr.count()]
    theirs = [F.count(F.lit(1))]
    for name in names:
        for column in ("v", "d"):
            ours.append(getattr(tr, name)(column))
            theirs.append(getattr(F, name)(column))
    stream = tr.stream(source.stream(spark)).groupBy("k").agg(*ours)  # type: ignore[arg-type]
    question = Question(("k",), (Aggregate("count", None, "n"),), output_mode="update")
    got = run(stream, question, tmp_path / "check").tables[0]
    want = spark.read.parquet(str(tmp_path / "in")).groupBy("k").agg(*theirs).toArrow()
    assert got.schema.names == want.schema.names
    assert got.schema.types == want.schema.types
    assert got.to_pylist() == want.to_pylist()
