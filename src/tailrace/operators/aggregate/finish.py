"""Accumulators to output columns: whole columns of numbers at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.decimal_kernels import divide_decimals
from tailrace.operators.aggregate.spec import START, AggregateSpec, Output, Result
from tailrace.operators.output import output_schema
from tailrace.operators.rows.groups import Groups
from tailrace.state.layout import PANE, AccumulatorWords, Merge, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, value_words
from tailrace.types import DOUBLE, TIMESTAMP, Kind, window_of


def window_struct(starts: np.ndarray, spec: AggregateSpec, ends: np.ndarray | None = None) -> pa.Array:
    """The output column of windows that start there; of sessions also ``ends``."""
    assert spec.time_column is not None
    if ends is None:
        assert spec.window is not None
        ends = starts + spec.window.length
    no_strings = np.empty(0, np.uint8)
    edges = [columns.decode(edge, None, no_strings, spec.time_column.type) for edge in (starts, ends)]
    return pa.StructArray.from_arrays(edges, fields=list(columns.arrow_type(window_of(spec.time_column.type))))


def window_bounds(groups: Groups, spec: AggregateSpec, pane: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the windows of groups, whose rows lie in (or from) this pane."""
    panes = np.full(len(groups), pane, np.int64)
    if spec.custom is not None:
        return columns.fixed_words(groups.firsts(START), TIMESTAMP, None), panes
    assert spec.window is not None
    return panes, panes + spec.window.length


def window_column(rows: Rows, spec: AggregateSpec, layout: RecordLayout, ends: np.ndarray | None = None) -> pa.Array:
    """The output column of windows of records: by their pane, their start (of a user's own: their end), or number."""
    panes = np.ascontiguousarray(rows.words[:, PANE])
    if spec.count_size is not None:
        return pa.array(panes)
    if spec.custom is not None:
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
        places = [layout.accumulators[i] for i in out.accumulators]
        arrays.append(_result(rows, valid, out, places))
    return pa.RecordBatch.from_arrays(arrays, schema=output_schema(spec))


def _result(rows: Rows, valid: ValidBits, out: Output, places: list[AccumulatorWords]) -> pa.Array:
    first = places[0]
    if out.result is Result.STDDEV:
        n, m2 = (_doubles(rows, first.word + i) for i in (0, 2))
        enough = n > 1
        deviation = np.sqrt(np.divide(m2, n - 1, out=np.zeros(len(n)), where=enough))
        return columns.decode(deviation.view(np.int64), enough, rows.heap, DOUBLE)
    present = valid.mask(first.bit)
    if out.result is Result.QUOTIENT:
        counts = np.ascontiguousarray(rows.words[:, places[1].word])
        return _quotient(rows, first, present & (counts > 0), valid, counts, out)
    if first.bit2 >= 0:
        second = valid.mask(first.bit2)
        present &= ~second if first.merge is Merge.ADD else second
    words = value_words(rows, first.value_word, first.kind)
    return columns.decode(words, None if present.all() else present, rows.heap, out.type)


def _quotient(
    rows: Rows, place: AccumulatorWords, present: np.ndarray, valid: ValidBits, counts: np.ndarray, out: Output
) -> pa.Array:
    if place.kind is Kind.FLOAT64:
        mean = np.divide(_doubles(rows, place.word), counts, out=np.zeros(len(counts)), where=present)
        return columns.decode(mean.view(np.int64), present, rows.heap, DOUBLE)
    if place.bit2 >= 0:
        present = present & ~valid.mask(place.bit2)
        pairs = np.ascontiguousarray(rows.words[:, place.word : place.word + 2])
    else:
        low = rows.words[:, place.word]
        pairs = np.stack([low, low >> 63], axis=1)
    quotients = np.zeros((len(counts), 2), np.int64)
    fits = np.zeros(len(counts), np.bool_)
    divide_decimals(pairs, counts, present, out.type.scale - place.type.scale, quotients, fits)
    words = quotients if out.type.kind is Kind.INT128 else quotients[:, 0]
    return columns.decode(words, present & fits, rows.heap, out.type)


def _doubles(rows: Rows, word: int) -> np.ndarray:
    return np.ascontiguousarray(rows.words[:, word]).view(np.float64)
