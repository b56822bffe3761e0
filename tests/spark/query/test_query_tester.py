"""The test kit for users gives what queries give: random questions, against the oracle."""

from __future__ import annotations

import os

import pyarrow as pa
from hypothesis import given, settings
from pyspark.sql import SparkSession

from support.queries.engines import asked
from support.queries.random_queries import Case, cases
from tailrace.testing import QueryTester, describe, differences, expected
from tailrace.testing.spark_types import spark_schema

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


@settings(max_examples=30 if LONG else 2)
@given(case=cases())
def test_a_tested_query_gives_the_oracles_rows(spark: SparkSession, case: Case) -> None:
    print(case)
    wrapping = spark.newSession()
    wrapping.conf.set("spark.sql.ansi.enabled", "false")  # else some sums of random numbers would be errors
    question, wanted = case.question, expected(wrapping, case.question, case.batches)
    with QueryTester(
        lambda stream: asked(stream, question),
        spark_schema(case.schema),
        outputMode=question.output_mode,
        ansi=False,
        watermark=question.rule,
    ) as tester:
        for want, batch in zip(wanted, case.batches, strict=True):
            rows = tester.batch(batch)
            table = pa.Table.from_pylist(rows, want.rows.schema)
            found = differences(table, want.rows, case.group, case.scales)
            assert not found, f"epoch {want.epoch}: {describe(found)}"
            assert len(tester.late_rows) >= want.late
