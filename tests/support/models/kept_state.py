"""What a query of each kind of the recovery suite keeps after an epoch, row by row in plain Python: an oracle.

It knows what queries mean and nothing of records, panes, sections or stores. Times are microseconds, a window is a pair
of them, and rows have the columns of ``recovery_kinds``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from support.crash.recovery_kinds import DELAY, SECOND, Script
from tailrace.testing.compare import rows_of

Row = dict[str, Any]
Kept = Counter[str]
Model = Callable[[Script, int], Iterable[Row]]


def shown(rows: Iterable[Row]) -> Kept:
    return Counter(repr(sorted(row.items(), key=lambda cell: cell[0])) for row in rows)


def rows_by_epoch(script: Script, epoch: int) -> list[list[Row]]:
    """Up to this epoch."""
    return [
        [row for batch in tasks for row in rows_of(pa.Table.from_batches([batch]))]
        for tasks in script.batches[: epoch + 1]
    ]


def all_rows(script: Script, epoch: int) -> list[Row]:
    return [row for rows in rows_by_epoch(script, epoch) for row in rows]


def incremental(rows: list[Row]) -> Row:
    """``count()``, ``sum("v")``, ``max("s")`` and ``first("v")``; of equal times the smallest value is first."""
    values = [row["v"] for row in rows if row["v"] is not None]
    texts = [row["s"].encode() for row in rows if row["s"] is not None]
    first = min(rows, key=lambda row: (row["ts"], row["v"] is not None, row["v"] or 0), default={"v": None})
    return {
        "count(1)": len(rows),
        "sum(v)": sum(values) if values else None,
        "max(s)": max(texts).decode() if texts else None,
        "first(v)": first["v"],
    }


def grouped(pairs: Iterable[tuple[tuple[Any, ...], Row]]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for name, row in pairs:
        found[name].append(row)
    return found


# Windows ------------------------------------------------------------------------------------------------------------


def windows(size: int, slide: int, *, closing: bool = True) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        mark = script.marks[epoch + 1] if closing else -(2**63)
        found = grouped(
            ((start, row["k"]), row)
            for row in all_rows(script, epoch)
            for start in _starts(row["ts"], size, slide)
            if start + size > mark
        )
        for (start, key), rows in found.items():
            yield {"window": (start, start + size), "k": key, **incremental(rows)}

    return model


def _starts(time: int, size: int, slide: int) -> Iterator[int]:
    start = time - time % slide
    while start > time - size:
        yield start
        start -= slide


def rows_of_windows(size: int) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        for row in all_rows(script, epoch):
            start = row["ts"] - row["ts"] % size
            if start + size > script.marks[epoch + 1]:
                yield {"window": (start, start + size), **_only(row, "k", "ts", "v", "s")}

    return model


def uneven(time: int) -> tuple[int, int]:
    start = time - time % (8 * SECOND)
    return (start, start + 5 * SECOND) if time - start < 5 * SECOND else (start + 5 * SECOND, start + 8 * SECOND)


def a_users_windows(script: Script, epoch: int) -> Iterator[Row]:
    rows = [row for row in all_rows(script, epoch) if uneven(row["ts"])[1] > script.marks[epoch + 1]]
    for (window, key), of in grouped(((uneven(row["ts"]), row["k"]), row) for row in rows).items():
        yield {"window": window, "k": key, **incremental(of)}


def rows_of_a_users_windows(script: Script, epoch: int) -> Iterator[Row]:
    for row in all_rows(script, epoch):
        if uneven(row["ts"])[1] > script.marks[epoch + 1]:
            yield {"window": uneven(row["ts"]), **_only(row, "k", "ts", "v", "s")}


def rolling(script: Script, epoch: int) -> Iterator[Row]:
    for (key,), rows in grouped(((row["k"],), row) for row in all_rows(script, epoch)).items():
        yield {"k": key, **incremental(rows)}


def rows_of_keys(script: Script, epoch: int) -> Iterator[Row]:
    return (_only(row, "k", "ts", "v", "s") for row in all_rows(script, epoch))


# Sessions -----------------------------------------------------------------------------------------------------------


def _open_sessions(
    script: Script, epoch: int, end_of: Callable[[Row], int], *, closing: bool
) -> Iterator[tuple[tuple[int, int], Any, list[Row]]]:
    """Rows that are not late, put together when they touch; a session that has ended takes no more rows."""
    open_: dict[Any, list[tuple[int, int, list[Row]]]] = defaultdict(list)
    for number, rows in enumerate(rows_by_epoch(script, epoch)):
        late_before, mark = script.marks[number], script.marks[number + 1]
        for row in rows:
            start, end = row["ts"], end_of(row)
            if end <= late_before or end <= start:
                continue
            touching = [each for each in open_[row["k"]] if each[0] <= end and start <= each[1]]
            apart = [each for each in open_[row["k"]] if each not in touching]
            one = (
                min([start, *(each[0] for each in touching)]),
                max([end, *(each[1] for each in touching)]),
                [row, *(each for one in touching for each in one[2])],
            )
            open_[row["k"]] = [*apart, one]
        if closing:
            open_ = defaultdict(list, {key: [one for one in own if one[1] > mark] for key, own in open_.items()})
    for key, own in open_.items():
        for start, end, rows in own:
            yield (start, end), key, rows


def sessions(end_of: Callable[[Row], int], *, closing: bool = True) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        for window, key, rows in _open_sessions(script, epoch, end_of, closing=closing):
            yield {"session_window": window, "k": key, **incremental(rows)}

    return model


def rows_of_sessions(end_of: Callable[[Row], int], *columns: str, closing: bool = True) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        for window, _, rows in _open_sessions(script, epoch, end_of, closing=closing):
            for row in rows:
                yield {"session_window": window, **_only(row, "k", "ts", "v", "s", *columns)}

    return model


def fixed_end(row: Row) -> int:
    return row["ts"] + 2 * SECOND


def own_end(row: Row) -> int:
    return row["until"]


# Windows by count ---------------------------------------------------------------------------------------------------


def _in_order(script: Script, epoch: int) -> dict[Any, list[Row]]:
    """Of each key its rows as they count: by epoch, then by time, then by the other columns, null first."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for rows in rows_by_epoch(script, epoch):
        order = sorted(
            rows,
            key=lambda row: (row["ts"], _null_first(row["v"]), _text_order(row["s"])),
        )
        for row in order:
            found[row["k"]].append(row)
    return found


