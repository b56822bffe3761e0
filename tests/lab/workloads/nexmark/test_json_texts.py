"""NEXMark's events as texts: they say what the columns say, and queries that parse them give the same answers."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from support.draw import drawn
from support.lab.same_rows import same_rows
from tailrace.api.options import Options
from tailrace.lab import catalog, registry
from tailrace.lab.registry import OURS, Settings
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.generator import events
from tailrace.lab.workloads.nexmark.events.json_texts import with_texts
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA, TEXT, TEXT_SCHEMA
from tailrace.lab.workloads.nexmark.workloads import AS_TEXTS, FEED, PREFIX, TEXT_VERSIONS
from tailrace.plan.physical import plan_relation
from tailrace.spark.hints.plan import HintPlan

catalog.load()
QUERIES = tuple(TEXT_VERSIONS[OURS])
_RUNS = [(query, engine) for query in QUERIES for engine in (OURS, "spark-memory")]


def test_a_text_says_what_the_columns_say() -> None:
    made = with_texts(events(Config(seed=3), 0, 500))
    assert set(TEXT_SCHEMA.names) <= set(made.column_names)
    assert made.select(TEXT_SCHEMA.names).schema == TEXT_SCHEMA
    for row in made.to_pylist():
        text: dict[str, Any] = json.loads(row[TEXT])
        for name in EVENT_SCHEMA.names:
            value = text.get(name)
            if isinstance(row[name], datetime):
                value = datetime.fromisoformat(value).astimezone(UTC)
            assert value == row[name], name
        assert row["auction"] == (row["bid_auction"] or row["auction_id"]) and row["bidder"] == row["bid_bidder"]
    kinds = {row["event_type"] for row in made.to_pylist()}
    assert kinds == {0, 1, 2} and with_texts(made.slice(0, 0).select(EVENT_SCHEMA.names)).num_rows == 0


@pytest.mark.parametrize(("query", "engine"), drawn(_RUNS, __name__))
def test_answers_are_those_of_the_columns(spark: SparkSession, tmp_path: Path, query: str, engine: str) -> None:
    workload = registry.workload(PREFIX + query + AS_TEXTS)
    values = {**workload.values(), "auctions_in_flight": 200, "side_rows": 300}
    settings = Settings(3_000, 1_000, 5, values)
    files = [write_batch(each[FEED], tmp_path / "in", f"{n}", 2) for n, each in enumerate(workload.inputs(settings))]
    for n, path in enumerate(files):
        os.utime(path, (n, n))
    tables: list[pa.Table] = []

    def keep(frame: DataFrame, epoch: int) -> None:
        reported = frame.toArrow()
        tables.append(reported.append_column("epoch", pa.array([epoch] * reported.num_rows, pa.int64())))

    feed = spark.readStream.schema(workload.feeds[FEED]).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    assert feed.columns == TEXT_SCHEMA.names, "the other columns are for the oracle"
    writer = registry.query(workload, engine)({FEED: feed}, values).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    writer.trigger(availableNow=True).foreachBatch(keep).start().awaitTermination()
    oracle = workload.oracle_of(engine)
    assert oracle is not None
    same_rows(
        workload.final(workload.finish[engine](pa.concat_tables(tables), values)), oracle({FEED: files}, settings)
    )


@pytest.mark.parametrize("query", QUERIES)
def test_keys_are_known_before_texts_are_parsed(spark: SparkSession, tmp_path: Path, query: str) -> None:
    workload = registry.workload(PREFIX + query + AS_TEXTS)
    (tmp_path / "in").mkdir()
    feed = spark.readStream.schema(workload.feeds[FEED]).parquet(str(tmp_path / "in"))
    writer = registry.query(workload, OURS)({FEED: feed}, workload.values())
    plan = plan_relation(writer._relation, writer._mode, Options())
    (candidates,) = HintPlan.of(plan).candidates.values()
    assert candidates[0] == "source"
