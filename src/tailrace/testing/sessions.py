"""The model of sessions: which rows make which session, and when it is shown. Plain Python, rows one by one.

A row has an end: the gap after its time, or what it says itself; a row without one, or with one that is not after its
time, is of no session. Per key, the rows that counted and whose session has not closed are kept. After each epoch they
are sorted by time and cut where a row comes after the ends of all before it; a piece is a session, from its first time
to its latest end. It closes at the first epoch whose closing watermark C(i) (see ``lateness``) is at or past its end. A
row of epoch i is late where its own end is at or before C(i - 1).

Append shows a session when it closes; update shows, after each epoch, the sessions that hold a row of it. Complete
shows all sessions after each epoch: there rows are late as ever, but no session closes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tailrace.testing.lateness import closing_watermarks
from tailrace.testing.question import Question


@dataclass(frozen=True)
class Session:
    """``rows``: pairs of (epoch, row), by time."""

    shown: int
    start: int
    end: int
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SessionJudgement:
    sessions: tuple[Session, ...]
    late: tuple[int, ...]  # rows, by epoch
    closing: tuple[int | None, ...]  # closing watermark, by epoch; None before any row was seen


_Row = tuple[int, int, int, int]  # time, end, epoch, row


def judge_sessions(
    question: Question,
    keys: Sequence[Sequence[Sequence[object]]],
    times: Sequence[Sequence[int | None]],
    ends: Sequence[Sequence[int | None]] | None = None,
) -> SessionJudgement:
    """Decide every row of every batch. ``keys[epoch][row]`` are the values of the group columns; ``ends``: of rows that
    have a gap of their own.
    """
    if ends is None:
        gap = question.session_gap
        assert gap is not None
        ends = [[None if time is None else time + gap for time in batch] for batch in times]
    closing = closing_watermarks(times, question.delay, question.rule)
    kept: dict[Hashable, list[_Row]] = {}
    shown: list[Session] = []
    late: list[int] = []
    closed = 0 if question.rule == "spark" and question.delay is not None else None
    for epoch, batch in enumerate(times):
        late.append(0)
        for row, time in enumerate(batch):
            end = ends[epoch][row]
            if time is None or end is None or end <= time:
                continue
            if closed is not None and end <= closed:
                late[-1] += 1
                continue
            kept.setdefault(tuple(map(_same, keys[epoch][row])), []).append((time, end, epoch, row))
        closed = closing[epoch]
        for key in list(kept):
            still: list[_Row] = []
            for piece in _pieces(kept[key]):
                last = _end(piece)
                closes = question.output_mode != "complete" and closed is not None and last <= closed
                touched = any(came == epoch for _, _, came, _ in piece)
                if {"append": closes, "update": touched, "complete": True}[question.output_mode]:
                    shown.append(Session(epoch, piece[0][0], last, tuple((came, row) for _, _, came, row in piece)))
                if not closes:
                    still += piece
            kept[key] = still
    return SessionJudgement(tuple(shown), tuple(late), closing)


def _pieces(rows: list[_Row]) -> list[list[_Row]]:
    pieces: list[list[_Row]] = []
    for row in sorted(rows):
        if pieces and row[0] <= _end(pieces[-1]):
            pieces[-1].append(row)
        else:
            pieces.append([row])
    return pieces


def _end(rows: list[_Row]) -> int:
    return max(end for _, end, _, _ in rows)


def _same(value: object) -> Hashable:
    """Values that Spark groups together become one: every NaN, and both zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    assert isinstance(value, Hashable)
    return value