def _text_order(text: str | None) -> tuple[bool, bytes]:
    return (False, b"") if text is None else (True, text.encode())


def _null_first(value: int | None) -> tuple[bool, int]:
    return (False, 0) if value is None else (True, value)


def by_count(size: int, slide: int) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        for key, rows in _in_order(script, epoch).items():
            number = 0 if len(rows) < size else (len(rows) - size) // slide + 1
            while number * slide < len(rows) or (size == slide and number * slide == len(rows)):
                window = rows[number * slide : number * slide + size]
                yield {"window": number, "k": key, **incremental(window), "_rows": len(rows)}
                number += 1

    return model


def rows_by_count(size: int) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        for key, rows in _in_order(script, epoch).items():
            number = len(rows) // size
            for row in rows[number * size :]:
                yield {"window": number, **_only(row, "k", "ts", "v", "s"), "_rows": len(rows)}
            if len(rows) % size == 0:
                yield {"window": None, "k": key, "ts": None, "v": None, "s": None, "_rows": len(rows)}

    return model


# Others -------------------------------------------------------------------------------------------------------------


def duplicates(script: Script, epoch: int) -> Iterator[Row]:
    on_time = [
        row
        for number, rows in enumerate(rows_by_epoch(script, epoch))
        for row in rows
        if row["ts"] > script.marks[number]
    ]
    return ({"k": k, "v": v} for k, v in {(row["k"], row["v"]) for row in on_time})


def duplicates_within(script: Script, epoch: int) -> Iterator[Row]:
    known: dict[tuple[Any, Any], int] = {}
    for number, rows in enumerate(rows_by_epoch(script, epoch)):
        late_before, mark = script.marks[number], script.marks[number + 1]
        for row in sorted(rows, key=lambda row: row["ts"]):
            if row["ts"] > late_before and (row["k"], row["v"]) not in known:
                known[row["k"], row["v"]] = row["ts"] + DELAY
        known = {key: expiry for key, expiry in known.items() if expiry > mark}
    return ({"k": k, "v": v, "_expires": expiry} for (k, v), expiry in known.items())


def best_rows(script: Script, epoch: int) -> Iterator[Row]:
    for rows in grouped(((row["k"],), row) for row in all_rows(script, epoch)).values():
        order = sorted(rows, key=lambda row: (_text_order(row["s"]), row["until"]))
        order.sort(key=lambda row: row["ts"])
        order.sort(key=lambda row: _null_first(row["v"]), reverse=True)
        for rank, row in enumerate(order[:3], 1):
            yield {**row, "rank": rank}


# Joins --------------------------------------------------------------------------------------------------------------


