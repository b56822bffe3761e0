"""Ctrl-C, and a plain kill, in the middle of a query: nothing is left behind, and the query goes on afterwards."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.processes import TESTS, Sandbox, wait_until
from support.queries.simple import WINDOWED, Scripted, batches

CHILD = TESTS / "spark" / "child_simple.py"


@pytest.mark.parametrize("how", ["ctrl-c", pytest.param("terminate", marks=pytest.mark.long)])
def test_an_interrupted_query_leaves_nothing_behind(spark: SparkSession, tmp_path: Path, how: str) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    query.feed(batches(12))
    output = tmp_path / "out"
    output.mkdir()
    config = {
        "input": str(tmp_path / "in"),
        "checkpoint": str(query.checkpoint),
        "output": str(output),
        "windowed": True,
        "signal_at": 3,
    }
    with Sandbox() as sandbox:
        child = sandbox.start(CHILD, config)
        wait_until("epoch 3", lambda: (output / "ready").exists() or child.poll() is not None, 90, 0.01)
        assert child.poll() is None, sandbox.log_tail()
        if how == "ctrl-c":
            os.killpg(child.pid, signal.SIGINT)  # a terminal sends it to the whole group in the foreground
        else:
            child.terminate()
        child.wait(30)
        assert sandbox.gone_within(10) == []
        assert sandbox.leftovers() == []
    for path in output.glob("*.parquet"):
        query.output.tables[int(path.stem)] = pq.read_table(path)
    query.run()
    query.check()


@pytest.mark.long
@pytest.mark.parametrize("heartbeat", ["1 second", "10 minutes"])
def test_a_program_ends_though_a_call_to_its_server_hangs(spark: SparkSession, tmp_path: Path, heartbeat: str) -> None:
    """Whether that was noticed or not: no thread of ours keeps the interpreter, nor runs into its end."""
    query = Scripted(spark, tmp_path, WINDOWED)
    query.feed(batches(4))
    options = {"heartbeatTimeout": heartbeat, "commit": "async"}
    config = {"input": str(tmp_path / "in"), "checkpoint": str(query.checkpoint), "options": options}
    with Sandbox() as sandbox:
        child = sandbox.start(TESTS / "spark" / "child_hanging.py", config)
        child.wait(120)
        log = sandbox.log.read_text(errors="replace")
        assert "main has ended" in log and child.returncode == 0, sandbox.log_tail()
        assert "cannot schedule new futures" not in log and "Traceback" not in log, log
