"""Sessions: the oracle's answers in any order of rows, across restarts and losses; Spark's own where it has one."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from support import values
from support.cases import BASES, Timing, aggregates_for, make_batches, sums_for, whole_group_for
from support.engine import Output, ask_tailrace, check, run, spark_stream, tailrace_stream
from support.processes import kill, session_servers, wait_until
from support.simple import SCHEMA, SECOND, SUMS, Scripted
from tailrace.testing import Aggregate, Question, ScriptedSource, expected

WHOLE = (
    *SUMS,
    Aggregate("quantile", "v", "middle", argument=0.5),
    Aggregate("collect_list", "v", "all"),
)


def asked(aggregates: tuple[Aggregate, ...], mode: str) -> Question:
    return Question(("k",), aggregates, None, "ts", 4 * SECOND, mode, session_gap=3 * SECOND)


QUESTIONS = [asked(aggregates, mode) for aggregates in (SUMS, WHOLE) for mode in ("append", "update")]
EVERY = pytest.mark.parametrize(
    "question", QUESTIONS, ids=["append", "update", "whole groups, append", "whole groups, update"]
)


def batches(count: int, rows: int = 40) -> tuple[pa.Table, ...]:
    """Keys that come now and then: key ``k`` has rows in every (k + 2)th second, some up to six seconds behind."""
    made = []
    for epoch in range(count):
        picked = []
        for number in range(epoch * rows, (epoch + 1) * rows):
            k = number % 7
            second = 1000 + 5 * epoch + number % 5 - (6 if number % 13 == 0 else 0)
            picked.append((None if k == 6 else k, (second - second % (k + 2)) * SECOND + number % 3, number * number))
        columns = list(zip(*picked, strict=True))
        made.append(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
    return tuple(made)


@settings(max_examples=4, print_blob=True, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(["append", "update"]),
    whole=st.booleans(),
    shards=st.sampled_from([1, 3, 64]),
    combine=st.sampled_from(["on", "off"]),
    route=st.sampled_from(["direct", "shuffle"]),
)
def test_equals_the_oracle(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, mode: str, whole: bool, shards: int,
    combine: str, route: str,
) -> None:  # fmt: skip
    rng = random.Random(seed)
    keys = {
        f"k{i}": values.Pool.make(rng.choice(values.KEY_TYPES), rng, 3, nulls=True) for i in range(rng.randint(0, 2))
    }
    type_ = rng.choice(list(values.ARROW))
    columns = {"v": (type_, False), "s": ("int", True)}
    every = [Aggregate("count", None, "rows"), *aggregates_for("v", type_), *sums_for("s")]
    if whole:
        every += whole_group_for("v", type_, rng)
    gap = rng.choice([1, 3 * SECOND, 20 * SECOND])
    timing = Timing(rng.choice(BASES), 4 * SECOND, rng.choice([2, 9]) * SECOND, 60 * SECOND, 0.05)
    ntz = rng.random() < 0.3
    _, tables = make_batches(rng, keys, columns, timing, rng.choices([0, 1, 15, 50], k=6), ntz=ntz)
    delay = rng.choice([0, 5 * SECOND])
    question = Question(tuple(keys), tuple(every), None, "ts", delay, mode, session_gap=gap)
    options = {"shards": str(shards), "combine": combine, "route": route}
    output = ask_tailrace(spark, question, tables, tmp_path_factory.mktemp("sessions"), options, rng.choice([1, 3]))
    whole_table = pa.concat_tables(tables)
    scales = {f"{f}_s": values.largest_magnitude(whole_table["s"]) for f in ("sum", "avg", "stddev")}
    check(output, expected(spark, question, tables), ("session_window", *keys), scales)


@EVERY
def test_a_restarted_query_goes_on(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(8)
    for part in (every[:4], every[4:5], every[5:]):
        query.feed(part)
        query.run()
    query.check()
    assert sum(table.num_rows for table in query.output.tables.values()) > 20


@EVERY
def test_a_killed_server_loses_nothing(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(5)
    query.feed(every[:3])
    running = query.start()
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        query.feed(every[3:])
        running.processAllAvailable()
    finally:
        running.stop()
    query.check()


def test_a_replayed_epoch_gives_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, QUESTIONS[0])
    query.feed(batches(6))
    query.run()
    before = query.output.tables.pop(5)
    assert before.num_rows > 0
    for path in query.checkpoint.glob("commits/*5*"):
        path.unlink()
    query.run()
    query.check()


@settings(max_examples=2, print_blob=True, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), delay=st.integers(0, 12), gap=st.integers(1, 9))
def test_sparks_own_sessions_are_the_oracles_and_ours(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, delay: int, gap: int
) -> None:
    rng = random.Random(seed)
    tables = []
    for epoch in range(7):
        size = rng.choice([5, 25])
        times = [(10**9 + epoch * 6 + rng.randrange(-25, 12)) * SECOND + rng.randrange(2) for _ in range(size)]
        keys = [rng.choice([None, 1, 2, 3]) for _ in times]
        tables.append(pa.table([keys, times, [rng.randrange(100) for _ in times]], schema=SCHEMA))
    question = Question(("k",), SUMS, None, "ts", delay * SECOND, "append", "spark", session_gap=gap * SECOND)
    wanted = expected(spark, question, tables)
    path = tmp_path_factory.mktemp("sessions")
    source = ScriptedSource(path / "in", SCHEMA)
    source.add(tables)
    own: Output = run(spark_stream(source.stream(spark), question), question, path / "spark")
    check(own, wanted, ("session_window", "k"), {})
    ours = run(tailrace_stream(source.stream(spark), question), question, path / "tailrace", {"watermark": "spark"})
    check(ours, wanted, ("session_window", "k"), {})
