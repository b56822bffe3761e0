"""Drivers of several machines on one checkpoint: one of them runs, the others are refused, and nothing is stuck."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from support.processes import TESTS, Sandbox, wait_until
from support.queries.file_readers import check_readers
from support.queries.simple import ROLLING, Scripted, batches
from tailrace.lab.servers.s3 import REGION, S3Server
from tailrace.lab.servers.s3a import s3a_confs
from tailrace.testing import expected

CHILD = TESTS / "crash" / "child_file_sink.py"
COLUMNS = ("k", "total", "n")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_one_runs_and_the_others_are_refused(
    spark: SparkSession, sandbox: Sandbox, request: pytest.FixtureRequest, place: str
) -> None:
    """Two are started at the same time while a third one runs. None of them sees the locks of the others."""
    query, out = Scripted(spark, sandbox.root), sandbox.root / "out"
    config, environment = {"root": str(sandbox.root), "out": str(out)}, {}
    if place == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        environment = s3.environment()
        confs = s3a_confs(s3.endpoint, REGION, sandbox.root)
        state = s3.uri(f"{sandbox.mark}/state")
        config |= {"checkpoint": s3.uri(f"{sandbox.mark}/check", "s3a"), "state": state, "confs": confs}
    every = batches(8)
    query.feed(every[:3])
    first = sandbox.start(CHILD, {**config, "endless": True}, environment)
    wait_until("epoch 2", lambda: (out / "tailrace_epoch=2").exists() or first.poll() is not None, 120, 0.02)
    assert first.poll() is None, sandbox.log_tail()
    others = [sandbox.start(CHILD, config, environment) for _ in range(2)]
    query.feed(every[3:7])
    ended = [other.wait(180) for other in others]
    query.feed(every[7:])  # one that has nothing to do does not notice
    assert first.wait(60) != 0, "it has learned that it was replaced"
    log = sandbox.log.read_text(errors="replace")
    assert 0 in ended, log
    assert log.count("main()\n") == 1 + sum(code != 0 for code in ended), "a traceback for each that was refused"
    assert "FencedError" in log and "CheckpointError" not in log, log
    last = sandbox.start(CHILD, config, environment)
    assert last.wait(120) == 0, sandbox.log_tail()
    check_readers(spark, out, expected(spark, ROLLING, query.fed), COLUMNS)
