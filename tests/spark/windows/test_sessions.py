"""Sessions: the oracle's answers in any order of rows, across restarts and losses; Spark's own where it has one."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import tailrace as tr
from support import random_columns as values
from support.processes import kill, session_servers, wait_until
from support.queries.engines import Output, ask_tailrace, check, run, spark_stream, tailrace_stream
from support.queries.random_queries import BASES, Timing, aggregates_for, holistic_for, make_batches, sums_for
from support.queries.simple import SCHEMA, SECOND, SUMS, Scripted
from tailrace.testing import Aggregate, Question, ScriptedSource, Windows, expected
from tailrace.testing.compare import rows_of

HOLISTIC = (
    *SUMS,
    Aggregate("quantile", "v", "middle", argument=0.5),
    Aggregate("collect_list", "v", "all"),
)

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
Rows = list[dict[str, Any]]


def requested(aggregates: tuple[Aggregate, ...], mode: str) -> Question:
    return Question(("k",), aggregates, None, "ts", 4 * SECOND, mode, session_gap=3 * SECOND)


QUESTIONS = [requested(aggregates, mode) for aggregates in (SUMS, HOLISTIC) for mode in ("append", "update")]
KINDS = ("append", "update", "whole groups, append", "whole groups, update")


def kinds(*quick: str) -> pytest.MarkDecorator:
    """Every kind of question; those that are not quick only in the long profile."""
    parameters = [
        pytest.param(question, id=kind, marks=() if kind in quick else pytest.mark.long)
        for kind, question in zip(KINDS, QUESTIONS, strict=True)
    ]
    return pytest.mark.parametrize("question", parameters)


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


@settings(max_examples=40 if LONG else 3, print_blob=True, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(["append", "update", "complete"]),
    whole_groups=st.booleans(),
    shards=st.sampled_from([1, 3, 64]),
    combine=st.sampled_from(["on", "off"]),
    route=st.sampled_from(["direct", "shuffle"]),
)
def test_equals_the_oracle(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, mode: str, whole_groups: bool,
    shards: int, combine: str, route: str,
) -> None:  # fmt: skip
    rng = random.Random(seed)
    keys = {
        f"k{i}": values.Pool.make(rng.choice(values.KEY_TYPES), rng, 3, nulls=True) for i in range(rng.randint(0, 2))
    }
    type_ = rng.choice(list(values.ARROW))
    columns = {"v": (type_, False), "s": ("int", True)}
    every = [Aggregate("count", None, "rows"), *aggregates_for("v", type_), *sums_for("s")]
    if whole_groups:
        every += holistic_for("v", type_, rng)
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


@kinds("update", "whole groups, append")
def test_a_restarted_query_goes_on(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(8)
    for part in (every[:4], every[4:5], every[5:]):
        query.feed(part)
        query.run()
    query.check()
    assert sum(table.num_rows for table in query.output.tables.values()) > 20


@kinds("append", "whole groups, update")
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


@kinds("update")
def test_a_changelog_applied_to_a_table_gives_the_final_sessions(
    spark: SparkSession, tmp_path: Path, question: Question
) -> None:
    """Across a restart and the loss of a server."""
    if question.output_mode != "update":
        with pytest.raises(tr.AnalysisError, match="output mode update"):
            Scripted(spark, tmp_path, question).run(changelog="on")
        return
    query = Scripted(spark, tmp_path, question)
    every = batches(7)
    query.feed(every[:3])
    query.run(changelog="on")
    query.feed(every[3:5])
    running = query.start(changelog="on")
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        query.feed(every[5:])
        running.processAllAvailable()
    finally:
        running.stop()
    table: dict[Any, dict[str, Any]] = {}
    seen = set()
    for _, changes in sorted(query.output.tables.items()):
        rows = rows_of(changes)
        kept = {row["_change_type"]: [] for row in rows}
        for row in rows:
            kept[row.pop("_change_type")].append(row)
        seen |= kept.keys()
        for row in [*kept.get("delete", ()), *kept.get("update_preimage", ())]:
            assert table.pop((row["k"], row["session_window"])) == row
        for row in [*kept.get("insert", ()), *kept.get("update_postimage", ())]:
            assert table.setdefault((row["k"], row["session_window"]), row) is row
    assert {"insert", "delete"} <= seen
    far = pa.table([[99], [2000 * SECOND], [0]], schema=SCHEMA)
    closed = expected(spark, replace(question, output_mode="append"), [*every, far])
    final = [row for epoch in closed for row in rows_of(epoch.rows)]
    assert sorted(map(str, table.values())) == sorted(map(str, final)) and final


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


@pytest.mark.parametrize("mode", ["append", "complete"])
@settings(max_examples=10 if LONG else 1, print_blob=True, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), delay=st.integers(0, 12), gap=st.integers(1, 9))
def test_sparks_own_sessions_are_the_oracles_and_ours(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, mode: str, seed: int, delay: int, gap: int
) -> None:
    rng = random.Random(seed)
    tables = []
    for epoch in range(7):
        size = rng.choice([5, 25])
        times = [(10**9 + epoch * 6 + rng.randrange(-25, 12)) * SECOND + rng.randrange(2) for _ in range(size)]
        keys = [rng.choice([None, 1, 2, 3]) for _ in times]
        tables.append(pa.table([keys, times, [rng.randrange(100) for _ in times]], schema=SCHEMA))
    question = Question(("k",), SUMS, None, "ts", delay * SECOND, mode, "spark", session_gap=gap * SECOND)
    wanted = expected(spark, question, tables)
    path = tmp_path_factory.mktemp("sessions")
    source = ScriptedSource(path / "in", SCHEMA)
    source.add(tables)
    own: Output = run(spark_stream(source.stream(spark), question), question, path / "spark")
    check(own, wanted, ("session_window", "k"), {})
    ours = run(tailrace_stream(source.stream(spark), question), question, path / "tailrace", {"watermark": "spark"})
    check(ours, wanted, ("session_window", "k"), {})


def micros(row: dict[str, Any], column: str, edge: str) -> int:
    start, end = row[column]
    return int(start if edge == "start" else end)


def run_chain(spark: SparkSession, path: Path, first: Question, grouped: Callable[[Any], Any]) -> list[Rows]:
    source = ScriptedSource(path / "in", SCHEMA)
    source.add(batches(7))
    stream = grouped(tailrace_stream(source.stream(spark), first))
    output = run(stream, first, path / "check")
    return [rows_of(output.tables[epoch]) for epoch in sorted(output.tables)]


def test_windows_of_sessions(spark: SparkSession, tmp_path: Path) -> None:
    """A session counts in the window of its last moment, and is never late there."""
    size, first = 20 * SECOND, QUESTIONS[0]

    def grouped(stream: Any) -> Any:
        return stream.groupBy(tr.window("session_window", "20 seconds")).agg(
            tr.count().alias("sessions"), tr.sum("n").alias("rows")
        )

    got = run_chain(spark, tmp_path, first, grouped)
    open_: dict[int, list[int]] = {}
    shown = 0
    for epoch, found in zip(expected(spark, first, batches(7)), got, strict=True):
        for row in rows_of(epoch.rows):
            end = micros(row, "session_window", "end")
            open_.setdefault((end - 1) // size * size, []).append(row["n"])
        closed = [s for s in open_ if epoch.closing_watermark is not None and s + size <= epoch.closing_watermark]
        want = {(start, len(open_[start]), sum(open_.pop(start))) for start in closed}
        assert {(micros(row, "window", "start"), row["sessions"], row["rows"]) for row in found} == want
        shown += len(want)
    assert shown


def test_sessions_of_windows(spark: SparkSession, tmp_path: Path) -> None:
    """Sessions of a key's windows of two seconds that come at most three seconds after each other."""
    gap = 3 * SECOND
    first = Question(("k",), SUMS, Windows(2 * SECOND, 2 * SECOND), "ts", 4 * SECOND, "append")

    def grouped(stream: Any) -> Any:
        return stream.groupBy(tr.session_window("window", "3 seconds"), "k").agg(
            tr.count().alias("windows"), tr.median("n").alias("middle")
        )

    got = run_chain(spark, tmp_path, first, grouped)
    open_: dict[Any, list[tuple[int, int]]] = {}
    shown = 0
    for epoch, found in zip(expected(spark, first, batches(7)), got, strict=True):
        for row in rows_of(epoch.rows):
            open_.setdefault(row["k"], []).append((micros(row, "window", "end") - 1, row["n"]))
        want = set()
        for k, rows in open_.items():
            cuts = [
                0,
                *(i for i in range(1, len(rows)) if sorted(rows)[i][0] - sorted(rows)[i - 1][0] > gap),
                len(rows),
            ]
            pieces = [sorted(rows)[low:high] for low, high in itertools.pairwise(cuts)]
            closing = epoch.closing_watermark
            for piece in pieces:
                if piece and closing is not None and piece[-1][0] + gap <= closing:
                    middle = float(median(n for _, n in piece))
                    want.add((k, piece[0][0], piece[-1][0] + gap, len(piece), middle))
                    open_[k] = [row for row in open_[k] if row not in piece]
        bounds = [(micros(row, "session_window", "start"), micros(row, "session_window", "end")) for row in found]
        assert {(r["k"], *b, r["windows"], r["middle"]) for r, b in zip(found, bounds, strict=True)} == want
        shown += len(want)
    assert shown
