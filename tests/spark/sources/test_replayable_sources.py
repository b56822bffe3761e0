"""Which sources give an epoch again, and number its tasks alike: those that nobody knows do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from tailrace.spark.sources.inspection import numbers_tasks, read_once


def register_numbers(spark: SparkSession) -> None:
    """A source of somebody's own, as a message queue's would be. Made here: workers have no module of tests."""

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
            return iter([(start["at"],)]), {"at": start["at"] + 1}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
            return iter([(n,) for n in range(start["at"], end["at"])])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "k bigint"

        def simpleStreamReader(self, schema: object) -> SimpleDataSourceStreamReader:
            return Reader()

    spark.dataSource.register(Numbers)


@pytest.mark.long
def test_a_source_of_ones_own(spark: SparkSession) -> None:
    register_numbers(spark)
    reason = "source numbers is not known to give an epoch twice"
    own = spark.readStream.format("numbers").load()
    assert read_once(own) == (reason,)
    rate = spark.readStream.format("rate").load().selectExpr("value AS k")
    assert read_once(rate.union(own)) == (reason,), "the strictest of them"
    assert numbers_tasks(rate) and not numbers_tasks(own) and not numbers_tasks(rate.union(own))


@pytest.mark.parametrize(
    ("cleaned", "allowed"), [(None, True), ("off", True), ("OFF", True), ("archive", False), ("delete", False)]
)
def test_files(spark: SparkSession, tmp_path: Path, cleaned: str | None, allowed: bool) -> None:
    reader = spark.readStream.schema("k bigint").format("json")
    if cleaned is not None:
        reader = reader.option("CLEANSOURCE", cleaned).option("sourceArchiveDir", str(tmp_path.parent / "archive"))
    files = reader.load(str(tmp_path))
    assert (read_once(files) == ()) is allowed
    assert numbers_tasks(files) and numbers_tasks(files.union(files.where("k > 1")))


def test_a_table_of_files(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE read_once_files (k BIGINT) USING parquet")
    try:
        assert read_once(spark.readStream.table("read_once_files")) == ()
    finally:
        spark.sql("DROP TABLE read_once_files")
