"""The rows that a join keeps, as its user knows them: those that a row which still comes may match.

- ``_side`` says which stream a row came from, ``_time`` is its event time; the other side's columns are null.
- ``_matched`` is there where the join distinguishes rows with a match: of rows whose side it gives alone, whether one
  has come; null of others, and of rows that are never given alone because they never go.
- Rows that can match nothing any more and still lie beside others are left out.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.operators.join.sections import divided
from tailrace.operators.join.spec import LEFT, RIGHT, JoinKind, JoinSpec
from tailrace.operators.join.times import NEVER, JoinTimes
from tailrace.operators.state_view import PANE, Columns, StateView, spans, typed
from tailrace.state.layout import HASH
from tailrace.state.rows.columns import fixed_words
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import from_section
from tailrace.types import BIGINT

SIDE, TIME, MATCHED = "_side", "_time", "_matched"
_NAMES = np.array(["left", "right"])


def _rows(spec: JoinSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    if spec.kind is JoinKind.WINDOW:
        yield _shown(spec, section, None)
        return
    lists, unmatched = divided(section, spec.kept_layout())
    kept = lists.select(range(2, lists.num_columns))
    layout = spec.kept_layout()
    rows = from_section(kept, layout)
    sides = np.ascontiguousarray(rows.words[:, layout.accumulators[0].word])
    lasts, endless = _lasting(spec, rows, sides, horizon)
    matched = None
    if spec.semi:
        matched, marks = _of_semi(spec, rows)
        lasts &= ~marks
    elif spec.numbered:
        matched = _of_outer(spec, rows, sides, endless, from_section(unmatched, layout))
    chosen = pa.array(lasts)
    yield _shown(spec, kept.filter(chosen), None if matched is None else matched.filter(chosen))


VIEW = StateView(_rows, identity=lambda spec, records: 0)


def _lasting(spec: JoinSpec, rows: Rows, sides: np.ndarray, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows may still match, and which never go."""
    times = JoinTimes(spec, spec.kept_layout())
    lasts, endless = np.ones(len(rows), bool), np.zeros(len(rows), bool)
    for side in (LEFT, RIGHT):
        own = np.flatnonzero(sides == side)
        moments = times.moments(Rows(rows.words[own], rows.heap), side)
        lasts[own], endless[own] = ~moments.past(horizon), moments.expiry == NEVER
    return lasts, endless


def _of_semi(spec: JoinSpec, rows: Rows) -> tuple[pa.Array, np.ndarray]:
    """Whether left rows were given already, and which rows are marks that say so."""
    layout = spec.kept_layout()
    numbers = np.ascontiguousarray(rows.words[:, layout.accumulators[-1].word])
    marks = numbers < 0
    names = np.stack([rows.words[:, HASH], np.where(marks, ~numbers, numbers)], axis=1)
    given = _among(names, names[marks])
    left = rows.words[:, layout.accumulators[0].word] == LEFT
    return pa.array(given, mask=~left), marks


def _of_outer(spec: JoinSpec, rows: Rows, sides: np.ndarray, endless: np.ndarray, waiting: Rows) -> pa.Array:
    """Whether rows have a match: those that wait for one, and have no mark, do not."""
    layout = spec.kept_layout()
    side, number = layout.accumulators[0].word, layout.accumulators[-1].word
    numbers = np.ascontiguousarray(waiting.words[:, number])
    own = np.where(numbers < 0, RIGHT, LEFT)
    names = np.stack([waiting.words[:, HASH], np.where(numbers < 0, ~numbers, numbers)], axis=1)
    is_mark = waiting.words[:, side] != own
    without = names[~is_mark]
    without = without[~_among(without, names[is_mark])]
    alone = _among(np.stack([rows.words[:, HASH], rows.words[:, number]], axis=1), without)
    known = np.isin(sides, spec.outer_sides) & ~endless
    return pa.array(~alone, mask=~known)


def _among(names: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which pairs of numbers are among the others."""
    _, numbers = np.unique(np.concatenate([others, names]), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    among: np.ndarray = np.isin(numbers[len(others) :], numbers[: len(others)])
    return among


def _shown(spec: JoinSpec, section: pa.RecordBatch, matched: pa.Array | None) -> pa.RecordBatch:
    shown, first = Columns(), 2 + len(spec.keys)
    shown.fields(spec.keys, section.columns[2:])
    if spec.window is not None:
        panes = fixed_words(section.column(1), BIGINT, None)
        if spec.window.tumbling:
            shown.add(spec.window_name, spans(panes, panes + spec.window.length, spec.time_type))
        else:
            shown.own(PANE, spans(panes, spec.window.panes.ends(panes), spec.time_type))
    right = section.column(first).to_numpy(zero_copy_only=False).astype(np.int64)
    shown.own(SIDE, pa.array(_NAMES[right], pa.string()))
    shown.own(TIME, typed(section.column(first + 1), spec.time_type))
    shown.fields((*spec.left, *spec.right), section.columns[first + 2 :])
    if matched is not None:
        shown.own(MATCHED, matched)
    return shown.batch()
