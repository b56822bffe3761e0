"""Merging of accumulators that a function of whole columns merges (``Merge.BATCH``), before the merge kernel runs.

The kernel merges record by record and knows no such function. So all partials of a key, and the values of its record,
are merged here by one call for many keys; the first partial of the key then has the result, the others nothing, and the
kernel only puts it into the record. Undo logs, strings and room are the kernel's business as for any other partial.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.state.layout import VALID, AccumulatorWords, BatchMerge, RecordLayout, words_of
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows
from tailrace.state.rows.value_kernels import copy_out, heap_needed
from tailrace.types import Kind

_SAME_PANES = np.empty(0, np.int64)


def copied_rows(words: np.ndarray, heap: np.ndarray, chosen: np.ndarray, layout: RecordLayout) -> Rows:
    """These rows with no more than their own strings."""
    needed = int(heap_needed(words, heap, chosen, layout.bytes_words)) if layout.has_bytes else 0
    out = Rows(np.empty((len(chosen), layout.words), np.int64), np.empty(needed, np.uint8))
    copy_out(words, heap, chosen, _SAME_PANES, layout.bytes_words, out.words, 0, out.heap, 0)
    return out


def merge_states(
    rows: Rows, numbers: np.ndarray, records: Rows, record_numbers: np.ndarray, layout: RecordLayout
) -> Rows:
    """The rows, of which the first of each number has what all of them and the record of that number amount to.

    The rows are used up: their words are changed. A number has at most one record.
    """
    for merge in layout.batch_merges:
        rows = _merged(rows, numbers, records, record_numbers, merge, layout)
    return rows


def _merged(
    rows: Rows,
    numbers: np.ndarray,
    records: Rows,
    record_numbers: np.ndarray,
    merge: BatchMerge,
    layout: RecordLayout,
) -> Rows:
    places = layout.accumulators[merge.first : merge.end]
    holding, held = (np.flatnonzero(some.words[:, VALID] >> places[0].bit & 1) for some in (rows, records))
    counts = np.bincount(np.concatenate([numbers[holding], record_numbers[held]]), minlength=1)
    holding, held = holding[counts[numbers[holding]] > 1], held[counts[record_numbers[held]] > 1]
    if not len(holding):
        return rows
    whose = np.concatenate([record_numbers[held], numbers[holding]])
    order = np.argsort(whose, kind="stable")
    offsets = np.append(np.flatnonzero(np.diff(whose[order], prepend=-1)), len(order))
    values = [
        pa.concat_arrays([_column(records, held, place), _column(rows, holding, place)]).take(pa.array(order))
        for place in places
    ]
    merged = merge.merge(values, offsets)
    for place in places:
        bits = 1 << place.bit | 1 << place.bit2
        rows.words[holding, VALID] &= ~bits
        rows.words[holding, place.word : place.word + words_of(place.kind)] = 0
    _, firsts = np.unique(numbers[holding], return_index=True)
    return put_states(rows, holding[firsts], places, merged)


def put_states(rows: Rows, at: np.ndarray, places: Sequence[AccumulatorWords], values: Sequence[pa.Array]) -> Rows:
    """The rows with these values of accumulators in rows ``at``, which had none. Words are changed, the heap is not."""
    words, heaps, end = rows.words, [rows.heap], len(rows.heap)
    for place, array in zip(places, values, strict=True):
        valid = columns.valid_mask(array)
        present = np.ones(len(array), bool) if valid is None else valid
        words[at, VALID] |= 1 << place.bit | present.astype(np.int64) << place.bit2
        if place.kind is Kind.BYTES:
            positions, heap = columns.string_heap(array, valid, end)
            words[at, place.word] = positions
            heaps.append(heap)
            end += len(heap)
        elif place.kind is Kind.INT128:
            words[at, place.word : place.word + 2] = columns.fixed_words(array, place.type, valid)
        else:
            words[at, place.word] = columns.fixed_words(array, place.type, valid)
    return Rows(words, np.concatenate(heaps) if len(heaps) > 1 else rows.heap)


def _column(rows: Rows, chosen: np.ndarray, place: AccumulatorWords) -> pa.Array:
    words = rows.words[chosen, place.word : place.word + words_of(place.kind)]
    if place.kind is not Kind.INT128:
        words = words[:, 0]
    valid = (rows.words[chosen, VALID] >> place.bit2 & 1).astype(bool)
    words = np.ascontiguousarray(words)
    return columns.decode(words, None if valid.all() else valid, rows.heap, place.type, large=True)
