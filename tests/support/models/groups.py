"""Which rows are a group and when it is emitted, for every kind of window, row by row in plain Python: an oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import tailrace as tr
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import DynamicSessionWindow
from tailrace.ids import MIN_MICROS

Rows = list[dict[str, Any]]
SECOND = 1_000_000
EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shape:
    """How rows are grouped. ``groups``: of each group that is emitted, its epoch, what names it, and its rows."""

    grouped: Callable[[Stream], Any]
    mode: OutputMode
    groups: Callable[[list[Rows]], Iterator[tuple[int, Any, Rows]]]


def micros(time: datetime) -> int:
    return (time - EPOCH_START) // timedelta(microseconds=1)


def windows(size: int, slide: int) -> Callable[[list[Rows]], Iterator[tuple[int, Any, Rows]]]:
    """Windows that close by the largest time seen, this epoch's included."""

    def groups(epochs: list[Rows]) -> Iterator[tuple[int, Any, Rows]]:
        found: dict[Any, Rows] = defaultdict(list)
        closed: set[Any] = set()
        watermark = MIN_MICROS
        for epoch, rows in enumerate(epochs):
            for row in rows:
                time = micros(row["ts"])
                start = time - time % slide
                while start > time - size:
                    found[row["auction"], start].append(row)
                    start -= slide
            watermark = max(watermark, *(micros(row["ts"]) for row in rows))
            for key in sorted(found):
                if key not in closed and key[1] + size <= watermark:
                    closed.add(key)
                    yield epoch, key, found[key]

    return groups


def rolling(epochs: list[Rows]) -> Iterator[tuple[int, Any, Rows]]:
    found: dict[Any, Rows] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        for row in rows:
            found[row["auction"]].append(row)
        for key in {row["auction"] for row in rows}:
            yield epoch, (key,), list(found[key])


def sessions(end_of: Callable[[dict[str, Any]], int]) -> Callable[[list[Rows]], Iterator[tuple[int, Any, Rows]]]:
    """``end_of``: when the session ends that a row would make alone."""

    def groups(epochs: list[Rows]) -> Iterator[tuple[int, Any, Rows]]:
        kept: dict[Any, Rows] = defaultdict(list)
        watermark = MIN_MICROS
        for epoch, rows in enumerate(epochs):
            for row in rows:
                kept[row["auction"]].append(row)
            watermark = max(watermark, *(micros(row["ts"]) for row in rows))
            for key, held in kept.items():
                pieces: list[Rows] = []
                for row in sorted(held, key=lambda row: row["ts"]):
                    if pieces and micros(row["ts"]) <= max(map(end_of, pieces[-1])):
                        pieces[-1].append(row)
                    else:
                        pieces.append([row])
                ended = [piece for piece in pieces if max(map(end_of, piece)) <= watermark]
                kept[key] = [row for piece in pieces if piece not in ended for row in piece]
                for piece in ended:
                    yield epoch, (key, micros(piece[0]["ts"])), piece

    return groups


def by_count(size: int, slide: int) -> Callable[[list[Rows]], Iterator[tuple[int, Any, Rows]]]:
    def groups(epochs: list[Rows]) -> Iterator[tuple[int, Any, Rows]]:
        came: dict[Any, Rows] = defaultdict(list)
        for epoch, rows in enumerate(epochs):
            before = {key: len(held) for key, held in came.items()}
            for row in sorted(rows, key=lambda row: row["ts"]):  # times differ, so that nothing else decides
                came[row["auction"]].append(row)
            for key, held in came.items():
                for number in range(len(held)):
                    end = number * slide + size
                    if before.get(key, 0) < end <= len(held):
                        yield epoch, (key, number), held[number * slide : end]

    return groups


SHAPES = {
    "tumbling": Shape(
        lambda s: s.groupBy("auction", tr.window("ts", "4 seconds")), OutputMode.APPEND, windows(4 * SECOND, 4 * SECOND)
    ),
    "sliding": Shape(
        lambda s: s.groupBy("auction", tr.window("ts", "6 seconds", "2 seconds")),
        OutputMode.APPEND,
        windows(6 * SECOND, 2 * SECOND),
    ),
    "rolling": Shape(lambda s: s.groupBy("auction"), OutputMode.UPDATE, rolling),
    "session": Shape(
        lambda s: s.groupBy("auction", tr.session_window("ts", "1 second")),
        OutputMode.APPEND,
        sessions(lambda row: micros(row["ts"]) + SECOND),
    ),
    "dynamic session": Shape(
        lambda s: s.groupBy("auction", DynamicSessionWindow("ts", "until")),
        OutputMode.APPEND,
        sessions(lambda row: micros(row["until"])),
    ),
    "count": Shape(lambda s: s.groupBy("auction", tr.count_window(7)), OutputMode.APPEND, by_count(7, 7)),
    "overlapping count": Shape(
        lambda s: s.groupBy("auction", tr.count_window(7, 3)), OutputMode.APPEND, by_count(7, 3)
    ),
}
