"""Each aggregate function that plain queries may use gives Spark's values: all of them in one stream, over all types.

The judge is Spark's own answer over all rows at once. It is asked in sessions with and without ANSI rules, in several
time zones, with case-sensitive names. The list of functions is the engine's own: one without a case here fails.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support import random_columns as values
from support.queries.plain import Rows, rows_of, without
from tailrace.spark.expressions.functions import DISTINCT, PLAIN
from tailrace.spark.plan_reader.reader import read_plan
from tailrace.testing import ScriptedSource
from tailrace.testing.spark_types import spark_schema

Ask = Callable[[DataFrame], DataFrame]
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
TYPES = tuple(values.ARROW)
FLOATS = ("float", "double")
EXACT = tuple(name for name in TYPES if name not in FLOATS)
INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Case:
    """``calls``: with a place for a column. ``values``: which columns, see ``columns``. ``types``: theirs."""

    calls: tuple[str, ...]
    types: tuple[str, ...]
    values: str = "any"


PLAIN_CASES = {
    "Count": Case(("count({})", "count({}, k)"), TYPES),
    "CountIf": Case(("count_if({})", "count_if(NOT {})"), ("boolean",)),
    "Sum": Case(("sum({})",), values.NUMBERS, "summable"),
    "Average": Case(("avg({})",), values.NUMBERS, "tame"),
    "Min": Case(("min({})",), TYPES),
    "Max": Case(("max({})",), TYPES),
    "BoolAnd": Case(("bool_and({})", "every({})"), ("boolean",)),
    "BoolOr": Case(("bool_or({})", "some({})"), ("boolean",)),
    "StddevSamp": Case(("stddev({})", "std({})"), values.NUMBERS, "tame"),
    "StddevPop": Case(("stddev_pop({})",), values.NUMBERS, "tame"),
    "VarianceSamp": Case(("variance({})",), values.NUMBERS, "tame"),
    "VariancePop": Case(("var_pop({})",), values.NUMBERS, "tame"),
    "MinBy": Case(("min_by({}, unique)", "min_by({}, -unique)"), TYPES),
    "MaxBy": Case(("max_by({}, unique)", "max_by(k, CASE WHEN {} IS NOT NULL THEN unique END)"), TYPES),
    "MaxMinByK": Case(("max_by({}, unique, 3)", "min_by({}, unique, 2)"), TYPES),
    "CollectSet": Case(("collect_set({})",), EXACT),
    "CollectList": Case(("collect_list({})",), TYPES),
    "Percentile": Case(("percentile({}, 0.3D)", "percentile({}, 1.0D)"), values.NUMBERS, "tame"),
    "Median": Case(("median({})",), values.NUMBERS, "tame"),
}
DISTINCT_CASES = {
    "Count": Case(("count(DISTINCT {})", "count(DISTINCT {}, k)"), TYPES),
    "Sum": Case(("sum(DISTINCT {})",), values.NUMBERS, "tame"),
    "Min": Case(("min(DISTINCT {})",), TYPES),
    "Max": Case(("max(DISTINCT {})",), TYPES),
    "BoolAnd": Case(("bool_and(DISTINCT {})",), ("boolean",)),
    "BoolOr": Case(("bool_or(DISTINCT {})",), ("boolean",)),
    "CollectSet": Case(("collect_set(DISTINCT {})",), EXACT),
}
SESSIONS = {
    "ansi": {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"},
    "wrapping": {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"},
    "sensitive": {"spark.sql.session.timeZone": "Asia/Kolkata", "spark.sql.caseSensitive": "true"},
}
BATCHES, ROWS = 3, 40


def columns(rng: random.Random, overflows: bool) -> dict[str, tuple[pa.DataType, Iterator[Any]]]:
    """By name. ``any``: every value of a type; ``summable``: with sums that may leave it, if so, in whatever order;
    ``tame``: small, so that doubles have no errors that depend on the order.
    """

    def made(type_name: str, which: str) -> Iterator[Any]:
        while True:
            if rng.random() < 0.15:
                yield None
            elif which == "any":
                yield values.draw(type_name, rng)
            elif values.is_decimal(type_name):
                type_ = values.ARROW[type_name]
                digits = type_.precision if which == "summable" and overflows else min(type_.precision, 6)
                number = rng.randrange(10**digits // 2, 10**digits) if overflows else rng.randint(-999, 999)
                yield Decimal((number < 0, Decimal(abs(number)).as_tuple().digits, -type_.scale))
            elif which == "summable" and type_name in INTEGERS and (overflows or type_name != "bigint"):
                yield values.draw(type_name, rng)
            else:
                number = rng.randint(-40, 40)
                yield number / 8 if type_name in FLOATS else number

    return {
        name_of(type_name, which): (values.ARROW[type_name], made(type_name, which))
        for which in ("any", "summable", "tame")
        for type_name in (TYPES if which == "any" else values.NUMBERS)
    }


def name_of(type_name: str, which: str) -> str:
    return f"{which}_{type_name}".replace("(", "_").replace(",", "_").replace(")", "")


def tables(rng: random.Random, overflows: bool) -> list[pa.Table]:
    unique = iter(rng.sample(range(1 << 40), BATCHES * ROWS))
    drawn = columns(rng, overflows)
    fields = [("ts", values.UTC), ("k", pa.int32()), ("unique", pa.int64()), *((n, t) for n, (t, _) in drawn.items())]

    def table(epoch: int) -> pa.Table:
        start = 1_774_728_000_000_000 + epoch * 3_600_000_000  # the night in which Europe's clocks go forward
        own = {
            "ts": [start + rng.randrange(3_600_000_000) for _ in range(ROWS)],
            "k": [rng.choice([None, 1, 2, 3]) for _ in range(ROWS)],
            "unique": [next(unique) for _ in range(ROWS)],
        }
        rest = {name: [next(one) for _ in range(ROWS)] for name, (_, one) in drawn.items()}
        return pa.table([pa.array(c, t) for c, (_, t) in zip([*own.values(), *rest.values()], fields, strict=True)],
                        schema=pa.schema(fields))  # fmt: skip

    return [table(epoch) for epoch in range(BATCHES)]


def calls(rng: random.Random) -> list[str]:
    """Every function, over some of its types, since a record has 62 values at most. Some calls have a filter."""
    made = []
    for case in (*PLAIN_CASES.values(), *DISTINCT_CASES.values()):
        for type_name in rng.sample(case.types, min(2, len(case.types))):
            for call in case.calls:
                text = call.format(name_of(type_name, case.values))
                made.append(f"{text} FILTER (WHERE any_boolean)" if rng.random() < 0.1 else text)
    return made


class Asked:
    """A stream, and the same rows at once."""

    def __init__(self, spark: SparkSession, path: Path, rows: list[pa.Table]) -> None:
        source = ScriptedSource(path / "in", rows[0].schema)
        source.add(rows)
        self.path = path
        self.stream = source.stream(spark)
        self.at_once = spark.read.schema(spark_schema(rows[0].schema)).parquet(str(path / "in"))

    def on_tailrace(self, ask: Ask, mode: str) -> Rows:
        """All rows, or in complete mode the last epoch's."""
        found: dict[int, Rows] = {}

        def save(batch: DataFrame, epoch: int) -> None:
            found[epoch] = rows_of(batch)

        writer = tr.writeStream(ask(self.stream), fallback=False).outputMode(mode).foreachBatch(save)
        query = writer.options(checkpointLocation=str(self.path / mode), shards=2).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        last = found[max(found)]
        return last if mode == "complete" else [last[0], *(row for rows in found.values() for row in rows[1:])]

    def check(self, ask: Ask, mode: str = "complete") -> None:
        ours, theirs = self.on_tailrace(ask, mode), rows_of(ask(self.at_once))
        assert ours[0] == theirs[0]
        missing, more = without(theirs[1:], ours[1:]), without(ours[1:], theirs[1:])
        if missing or more:
            key = {row[0]: row for row in more}
            shown = [(ours[0][n], want, key[row[0]][n]) for row in missing if row[0] in key
                     for n, want in enumerate(row) if repr(want) != repr(key[row[0]][n])]  # fmt: skip
            raise AssertionError(
                f"column, of Spark, of Tailrace: {shown[:6]}; {len(missing)} and {len(more)} rows differ"
            )
        assert len(theirs) > 1


