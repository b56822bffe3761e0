"""Queries whose state, or whose Spark checkpoint, is in HDFS: a real name node and data node."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from support.queries.engines import check, run, tailrace_stream
from support.queries.simple import WINDOWED, Scripted, batches
from support.servers.hdfs_cluster import HdfsCluster
from tailrace.commit.log import CommitLog
from tailrace.commit.spark_logs.log_files import BACKUP
from tailrace.env.randomness import short_id
from tailrace.env.stores.hdfs_store import ADDRESS_VARIABLE
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.location import open_store
from tailrace.testing import expected


@pytest.mark.long
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_oracles_rows_across_restarts(spark: SparkSession, tmp_path: Path, hdfs: HdfsCluster, mode: str) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    location = hdfs.uri(f"query-{short_id()}")
    every = batches(7)
    for part in (every[:4], every[4:]):
        query.feed(part)
        query.run(commit=mode, stateLocation=location)
    query.check()


@pytest.mark.long
def test_a_checkpoint_in_hdfs_is_rewound(
    spark: SparkSession, tmp_path: Path, hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between Spark's commit of epoch 3 and ours. Spark comes by Hadoop's own protocol."""
    place = f"check-{short_id()}"
    monkeypatch.setenv(ADDRESS_VARIABLE, f"127.0.0.1:{hdfs.port}")  # which the address does not say
    checkpoint = hdfs.hadoop_uri(place)
    query, state, every = Scripted(spark, tmp_path, WINDOWED), tmp_path / "state", batches(6)

    def run_over(part: tuple[pa.Table, ...]) -> None:
        query.feed(part)
        options = {"commit": "async", "stateLocation": str(state)}
        run(tailrace_stream(query.frame(), WINDOWED), WINDOWED, checkpoint, options, query.output)

    run_over(every[:4])
    newest = CommitLog(LocalStore(state)).read().newest
    assert newest is not None and newest.epoch == 3
    (state / "log" / f"{newest.number:020d}.json").unlink()
    run_over(every[4:])
    moved = [each.name for each in open_store(hdfs.uri(place)).list(f"{BACKUP}/")]
    assert moved == [f"{BACKUP}/commits/3"]
    check(query.output, expected(spark, WINDOWED, query.fed), ("window", "k"), {})