def _sides(script: Script, epoch: int) -> Iterator[tuple[int, Row]]:
    """(epoch, row) of rows that are not late and have a key."""
    for number, rows in enumerate(rows_by_epoch(script, epoch)):
        for row in rows:
            if row["__time"] >= script.marks[number] and row["k"] is not None:
                yield number, row


def _of_join(row: Row, **own: Any) -> Row:
    plain = {name: value for name, value in row.items() if not name.startswith("__")}
    return {**plain, "_side": "right" if row["__side"] else "left", "_time": row["__time"], **own}


def _match(left: Row, right: Row) -> bool:
    return left["k"] == right["k"] and -SECOND <= right["__time"] - left["__time"] <= 2 * SECOND


def interval_join(*outer: str) -> Model:
    def model(script: Script, epoch: int) -> Iterator[Row]:
        rows = [row for _, row in _sides(script, epoch)]
        sides = {side: [row for row in rows if row["__side"] is side] for side in (False, True)}
        for row in rows:
            right = row["__side"]
            if row["__time"] + (SECOND if right else 2 * SECOND) < script.marks[epoch + 1]:
                continue
            pairs = [(other, row) if right else (row, other) for other in sides[not right]]
            matched = any(_match(*pair) for pair in pairs) if ("right" if right else "left") in outer else None
            yield _of_join(row, _matched=matched)

    return model


def semi_join(script: Script, epoch: int) -> Iterator[Row]:
    rows = list(_sides(script, epoch))
    rights = [(number, row) for number, row in rows if row["__side"]]
    for number, row in rows:
        if row["__time"] + (SECOND if row["__side"] else 2 * SECOND) < script.marks[epoch + 1]:
            continue
        if row["__side"]:
            yield _of_join(row, _matched=None)
            continue
        epochs = [since for since, right in rights if _match(row, right)]
        if not any(since <= number for since in epochs):  # else it was given at once, and not kept
            yield _of_join(row, _matched=bool(epochs))


def window_join(*without_key: str) -> Model:
    """``without_key``: sides whose rows are given though they have no key."""

    def model(script: Script, epoch: int) -> Iterator[Row]:
        for row in all_rows(script, epoch):
            start = row["__time"] - row["__time"] % (4 * SECOND)
            own = _of_join(row, window=(start, start + 4 * SECOND))
            if start + 4 * SECOND > script.marks[epoch + 1] and (row["k"] is not None or own["_side"] in without_key):
                yield own

    return model


def join_with_ttl(script: Script, epoch: int) -> Iterator[Row]:
    for _, row in _sides(script, epoch):
        if row["__time"] + 3 * SECOND >= script.marks[epoch + 1]:
            yield _of_join(row)


def _only(row: Row, *columns: str) -> Row:
    return {name: row[name] for name in columns}


MODELS: dict[str, Model] = {
    "windows": windows(6 * SECOND, 4 * SECOND),
    "windows, changes": windows(6 * SECOND, 4 * SECOND),
    "windows, complete": windows(6 * SECOND, 4 * SECOND, closing=False),
    "rolling": rolling,
    "rows by window": rows_of_windows(6 * SECOND),
    "rows by window in lists": rows_of_windows(6 * SECOND),
    "rows of a key": rows_of_keys,
    "sessions": sessions(fixed_end),
    "sessions, changes": sessions(fixed_end),
    "sessions, complete": sessions(fixed_end, closing=False),
    "rows by session": rows_of_sessions(fixed_end),
    "rows by session, complete": rows_of_sessions(fixed_end, closing=False),
    "sessions of own gaps": sessions(own_end),
    "sessions of own gaps, changes": sessions(own_end),
    "rows by session of own gaps": rows_of_sessions(own_end, "until"),
    "best rows of sessions": rows_of_sessions(fixed_end, "until"),
    "best rows of sessions of own gaps": rows_of_sessions(own_end, "until"),
    "windows by count": by_count(4, 4),
    "windows by count that overlap": by_count(6, 4),
    "rows by count": rows_by_count(4),
    "a user's windows": a_users_windows,
    "rows of a user's windows": rows_of_a_users_windows,
    "duplicates": duplicates,
    "duplicates within": duplicates_within,
    "best rows": best_rows,
    "interval join": interval_join("left"),
    "full outer interval join": interval_join("left", "right"),
    "semi interval join": semi_join,
    "window join": window_join("left"),
    "full outer window join": window_join("left", "right"),
    "join with ttl": join_with_ttl,
}
"""Of the kinds that a few lines can say all about."""