def rng_of_test() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def session_of(spark: SparkSession, name: str) -> SparkSession:
    session = spark.newSession()
    for key, value in SESSIONS[name].items():
        session.conf.set(key, value)
    return session


def test_every_function_has_a_case() -> None:
    assert sorted(PLAIN_CASES) == sorted(PLAIN)
    assert sorted(DISTINCT_CASES) == sorted(DISTINCT)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("number", range(8 if LONG else 1))
@pytest.mark.parametrize("name", SESSIONS)
def test_values_and_types(spark: SparkSession, tmp_path: Path, name: str, number: int) -> None:
    rng = rng_of_test()
    asked = Asked(session_of(spark, name), tmp_path, tables(rng, overflows=name == "wrapping"))
    texts = calls(rng)
    key = "date_format(ts, 'yyyy-MM-dd HH')"  # in the session's zone

    def ask(rows: DataFrame) -> DataFrame:
        named = rows.withWatermark("ts", "1 hour")
        if name == "sensitive":
            named = named.withColumnRenamed("k", "K").withColumn("k", F.expr("K + 1"))
        made = [F.expr(text).alias(f"{text} {number}") for number, text in enumerate(texts)]
        return named.groupBy(F.concat_ws("/", F.expr(key), "k").alias("key")).agg(*made)

    asked.check(ask)


