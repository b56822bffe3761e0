"""Accumulators to output columns: whole columns of numbers at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.aggregate.spec import START, AggregateSpec
from tailrace.operators.output import output_schema
from tailrace.operators.rows.groups import Groups
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, value_words
from tailrace.types import TIMESTAMP, window_of


def window_struct(starts: np.ndarray, spec: AggregateSpec, ends: np.ndarray | None = None) -> pa.Array:
    """The output column of windows that start there; of sessions also ``ends``."""
    assert spec.time_column is not None
    if ends is None:
        assert spec.time_window is not None
        ends = starts + spec.time_window.length
    no_strings = np.empty(0, np.uint8)
    edges = [columns.decode(edge, None, no_strings, spec.time_column.type) for edge in (starts, ends)]
    return pa.StructArray.from_arrays(edges, fields=list(columns.arrow_type(window_of(spec.time_column.type))))


def window_bounds(groups: Groups, spec: AggregateSpec, pane: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the windows of groups, whose rows lie in (or from) this pane."""
    panes = np.full(len(groups), pane, np.int64)
    if spec.custom_window is not None:
        return columns.fixed_words(groups.firsts(START), TIMESTAMP, None), panes
    assert spec.time_window is not None
    return panes, panes + spec.time_window.length


def window_column(rows: Rows, spec: AggregateSpec, layout: RecordLayout, ends: np.ndarray | None = None) -> pa.Array:
    """The output column of windows of records: by their pane, their start (of a user's own: their end), or number."""
    panes = np.ascontiguousarray(rows.words[:, PANE])
    if spec.count_window is not None:
        return pa.array(panes)
    if spec.custom_window is not None:
        return window_struct(np.ascontiguousarray(rows.words[:, layout.keys[-1].word]), spec, panes)
    return window_struct(panes, spec, ends)


def finish(rows: Rows, spec: AggregateSpec, layout: RecordLayout, ends: np.ndarray | None = None) -> pa.RecordBatch:
    """Records (whose pane is their window's start) as rows of the operator's output. Sessions need their ``ends``."""
    valid = ValidBits(rows)
    arrays: list[pa.Array] = []
    for key in layout.keys[: len(spec.keys)]:
        words = value_words(rows, key.word, key.kind)
        arrays.append(columns.decode(words, valid.missing(key.bit), rows.heap, key.type))
    if spec.windowed:
        arrays.insert(spec.window_position, window_column(rows, spec, layout, ends))
    for out in spec.outputs:
        assert out.function is not None, "a column of the window function is no accumulator's"
        values = [
            Values(rows, valid, layout.accumulators[i], spec.accumulators[i], spec.ansi) for i in out.accumulators
        ]
        arrays.append(DESCRIPTORS[out.function].finish(values, out))
    return pa.RecordBatch.from_arrays(arrays, schema=output_schema(spec))
