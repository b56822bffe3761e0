"""Operators behind a join: every joined row reaches them in time, also those that waited for a match in vain.

The oracle: what nested loops say of each epoch, aggregated again in plain Python. What is behind a left outer join
closes later than the join's own watermark, by as much as a left row may wait.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.draw import drawn as drawn_cases
from support.models.join import NO_WATERMARK, Answer
from support.queries.join_query import KINDS, SECOND, Expected, JoinRun, Kept, draw, expected, run

SIZE, SLIDE, GAP = 10 * SECOND, 5 * SECOND, 2 * SECOND
EPOCHS = 8
Wanted = list[Counter[str]]
WAITS = {"interval": 6 * SECOND, "ttl": 8 * SECOND, "valid right": 0}
"""How long a left row waits for a match; a right one no longer."""


def marks(wanted_by: Expected, lag: int) -> list[int]:
    """The watermark of an operator so far behind, by epoch."""
    return [mark if mark == NO_WATERMARK else mark - lag for mark in wanted_by.watermarks[1:]]


def totals(values: Iterable[Answer]) -> tuple[int, int | None]:
    rows = [None if each.right is None else each.right.values[1] for each in values]
    return len(rows), max((row for row in rows if row is not None), default=None)


FIGURES = (tr.count().alias("n"), tr.max("b").alias("top"))


def windows_over(wanted_by: Expected, lag: int) -> Wanted:
    """Sliding windows by site: each is emitted once, with every joined row that ever came for it."""
    groups: dict[tuple[int, Any], list[Answer]] = defaultdict(list)
    for answers in wanted_by.answers:
        for answer in answers:
            last = answer.time // SLIDE * SLIDE
            for start in range(last, answer.time - SIZE, -SLIDE):
                groups[start, answer.key[0]].append(answer)
    wanted: Wanted = []
    closed = NO_WATERMARK
    for mark in marks(wanted_by, lag):
        done = [key for key in groups if closed < key[0] + SIZE <= mark]
        closed = mark
        wanted.append(
            Counter(repr(((start, start + SIZE), site, *totals(groups[start, site]))) for start, site in done)
        )
    return wanted


def ask_windows(pairs: Any) -> Any:
    return pairs.groupBy(tr.window("at", "10 seconds", "5 seconds"), "site").agg(*FIGURES)


def sessions_over(wanted_by: Expected, lag: int) -> Wanted:
    kept: dict[Any, list[Answer]] = defaultdict(list)
    wanted: Wanted = []
    for answers, mark in zip(wanted_by.answers, marks(wanted_by, lag), strict=True):
        for answer in answers:
            kept[answer.key[0]].append(answer)
        shown: Counter[str] = Counter()
        for site, rows in kept.items():
            rows.sort(key=lambda answer: answer.time)
            pieces: list[list[Answer]] = []
            for answer in rows:
                if pieces and answer.time - pieces[-1][-1].time <= GAP:
                    pieces[-1].append(answer)
                else:
                    pieces.append([answer])
            ended = [piece for piece in pieces if piece[-1].time + GAP <= mark]
            for piece in ended:
                shown[repr(((piece[0].time, piece[-1].time + GAP), site, *totals(piece)))] += 1
            kept[site] = [answer for piece in pieces if piece not in ended for answer in piece]
        wanted.append(shown)
    return wanted


def ask_sessions(pairs: Any) -> Any:
    return pairs.groupBy(tr.session_window("at", "2 seconds"), "site").agg(*FIGURES)


def rolling_over(wanted_by: Expected, lag: int) -> Wanted:
    """The groups that an epoch has touched, as they are after it."""
    groups: dict[Any, list[Answer]] = defaultdict(list)
    wanted: Wanted = []
    for answers in wanted_by.answers:
        for answer in answers:
            groups[answer.key[0]].append(answer)
        touched = {answer.key[0] for answer in answers}
        wanted.append(Counter(repr((site, *totals(groups[site]))) for site in touched))
    return wanted


def ask_rolling(pairs: Any) -> Any:
    return pairs.groupBy("site").agg(*FIGURES)


CHAINS: dict[str, tuple[Callable[[Any], Any], Callable[[Expected, int], Wanted], str]] = {
    "window": (ask_windows, windows_over, "append"),
    "session": (ask_sessions, sessions_over, "append"),
    "rolling": (ask_rolling, rolling_over, "update"),
}
CASES = [
    (behind, kind, how)
    for behind in CHAINS
    for kind in WAITS
    for how in ("inner", "left_outer", "full_outer")
    if (kind, how) != ("valid right", "full_outer")  # a right row may wait for ever
]
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


@pytest.mark.parametrize(("behind", "kind", "how"), CASES if LONG else drawn_cases(CASES, __name__))
def test_every_joined_row_reaches_what_is_behind(
    spark: SparkSession, tmp_path: Path, behind: str, kind: str, how: str
) -> None:
    ask, answer, mode = CHAINS[behind]
    joined, kept = JoinRun(spark, tmp_path), Kept()
    lag = 0 if how == "inner" else WAITS[kind]
    every = draw(EPOCHS, 14, lambda *sides: sum(map(len, answer(expected(KINDS[kind], how, *sides, False), lag))) > 8)
    for part in [slice(0, 5), slice(5, None)] if LONG else [slice(None)]:  # with a restart
        joined.feed(*(side[part] for side in every))
        run(ask(joined.stream(KINDS[kind], how, eventTime="at")), tmp_path / "check", kept, mode)
    wanted_by = expected(KINDS[kind], how, *joined.fed, False)
    kept.check(answer(wanted_by, lag))
    dropped = sum(report["state"]["numRowsDroppedByWatermark"] for report in kept.progress)
    assert dropped == wanted_by.late, "only rows that came late from the source are dropped"
    operators = kept.progress[-1]["stateOperators"]
    assert [each["operatorName"] for each in operators] == ["join", "aggregate-2"]
    assert "prefetchHits" in operators[0]["customMetrics"]


def of_same_windows(wanted_by: Expected) -> Wanted:
    wanted = []
    for answers in wanted_by.answers:
        groups: dict[int, list[Answer]] = defaultdict(list)
        for answer in answers:
            assert answer.window is not None
            groups[answer.window].append(answer)
        wanted.append(Counter(repr(((start, start + SIZE), *totals(rows))) for start, rows in groups.items()))
    return wanted


def of_longer_windows(wanted_by: Expected) -> Wanted:
    """Twenty seconds, by the last moment of a joined row's own window."""
    groups: dict[int, list[Answer]] = defaultdict(list)
    wanted = []
    for answers, mark in zip(wanted_by.answers, marks(wanted_by, 0), strict=True):
        for answer in answers:
            groups[answer.time // (2 * SIZE) * 2 * SIZE].append(answer)
        done = [start for start in groups if start + 2 * SIZE <= mark]
        wanted.append(Counter(repr(((start, start + 2 * SIZE), *totals(groups.pop(start)))) for start in done))
    return wanted


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left_outer"])
@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
@pytest.mark.parametrize("longer", [False, True], ids=["same", "longer"])
def test_windows_behind_a_window_join(spark: SparkSession, tmp_path: Path, kind: str, how: str, longer: bool) -> None:
    joined = JoinRun(spark, tmp_path)
    answer = of_longer_windows if longer else of_same_windows
    joined.feed(*draw(EPOCHS, 14, lambda *sides: any(answer(expected(KINDS[kind], how, *sides, False)))))
    pairs = joined.stream(KINDS[kind], how)
    groups = pairs.groupBy(tr.window("window", "20 seconds")) if longer else pairs.groupBy("window")
    kept = run(groups.agg(*FIGURES), tmp_path / "check")
    kept.check(answer(expected(KINDS[kind], how, *joined.fed, False)))


def of_their_windows(wanted_by: Expected) -> Wanted:
    """The largest of the counts that sites have in a window, and how many sites there are."""
    wanted: Wanted = []
    for epoch in windows_over(wanted_by, WAITS["interval"]):
        groups: dict[Any, list[int]] = defaultdict(list)
        for window, _, count, _ in map(eval, epoch.elements()):
            groups[window].append(count)
        wanted.append(Counter(repr((window, max(counts), len(counts))) for window, counts in groups.items()))
    return wanted


@pytest.mark.long
def test_three_operators(spark: SparkSession, tmp_path: Path) -> None:
    joined = JoinRun(spark, tmp_path)
    joined.feed(
        *draw(
            EPOCHS,
            14,
            lambda *sides: any(of_their_windows(expected(KINDS["interval"], "left_outer", *sides, False))),
        )
    )
    counts = ask_windows(joined.stream(KINDS["interval"], "left", eventTime="at"))
    kept = run(counts.groupBy("window").agg(tr.max("n").alias("most"), tr.count().alias("sites")), tmp_path / "check")
    kept.check(of_their_windows(expected(KINDS["interval"], "left_outer", *joined.fed, False)))
