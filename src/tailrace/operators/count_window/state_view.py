"""The state of windows by count as their user knows it: open windows with their numbers, or the rows of them.

Every key that is known has a row at least, since how many rows of it came so far is kept for good. What records of
windows that overlap hold, and so how windows are made of them, ``sliding`` says. Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.state_view import (
    as_one,
    check_mergeable,
    finished,
    kept_rows,
    view_by_key,
    with_expiry,
    without_list_columns,
)
from tailrace.operators.count_window.sections import divided, totals_layout
from tailrace.operators.count_window.steps import FIRST_PANE, FORMER_PANE, Blocks
from tailrace.operators.count_window.windows import ranges
from tailrace.operators.rows.intervals import numbers_of_keys
from tailrace.operators.rows.row_index import pieces
from tailrace.operators.state_view import ROWS, Columns
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows.groups import group_by_key
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import from_section, keys_of

_PARTS_MAX = 1 << 19
"""Records that are put together to windows at once."""


def _windows(spec: AggregateSpec, section: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    assert spec.count_window is not None
    if spec.count_window.overlapping:
        yield from _overlapping(spec, section)
    else:
        yield _open(spec, section)


def _open(spec: AggregateSpec, section: pa.RecordBatch) -> pa.RecordBatch:
    """Of each key its open window, which may have no row yet."""
    assert spec.count_window is not None
    layout = spec.record_layout()
    rows, count = from_section(section, layout), layout.accumulators[0].word
    heads = Rows(rows.words.copy(), rows.heap)
    totals, size = heads.words[:, count], spec.count_window.size
    rows.words[:, PANE], rows.words[:, count] = totals // size, totals % size
    return _with_totals(spec, rows, layout, heads)


def _with_totals(spec: AggregateSpec, windows: Rows, layout: RecordLayout, heads: Rows) -> pa.RecordBatch:
    """``heads``: of each window the record of its key that counts the key's rows."""
    batch = finished(spec, windows, layout)
    shown = Columns(list(batch.schema.names), list(batch.columns))
    shown.own(ROWS, pa.array(np.ascontiguousarray(heads.words[:, layout.accumulators[0].word])))
    return with_expiry(spec, shown.batch(), heads, layout)


# Windows that overlap -----------------------------------------------------------------------------------------------


def _overlapping(spec: AggregateSpec, section: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    assert spec.count_window is not None and spec.count_window.slide is not None
    check_mergeable(spec)
    shape, layout = Blocks(spec.count_window.size, spec.count_window.slide), spec.record_layout()
    grouped, offsets = group_by_key(from_section(section, layout), layout)
    sizes = np.diff(offsets)
    some = False
    for part in pieces(sizes * sizes, at_most=_PARTS_MAX):
        some = True
        words = grouped.words[offsets[part.start] : offsets[part.stop]]
        yield _shown(spec, shape, Rows(words, grouped.heap), sizes[part.start : part.stop], layout)
    if not some:
        nothing = Rows(grouped.words[:0], grouped.heap)
        yield _with_totals(spec, nothing, layout, nothing)


def _shown(spec: AggregateSpec, shape: Blocks, rows: Rows, sizes: np.ndarray, layout: RecordLayout) -> pa.RecordBatch:
    """The open windows of keys, whose records follow each other: ``sizes``, how many each has."""
    count, panes = layout.accumulators[0].word, rows.words[:, PANE]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    heads = np.full(len(sizes), -1)
    heads[owners[panes == 0]] = np.flatnonzero(panes == 0)
    totals = rows.words[heads, count]
    places = np.full((len(sizes), FIRST_PANE + shape.panes), -1)
    places[owners, panes] = np.arange(len(rows))
    keys, numbers = ranges(shape.full(totals), shape.begun(totals))
    sources, windows = _parts(shape, totals, keys, numbers, places)
    words = rows.words[sources]
    words[:, PANE] = numbers[windows]
    is_head = sources == heads[keys[windows]]
    words[is_head, count] %= shape.block
    merged = as_one(Rows(words, rows.heap), layout)
    of = _owners(merged, Rows(rows.words[heads], rows.heap), layout)
    return _with_totals(spec, merged, layout, Rows(rows.words[heads[of]], rows.heap))


def _owners(windows: Rows, keys: Rows, layout: RecordLayout) -> np.ndarray:
    """Of each window the number of its key."""
    both = concat_rows([Rows(keys.words.copy(), keys.heap), Rows(windows.words.copy(), windows.heap)], layout)
    numbers, _ = numbers_of_keys(both, layout)
    return numbers[len(keys) :]


def _parts(
    shape: Blocks, totals: np.ndarray, keys: np.ndarray, numbers: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(record, window) for each record that a window is made of, older ones first.

    ``keys``, ``numbers``: of the windows. ``places``: of each key, where its records lie.
    """
    block = totals // shape.block
    current = numbers // shape.panes == block[keys]
    first = numbers % shape.panes == 0
    slots = FIRST_PANE + shape.slots(numbers)
    which = np.arange(len(numbers))
    # Of a block before this one: what its record has, and all of this block.
    older = np.flatnonzero(~current)
    place = np.where(first[older], FORMER_PANE, slots[older])
    goes_on = older[~first[older]]
    found, windows = [places[keys[older], place], places[keys[goes_on], 0]], [which[older], which[goes_on]]
    # Of this block: from its beginning, the head; else all panes from its own on.
    begins = np.flatnonzero(current & first)
    found.append(places[keys[begins], 0])
    windows.append(which[begins])
    inside = np.flatnonzero(current & ~first)
    at, panes = ranges(numbers[inside], np.maximum(shape.begun(totals[keys[inside]]), numbers[inside]))
    found.append(places[keys[inside[at]], FIRST_PANE + shape.slots(panes)])
    windows.append(inside[at])
    sources, owners = np.concatenate(found), np.concatenate(windows)
    there = sources >= 0
    return sources[there], owners[there]


# Rows ---------------------------------------------------------------------------------------------------------------


def _kept(spec: AggregateSpec, section: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of open windows, and one with nulls for each key that has none."""
    lists, totals = divided(section, spec)
    lists = without_list_columns(lists)
    layout, totals_of = spec.layout(), totals_layout(spec)
    both = concat_rows([keys_of(totals, totals_of), keys_of(lists, layout)], totals_of.of_keys)
    numbers, firsts = numbers_of_keys(both, totals_of)
    of_rows = numbers[len(totals) :]
    place = np.full(len(firsts), -1)
    place[numbers[: len(totals)]] = np.arange(len(totals))
    without = np.flatnonzero(~np.isin(numbers[: len(totals)], of_rows))
    rows = pa.concat_batches([lists, _empty(lists, totals, without)]) if len(without) else lists
    whose = pa.array(np.concatenate([place[of_rows], without]))
    own = [(ROWS, totals.column(2 + len(spec.keys)).take(whose))]
    shown = kept_rows(spec, rows, rows.column(1), *own)
    if spec.ttl is not None:
        columns = Columns(list(shown.schema.names), list(shown.columns))
        columns.expiry(spec.ttl, totals.column(3 + len(spec.keys)).take(whose))
        shown = columns.batch()
    yield shown


def _empty(lists: pa.RecordBatch, totals: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    """Rows with nothing but the keys of these totals."""
    keys = totals.take(pa.array(chosen))
    arrays = [
        keys.column(i) if name.startswith("k") or name == "__hash" else pa.nulls(len(keys), lists.schema.field(i).type)
        for i, name in enumerate(lists.schema.names)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=lists.schema)


VIEW = view_by_key(_kept, _windows)
