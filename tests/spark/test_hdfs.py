"""Queries whose state is in HDFS: a real name node and data node, through WebHDFS."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.queries.simple import WINDOWED, Scripted, batches
from support.servers.hdfs_cluster import HdfsCluster
from tailrace.env.randomness import short_id


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
