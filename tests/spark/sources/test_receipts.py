"""Receipts come from the tasks of a batch, one of each, whatever the batch is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.spark.private import TASKS_MAX, texts_of


@pytest.mark.parametrize("tasks", [1, 3, TASKS_MAX + 1])
@pytest.mark.parametrize("way", ["as it comes", "filtered", "collected"])
def test_every_task_gives_one_receipt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, way: str
) -> None:
    """``collected``: the usual way of Spark, with which the others are compared."""
    spark.range(0, 40, 1, 1).write.parquet(str(tmp_path / "in"))
    collected: list[str] = []

    def task_receipt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"receipt": [f"rows: {sorted(numbers)}"]})

    if way == "as it comes" and tasks <= TASKS_MAX:
        monkeypatch.setattr(DataFrame, "collect", lambda _: pytest.fail("a second query was planned"))

    def look(batch: DataFrame, epoch: int) -> None:
        if way == "collected":
            collected.extend(row[0] for row in batch.collect())
        else:
            collected.extend(texts_of(batch.filter("receipt is not null") if way == "filtered" else batch))

    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).repartition(tasks)
    query = (
        rows.mapInArrow(task_receipt, "receipt string")
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(collected) == tasks
    lists = [text.removeprefix("rows: [").rstrip("]").split(",") for text in collected]
    assert sorted(int(number) for each in lists for number in each if number) == list(range(40))
