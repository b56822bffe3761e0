"""Where Spark's checkpoint is no local path: whether its logs can be rewound, and what is said where they cannot."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from tailrace.commit.spark_logs.log_files import BACKUP
from tailrace.env.stores.hdfs_store import ADDRESS_VARIABLE
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.location import open_store
from tailrace.errors import CheckpointError
from tailrace.spark.commit import spark_log
from tailrace.spark.commit.spark_log import SparkLogFiles


def test_a_file_system_that_tailrace_has_no_store_for(spark: SparkSession) -> None:
    logs = SparkLogFiles(spark, "dbfs:/nowhere/check")
    assert logs.fixed == ("Spark's checkpoint dbfs:/nowhere/check is on dbfs:, where Tailrace cannot rewind it",)
    with pytest.raises(
        CheckpointError, match=r"one epoch ahead .* commits/3 must be moved .* Move commits/3 away by hand"
    ):
        logs.move_to_backup("commits/3")


def test_a_cluster_without_a_web_interface(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name node may listen for Hadoop's own protocol only: then nothing can be moved, and a start says so soon."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, and nobody listens
        monkeypatch.setenv(ADDRESS_VARIABLE, f"127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setattr(spark_log, "_LOOK_S", 0.0)
        (reason,) = SparkLogFiles(spark, "hdfs://nowhere/check").fixed
    assert reason.startswith("Spark's checkpoint hdfs://nowhere/check cannot be rewound (Cannot ")


def test_a_store_that_leads_somewhere_else_than_spark(spark: SparkSession) -> None:
    logs = SparkLogFiles(spark, "memory://elsewhere/check")  # of this process: Spark cannot see it
    (reason,) = logs.fixed
    assert "Spark does not see what is put to memory://elsewhere/check" in reason
    assert open_store("memory://elsewhere/check").list("") == [], "nothing is left there"


def test_a_store_that_cannot_be_opened(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise CheckpointError("Cannot write s3://b/check/x: access denied. Check the credentials.")

    monkeypatch.setattr(spark_log, "open_store", refuse)
    assert SparkLogFiles(spark, "s3a://b/check").fixed == (
        "Spark's checkpoint s3a://b/check cannot be rewound (Cannot write s3://b/check/x: access denied)",
    )


def test_a_place_that_both_see_is_rewound(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local folder stands for the bucket: Spark is led to it by its own name, our store by another."""
    monkeypatch.setattr(spark_log, "is_local", lambda uri: False)
    monkeypatch.setattr(spark_log, "CLOUD_SCHEMES", ("file",))
    store = LocalStore(tmp_path)
    monkeypatch.setattr(spark_log, "open_store", lambda uri, options=None: store)
    logs = SparkLogFiles(spark, f"file:{tmp_path}/")
    assert (logs.fixed, logs.epochs("commits")) == ((), [])
    for name in ("commits/3", "commits/4", "offsets/5"):
        store.put(name, [name.encode()])
    assert (logs.epochs("commits"), logs.epochs("offsets")) == ([3, 4], [5])
    logs.move_to_backup("offsets/5")
    logs.move_to_backup("commits/4")
    assert (logs.epochs("commits"), logs.epochs("offsets")) == ([3], [])
    assert {each.name for each in store.list(f"{BACKUP}/")} == {f"{BACKUP}/commits/4", f"{BACKUP}/offsets/5"}


@pytest.mark.long
def test_a_checkpoint_that_cannot_be_rewound_commits_before_the_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": 1}')
    monkeypatch.setattr(SparkLogFiles, "fixed", ("Spark's checkpoint is far away",))
    files = spark.readStream.schema("k bigint").json(str(tmp_path / "in"))
    writer = tr.stream(files).groupBy("k").agg(tr.count()).writeStream.outputMode("update").format("noop")
    query = writer.options(commit="async", checkpointLocation=str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain()
    assert "commit sync, since Spark's checkpoint is far away" in capsys.readouterr().out
