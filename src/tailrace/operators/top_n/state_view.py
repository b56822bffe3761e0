"""The best rows of each group as their user knows them, and where all rows are kept until a window ends, these.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate import runtime as aggregate_runtime
from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.state_view import pane_spans
from tailrace.operators.state_view import PANE, Columns, StateView, typed
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.state.rows.columns import fixed_words
from tailrace.state.rows.groups import key_numbers
from tailrace.state.sections.sections import keys_of
from tailrace.types import BIGINT


def _rows(spec: TopNSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    if spec.keeps_rows:
        view = aggregate_runtime.RUNTIME.view
        assert view is not None
        yield from view.rows(spec.kept(), section, horizon, records=records)
    else:
        yield _best(spec, section)


def _identity(spec: TopNSpec, records: bool) -> int:
    return 0 if spec.keeps_rows else len(spec.keys) + (spec.window is not None) + 1


VIEW = StateView(_rows, _identity)


def _best(spec: TopNSpec, section: pa.RecordBatch) -> pa.RecordBatch:
    """With their ranks. Of sliding windows each pane has its own best rows."""
    numbers, _ = key_numbers(keys_of(section, spec.section_layout()), spec.section_layout())
    order = np.argsort(numbers, kind="stable")  # rows of a group are in order, the best first
    ranks = np.arange(len(order)) - np.searchsorted(numbers[order], numbers[order]) + 1
    section = section.take(pa.array(order))
    shown, first = Columns(), 2 + len(spec.keys)
    window = None if spec.time_window is None else fixed_words(section.column(1), BIGINT, None)
    for number, (key, array) in enumerate(zip(spec.keys, section.columns[2:], strict=False)):
        if window is not None and number == spec.window_position:
            _add_window(shown, spec, window)
        shown.add(key.name, typed(array, key.type))
    if window is not None and spec.window_position >= len(spec.keys):
        _add_window(shown, spec, window)
    shown.add(spec.rank, pa.array(ranks, pa.int32()))
    shown.fields(spec.rows, section.columns[first:])
    if spec.ttl is not None:
        shown.expiry(spec.ttl, section.column(first + len(spec.rows)))
    return shown.batch()


def _add_window(shown: Columns, spec: TopNSpec, panes: np.ndarray) -> None:
    assert spec.time_window is not None
    if spec.time_window.tumbling:
        shown.add(spec.window_name, window_struct(panes, spec.kept()))
    else:
        shown.own(PANE, pane_spans(spec.time_window, panes, spec.kept()))
