"""Aggregates end to end against Spark's functions of the same name and arguments, over the same rows as one batch.

One query with all of them: a query costs seconds before its first row. What sketches err is bounded in the unit tests.
"""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.engines import run
from tailrace.testing import Aggregate, Question, ScriptedSource
from tailrace.testing.compare import describe, differences

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("d", pa.float64()),
        ("finite", pa.float64()),
        ("e", pa.decimal128(12, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("unique", pa.int64()),
    ]
)
LARGE_GROUP, LARGE_ROWS = 9, 20_000
"""A group that no sketch of the accuracy below holds whole."""
RSD, ACCURACY, SHARE = 0.05, 100, 0.3


def functions(of: ModuleType) -> list[Any]:
    """The same calls of both modules.

    ``unique`` has no two equal values: among equal ones Spark may choose any. ``finite`` has no NaN: where its sketches
    put one depends on which partitions they merge first.
    """
    return [
        *(f("d") for f in (of.var_samp, of.var_pop, of.variance, of.stddev, of.stddev_pop, of.stddev_samp)),
        *(of.sum_distinct(column) for column in ("i", "d", "e")),
        *(of.count_distinct(column) for column in ("i", "d", "e", "s")),
        of.count_distinct("i", "s"),
        of.count_distinct("d", "e", "b"),
        *(of.approx_percentile("i", share) for share in (0.0, 0.25, 0.9)),
        of.approx_percentile("finite", [0.1, 1.0], 500),
        of.percentile_approx("e", 0.5),
        of.bool_and("b"),
        of.bool_or("b"),
        of.min_by("s", "unique"),
        of.max_by("i", "unique"),
    ]


def batches(rng: random.Random) -> list[pa.Table]:
    unique = iter(rng.sample(range(1 << 40), 600 + LARGE_ROWS))

    def row() -> dict[str, Any]:
        values = {
            "i": rng.randint(-20, 20),
            "d": rng.choice([0.0, -0.0, float("nan"), *(rng.randint(-40, 40) / 8 for _ in range(9))]),
            "finite": rng.randint(-40, 40) / 8,
            "e": Decimal(rng.randint(-500, 500)).scaleb(-2),
            "s": rng.choice(["", "a", "ab", "Ä", "longer than eight bytes"]),
            "b": rng.random() < 0.8,
            "unique": next(unique),
        }
        kept = {name: None if rng.random() < 0.15 else value for name, value in values.items()}
        return {"k": rng.randint(0, 5), **kept}

    large = pa.Table.from_pylist([{"k": LARGE_GROUP, "unique": next(unique)} for _ in range(LARGE_ROWS)], SCHEMA)
    small = [pa.Table.from_pylist([row() for _ in range(count)], SCHEMA) for count in (200, 1, 250, 100)]
    return [pa.concat_tables([small[0], large[::2]]), *small[1:3], pa.concat_tables([large[1::2], small[3]])]


def newest(tables: dict[int, pa.Table]) -> pa.Table:
    """The last row that was emitted of each key."""
    found: dict[int, pa.Table] = {}
    for _, table in sorted(tables.items()):
        for number, key in enumerate(table["k"].to_pylist()):
            found[key] = table.slice(number, 1)
    return pa.concat_tables(found.values())


def bounds_update(states: pa.Table, rows: pa.Table, group: pa.Array) -> pa.Table:
    rows = pa.table({"group": group, "i": rows["i"]})
    found = rows.group_by("group").aggregate([("i", "min"), ("i", "max")]).sort_by("group")
    return pa.table({"low": found["i_min"], "high": found["i_max"]})


def bounds_merge(left: pa.Table, right: pa.Table) -> pa.Table:
    low, high = pc.min_element_wise(left["low"], right["low"]), pc.max_element_wise(left["high"], right["high"])
    return pa.table({"low": low, "high": high})


NOTHING = pa.scalar(None, pa.int64())
RANGE = tr.aggregate(
    {"low": NOTHING, "high": NOTHING},
    bounds_update,
    bounds_merge,
    lambda states: pc.subtract(states["high"], states["low"]),
    "bigint",
)


def test_the_same_answers(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    given = batches(random.Random(seed))
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    source.add(given)
    stream = tr.stream(source.stream(spark)).groupBy("k")
    # These have no counterpart: sets have an order here, and a user's function is a user's.
    others = [tr.collect_set("s").alias("set"), RANGE("i").alias("range")]
    sketches = [
        tr.approx_count_distinct("unique", RSD).alias("about"),
        tr.approx_percentile("unique", SHARE, ACCURACY).alias("third"),
    ]
    question = Question(("k",), (Aggregate("count", None, "n"),), output_mode="update")  # only the mode is looked at
    made = newest(run(stream.agg(*functions(tr), *others, *sketches), question, tmp_path / "check").tables)

    rows = pa.concat_tables(given)
    theirs = spark.createDataFrame(rows).groupBy("k").agg(
        *functions(F),
        F.sort_array(F.collect_set("s")).alias("set"),
        (F.max("i") - F.min("i")).cast("bigint").alias("range"),
    )  # fmt: skip
    exact = made.drop_columns(["about", "third"])
    scales = dict.fromkeys(exact.column_names, 100.0)
    found = differences(exact, theirs.toArrow(), ("k",), scales)
    assert not found, describe(found)
    for row in made.to_pylist():
        values = rows.filter(pc.equal(rows["k"], row["k"]))["unique"].drop_null()
        # Five deviations, and three times what 99 ranks of 100 keep to: the rows are others in every run.
        assert abs(row["about"] - len(values)) <= 5 * RSD * len(values), row["k"]
        below = pc.sum(pc.less_equal(values, row["third"])).as_py()
        assert abs(below - SHARE * len(values)) <= 3 * len(values) / ACCURACY + 1, row["k"]
