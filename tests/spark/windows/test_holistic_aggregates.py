"""Aggregates that keep every row of a group: the oracle's answers for every type, across restarts and losses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import random_columns as values
from support.processes import kill, session_servers, wait_until
from support.queries.engines import ask_tailrace, check
from support.queries.random_queries import Timing, holistic_for, make_batches
from support.queries.simple import SECOND, WINDOWED, Scripted, batches
from tailrace.testing import Aggregate, Question, Windows, expected

SUMS = WINDOWED.aggregates
HOLISTIC = (
    *SUMS,
    Aggregate("quantile", "v", "middle", argument=0.5),
    Aggregate("count_distinct", "v", "different"),
    Aggregate("collect_list", "v", "all"),
    Aggregate("top_k", "v", "top", argument=2),
)
APPEND = Question(("k",), HOLISTIC, Windows(10 * SECOND, 5 * SECOND), "ts", 5 * SECOND)
UPDATE = Question(("k",), HOLISTIC, Windows(10 * SECOND, 10 * SECOND), "ts", 5 * SECOND, "update")
MODES = pytest.mark.parametrize(
    "question",
    [
        pytest.param(APPEND, id="sliding, append"),
        pytest.param(UPDATE, id="tumbling, update", marks=pytest.mark.long),
    ],
)


@pytest.mark.parametrize("mode", ["append", "update"])
def test_every_type(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    columns = {f"v{i}": (name, False) for i, name in enumerate(values.ARROW)}
    every = [one for name, (type_, _) in columns.items() for one in holistic_for(name, type_, rng)]
    keys = {"k": values.Pool.make("string", rng, 4, nulls=True)}
    timing = Timing(1_700_000_000 * SECOND, 4 * SECOND, 6 * SECOND, 40 * SECOND, 0.05)
    _, tables = make_batches(rng, keys, columns, timing, [40, 0, 60, 30, 50])
    question = Question(("k",), tuple(every), Windows(10 * SECOND, 5 * SECOND), "ts", 2 * SECOND, mode)
    check(ask_tailrace(spark, question, tables, tmp_path), expected(spark, question, tables), ("window", "k"), {})


@MODES
def test_a_restarted_query_goes_on(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(9)
    for part in (every[:4], every[4:5], every[5:]):
        query.feed(part)
        query.run()
    query.check()


@MODES
def test_a_killed_server_loses_nothing(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(4)
    query.feed(every[:2])
    running = query.start()
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        query.feed(every[2:])
        running.processAllAvailable()
    finally:
        running.stop()
    query.check()


def test_a_replayed_epoch_gives_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, APPEND)
    query.feed(batches(6))
    query.run()
    before = query.output.tables.pop(5)
    assert before.num_rows > 0
    for path in query.checkpoint.glob("commits/*5*"):
        path.unlink()
    query.run()
    query.check()
