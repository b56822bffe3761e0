"""Joins of two streams through Spark, against nested loops over the whole input. Chains: ``test_join_chains``."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.draw import drawn as drawn_cases
from support.processes import kill, session_servers, wait_until
from support.queries.join_query import KEYS, KINDS, SCHEMAS, SECOND, JoinRun, Kept, draw, expected, run, start
from tailrace.testing import ScriptedSource

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EPOCHS = 6
OUTER = ("left_outer", "right_outer", "full_outer")
CASES = [
    (kind, how) for kind in KINDS for how in ("inner", "left_semi", *OUTER) if kind != "keys alone" or how not in OUTER
]
WINDOWS = ("tumbling", "sliding")


def says_much(kind: str, how: str, *sides: tuple[pa.Table, ...]) -> bool:
    wanted_rows = expected(KINDS[kind], how, *sides, False)
    alone = [answer for answers in wanted_rows.answers for answer in answers if answer.alone]
    return sum(map(len, wanted_rows.epochs)) > 20 and (how == "inner" or len(alone) > 3)


def drawn(kind: str, how: str, rows: int = 14) -> tuple[tuple[pa.Table, ...], tuple[pa.Table, ...]]:
    return draw(EPOCHS, rows, partial(says_much, kind, how))


def sampled() -> list[tuple[str, str]]:
    """All, or one of those with windows and one of the others: each start of a query costs seconds."""
    if LONG:
        return CASES
    parts = [[case for case in CASES if (case[0] in WINDOWS) == with_one] for with_one in (False, True)]
    return [one for part in parts for one in drawn_cases(part, __name__)]


@pytest.mark.parametrize(("kind", "how"), sampled())
def test_every_pair_comes_once_in_its_epoch(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    case = KINDS[kind]
    timed = case.delays is not None and "window" not in case.requested
    joined = JoinRun(spark, tmp_path)
    joined.feed(*drawn(kind, how, rows=20))
    kept = run(joined.stream(case, how, eventTime="at" if timed else None), tmp_path / "check")
    wanted = expected(case, how, *joined.fed, timed)
    kept.check(wanted.epochs)
    operators = [report["stateOperators"][0] for report in kept.progress]
    assert {(each["operatorName"], each["store"]) for each in operators} == {
        ("join", "AAR" if kind in WINDOWS else "AUR")
    }
    assert sum(each["numRowsDroppedByWatermark"] for each in operators) == wanted.late
    assert sum(each["numRowsDroppedWithoutEventTime"] for each in operators) == wanted.timeless


def test_a_join_goes_on_after_a_restart_and_a_replay_by_another_route(spark: SparkSession, tmp_path: Path) -> None:
    """And where the join itself was changed, it does not."""
    case = KINDS["interval"]
    joined = JoinRun(spark, tmp_path)
    every = drawn("interval", "full_outer")
    checkpoint, kept = tmp_path / "check", Kept()
    for part, options in ((slice(0, 3), {"route": "direct"}), (slice(3, None), {"route": "shuffle"})):
        joined.feed(*(side[part] for side in every))
        run(joined.stream(case, "full"), checkpoint, kept, **options)
        if part.start == 0:
            # As if Spark had died before it wrote that the epoch is done: it replays it.
            for name in ("2", ".2.crc"):
                (checkpoint / "commits" / name).unlink(missing_ok=True)
    assert kept.seen_twice == {2}
    kept.check(expected(case, "full_outer", *joined.fed, False).epochs)
    for changed, wanted_rows in (
        (joined.stream(case, "inner"), "how: was full_outer, is now inner"),
        (
            joined.stream(replace(case, requested={"within": ("-4 seconds", "7 seconds")}), "full"),
            "is now where right time - left time is from -4 seconds to 7 seconds",
        ),
        (joined.stream(KINDS["valid left"], "full"), "is now while the left one is valid"),
        (joined.stream(case, "full", eventTime="at"), "output columns: was"),
    ):
        with pytest.raises(tr.CheckpointError, match="made by another query") as refused:
            run(changed, checkpoint)
        assert wanted_rows in str(refused.value)


def test_both_sides_may_be_one_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """By keys alone, so that nothing is late, nothing has a time, and nothing is forgotten."""
    case = KINDS["keys alone"]
    lefts, _ = drawn("keys alone", "inner")
    source = ScriptedSource(tmp_path / "in", SCHEMAS[0])
    source.add(lefts)
    frame = source.stream(spark)
    number = F.regexp_extract("a", "[0-9]+", 0).cast("bigint")
    other = frame.select(*KEYS, F.col("lt").alias("rt"), number.alias("b"), F.col("ends").alias("until"))
    kept = run(tr.stream(frame).join(tr.stream(other), list(KEYS)), tmp_path / "check")
    rights = [_as_right(table) for table in lefts]
    kept.check(expected(case, "inner", lefts, rights, False).epochs)


def _as_right(table: pa.Table) -> pa.Table:
    numbers = [int(text.split()[1]) for text in table["a"].to_pylist()]
    columns = [*table.columns[:4], pa.array(numbers, pa.int64()), table["ends"]]
    return pa.table(
        [column.cast(each.type) for column, each in zip(columns, SCHEMAS[1], strict=True)], schema=SCHEMAS[1]
    )


@pytest.mark.parametrize("files", [True, pytest.param(False, marks=pytest.mark.long)], ids=["empty files", "no files"])
def test_time_stands_still_while_one_side_sends_nothing(spark: SparkSession, tmp_path: Path, files: bool) -> None:
    """Left rows pile up for hours of event time; then right rows come as old as the first ones, and meet them."""
    case = KINDS["interval"]
    joined = JoinRun(spark, tmp_path)
    lefts, rights = drawn("interval", "left_outer", rows=20)
    far = [_hours_later(table) for table in lefts[3:]]
    nothing = [SCHEMAS[1].empty_table()] * EPOCHS
    silent = [*nothing, *rights]
    checkpoint, kept = tmp_path / "check", Kept()
    if files:
        joined.feed([*lefts[:3], *far], silent)
        run(joined.stream(case, "left"), checkpoint, kept)
    else:
        joined.feed([*lefts[:3], *far], [])
        query = start(joined.stream(case, "left"), checkpoint, kept, now=False)
        try:
            query.processAllAvailable()
            joined.feed([], rights)
            query.processAllAvailable()
            kept.progress += query.recentProgress
        finally:
            query.stop()
    wanted = expected(case, "left_outer", [*lefts[:3], *far], silent, False)
    kept.check(wanted.epochs)
    shown = [report["eventTime"].get("watermark") for report in kept.progress]
    assert shown[:EPOCHS] == [None] * EPOCHS and shown[-1] is not None
    assert any(answer.right is not None for answers in wanted.answers[EPOCHS:] for answer in answers)


def _hours_later(table: pa.Table) -> pa.Table:
    times = pa.array([None if t is None else t + 7200 * SECOND for t in table["lt"].cast(pa.int64()).to_pylist()])
    return table.set_column(3, "lt", times.cast(SCHEMAS[0].field("lt").type))


TYPES: dict[str, tuple[str, list[Any]]] = {
    "a.b": ("tinyint", [1, -128]),
    "k k": ("binary", [b"", b"\x00\xff"]),
    "`": ("date", [date(2024, 2, 29), date(1, 1, 1)]),
    "when": ("timestamp_ntz", [datetime(2024, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    "d": ("decimal(38,10)", [Decimal("1e-10"), Decimal("-9999999999999999999999999999.5")]),
}
"""Columns of all kinds under all kinds of names, of two rows."""


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left_outer"])
def test_names_and_types(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """The first row of each side meets the other's; the second ones differ in one key each, and in time."""
    times = {"lt": "timestamp_ntz", "rt": "timestamp_ntz"}
    moment = datetime(2024, 5, 5)
    sides = []
    for side, (time, (odd, type_, values)) in enumerate(
        zip(times, [("x.y", "float", [float("nan"), None]), ("x y", "double", [-0.0, float("inf")])], strict=True)
    ):
        columns = {
            **{name: kind for name, (kind, _) in TYPES.items()},
            time: times[time],
            odd: type_,
            f"end{side}": "timestamp_ntz",
        }
        ddl = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())
        keys = list(zip(*(values for _, values in TYPES.values()), strict=True))
        if side:
            keys[1] = (*keys[1][:-1], Decimal("1"))
        rows = [(*key, moment, value, None) for key, value in zip(keys, values, strict=True)]
        path = str(tmp_path / f"side{side}")
        spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(path)
        sides.append(tr.stream(spark.readStream.schema(ddl).parquet(path)).withWatermark(time, "1 second"))
    names = [f"`{name.replace('`', '``')}`" for name in TYPES]
    kept = run(
        sides[0].join(sides[1], names, how, within=("0 seconds", "0 seconds"), eventTime="at.at"), tmp_path / "check"
    )
    (row,) = kept.rows[0]
    assert list(row) == [*TYPES, "lt", "x.y", "end0", "rt", "x y", "end1", "at.at"]
    assert [row["a.b"], row["k k"], row["d"]] == [1, b"", Decimal("1e-10")]
    assert row["lt"] == row["rt"] == row["at.at"] == int((moment - datetime(1970, 1, 1)).total_seconds() * SECOND)
    assert math.isnan(row["x.y"]) and math.copysign(1, row["x y"]) == -1


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "full_outer"])
@pytest.mark.parametrize("kind", ["interval", "sliding", "ttl"])
def test_windows_may_close_by_sparks_rule(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    """Nothing is lost, and nothing comes twice: rows only come an epoch later."""
    joined = JoinRun(spark, tmp_path)
    joined.feed(*drawn(kind, how))
    kept = run(joined.stream(KINDS[kind], how), tmp_path / "check", watermark="spark")
    wanted = expected(KINDS[kind], how, *joined.fed, False, rule="spark")
    kept.check(wanted.epochs)


@pytest.mark.long
@pytest.mark.parametrize("how", ["full_outer", "left_semi"])
@pytest.mark.parametrize("kind", ["interval", "sliding", "valid left"])
def test_a_join_larger_than_its_memory(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    joined = JoinRun(spark, tmp_path)
    lefts, rights = drawn(kind, how, rows=150)
    joined.feed([_longer(table) for table in lefts], rights)
    kept = run(joined.stream(KINDS[kind], how), tmp_path / "check", memory="1MB")
    kept.check(expected(KINDS[kind], how, *joined.fed, False).epochs)
    assert any(report["state"]["diskUsedBytes"] for report in kept.progress)


def _longer(table: pa.Table) -> pa.Table:
    """With texts of five kilobytes."""
    texts = pa.array([text + "-" * 5_000 for text in table["a"].to_pylist()], pa.string())
    return table.set_column(4, "a", texts)


class KillsAServer(Kept):
    """Inside the third epoch's sink."""

    def save(self, batch: DataFrame, epoch: int) -> None:
        super().save(batch, epoch)
        if epoch == 2:
            assert sum(kill(server.pid) for server in session_servers()) == 1
            wait_until("the server's end", lambda: not session_servers(), 10)


@pytest.mark.long
@pytest.mark.parametrize("how", ["full_outer", "left_semi"])
@pytest.mark.parametrize("kind", ["interval", "sliding", "valid right", "ttl"])
def test_a_killed_server_loses_no_row(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    joined = JoinRun(spark, tmp_path)
    joined.feed(*drawn(kind, how))
    kept = run(joined.stream(KINDS[kind], how), tmp_path / "check", KillsAServer())
    assert [report["tries"] for report in kept.progress] == [1, 1, 1, 2, 1, 1]
    kept.check(expected(KINDS[kind], how, *joined.fed, False).epochs)