OVERFLOWS = {
    "sum(l)": 2**63 - 1,
    "sum(-l - 2)": 2**63 - 1,
    "sum(DISTINCT wide + l)": 1,
    "sum(wide)": 1,
    "avg(wide)": 1,
}
"""By the call, the value of ``l`` in one of two rows; ``wide`` is the largest of its type."""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("call", OVERFLOWS)
def test_what_does_not_fit_fails_under_ansi_rules(spark: SparkSession, tmp_path: Path, call: str) -> None:
    wide = Decimal("9" * 38)
    rows = pa.table(
        {"l": pa.array([OVERFLOWS[call], 1], pa.int64()), "wide": pa.array([wide] * 2, pa.decimal128(38, 0))}
    )
    asked = Asked(spark, tmp_path, [rows])

    def ask(rows: DataFrame) -> DataFrame:
        return rows.groupBy(F.lit(1)).agg(F.expr(call))

    with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"):
        ask(asked.at_once).collect()
    with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|left the range of"):
        asked.on_tailrace(ask, "complete")


NOT_COMPARED = {"count({})", "count({}, k)", "max_by(k, CASE WHEN {} IS NOT NULL THEN unique END)"}
"""Whether a text is there is all that these look at."""


def test_collations_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """In every place of every function that takes texts."""
    rows = spark.readStream.schema("k int, unique bigint, text string").parquet(str(tmp_path))
    taken = set()
    for case in (*PLAIN_CASES.values(), *DISTINCT_CASES.values()):
        for call in case.calls if "string" in case.types else ():
            if call.startswith("collect_set"):  # Spark refuses it
                continue
            try:
                read_plan(rows.groupBy("k").agg(F.expr(call.format("collate(text, 'UNICODE_CI')"))))
                taken.add(call)
            except tr.AnalysisError as refusal:
                assert "UNICODE_CI" in str(refusal)
    assert taken == NOT_COMPARED
    for ask in (
        lambda: rows.groupBy(F.collate("text", "UTF8_LCASE")).count(),
        lambda: rows.select(F.collate("text", "UTF8_LCASE").alias("text")).distinct(),
        lambda: rows.withColumn("text", F.collate("text", "UNICODE_CI")).dropDuplicates(["text"]),
    ):
        with pytest.raises(tr.AnalysisError, match=r"UTF8_LCASE|UNICODE_CI"):
            read_plan(ask())


def test_names_that_come_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Among the columns of the input, of the keys and of the results."""
    asked = Asked(spark, tmp_path, tables(rng_of_test(), overflows=False))

    def grouped(rows: DataFrame) -> DataFrame:
        named = rows.selectExpr("k AS k", "unique AS n", "k % 2 AS m").toDF("k", "n", "m")
        keys = F.col("k").alias("x"), F.col("m").alias("X")
        return named.groupBy(*keys).agg(F.sum("n").alias("x"), F.max("n").alias("y"), F.count("*").alias("y"))

    def different(rows: DataFrame) -> DataFrame:
        return rows.select("k", (F.col("unique") % 7).alias("k"), F.col("k").alias("K")).distinct()

    asked.check(grouped)
    asked.check(different, "append")
