"""The state of sessions as their user knows it: open sessions, or the rows of them, with the bounds they have now.

Records and lists are parts of sessions; which part belongs to which follows from their first and last event times, as
when sessions are emitted. Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.state_view import (
    as_one,
    check_mergeable,
    finished,
    kept_rows,
    view_by_key,
    without_list_columns,
)
from tailrace.operators.rows.intervals import numbers_of_keys, sessions_of
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.layout import PANE
from tailrace.state.rows.columns import fixed_words
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import from_section, keys_of


def _gap(spec: AggregateSpec) -> int:
    """Rows with gaps of their own come with their ends."""
    return spec.window.gap if isinstance(spec.window, SessionWindowSpec) else 0


def _sessions(spec: AggregateSpec, section: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    layout = spec.record_layout()
    rows, gap = from_section(section, layout), _gap(spec)
    low, high = layout.accumulators[0].word, layout.accumulators[1].word
    numbers, _ = numbers_of_keys(rows, layout)
    found = sessions_of(numbers, rows.words[:, low], rows.words[:, high] + gap)
    if len(found) < len(rows):
        check_mergeable(spec)
    words = rows.words[found.order]
    words[:, PANE] = np.repeat(found.starts, np.diff(found.offsets))
    merged = Rows(words, rows.heap)
    if len(found) < len(rows):
        merged = as_one(merged, layout)
    yield finished(spec, merged, layout, merged.words[:, high] + gap)


def _rows_of_sessions(spec: AggregateSpec, section: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    section = without_list_columns(section)
    assert spec.time_column is not None
    layout, first = spec.layout(), 2 + len(spec.keys)
    names = [row.name for row in spec.rows]
    ends = spec.time_column.name if spec.dynamic_session is None else spec.dynamic_session.ends
    starts, ends_at = (
        fixed_words(section.column(first + names.index(name)), spec.time_column.type, None)
        for name in (spec.time_column.name, ends)
    )
    numbers, _ = numbers_of_keys(keys_of(section, layout), layout)
    found = sessions_of(numbers, starts, ends_at + _gap(spec))
    of = found.numbers
    yield kept_rows(spec, section, window_struct(found.starts[of], spec, found.ends[of]))


VIEW = view_by_key(_rows_of_sessions, _sessions)
