"""Pairs of rows as output columns, and how pairs are counted out. Whole columns at a time.

Output columns: the window (of window joins), the keys, the left columns, the right columns (but of semi joins), and
where asked for each row's event time.

Threads: pure functions and frozen objects.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.operators.join.spec import LEFT, JoinSpec
from tailrace.operators.output import output_schema
from tailrace.state.layout import VALID, AccumulatorWords, KeyWords, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, value_words
from tailrace.types import window_of

PAIRS_MAX = 1 << 16
"""Rows of one emitted batch at most: the strings of a batch must stay below 2 GiB."""

_NO_STRINGS = np.empty(0, np.uint8)


class JoinOutput:
    """Makes batches of pairs: row ``left_at[i]`` of some left rows with row ``right_at[i]`` of some right rows."""

    def __init__(self, spec: JoinSpec, layout: RecordLayout) -> None:
        self.schema = output_schema(spec)
        self._spec = spec
        self._keys = layout.keys
        self._time = layout.accumulators[1].word
        self._left = layout.accumulators[2 : 2 + len(spec.left)]
        self._right = layout.accumulators[2 + len(spec.left) :][: len(spec.right)]

    def pairs(
        self, left: Rows, left_at: np.ndarray, right: Rows, right_at: np.ndarray, window: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """``window``: the start of that which all these pairs belong to."""
        for low in range(0, len(left_at), PAIRS_MAX):
            lefts, rights = (
                Rows(rows.words[at[low : low + PAIRS_MAX]], rows.heap)
                for rows, at in ((left, left_at), (right, right_at))
            )
            times = np.maximum(lefts.words[:, self._time], rights.words[:, self._time])
            yield self._batch(
                [*_decoded(lefts, (*self._keys, *self._left)), *_decoded(rights, self._right)], times, window
            )

    def alone(
        self, rows: Rows, at: np.ndarray, side: int = LEFT, window: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one side: with nulls for the other, but in a semi join, where there is no other."""
        for low in range(0, len(at), PAIRS_MAX):
            some = Rows(rows.words[at[low : low + PAIRS_MAX]], rows.heap)
            shown = () if self._spec.semi else self._spec.columns(1 - side)
            nulls = [pa.nulls(len(some), columns.arrow_type(field.type)) for field in shown]
            own = _decoded(some, self._left if side == LEFT else self._right)
            both = [*own, *nulls] if side == LEFT else [*nulls, *own]
            yield self._batch([*_decoded(some, self._keys), *both], some.words[:, self._time], window)

    def _batch(self, arrays: list[pa.Array], times: np.ndarray, window: int | None) -> pa.RecordBatch:
        spec = self._spec
        if spec.window is not None:
            assert window is not None
            ends = (np.full(len(times), edge, np.int64) for edge in (window, window + spec.window.length))
            edges = [columns.decode(end, None, _NO_STRINGS, spec.time_type) for end in ends]
            arrays.insert(
                0, pa.StructArray.from_arrays(edges, fields=list(columns.arrow_type(window_of(spec.time_type))))
            )
            times = np.full(len(times), window + spec.window.length - 1, np.int64)
        if spec.output_time is not None:
            arrays.append(columns.decode(times, None, _NO_STRINGS, spec.time_type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _decoded(rows: Rows, places: tuple[KeyWords | AccumulatorWords, ...]) -> list[pa.Array]:
    valid = ValidBits(rows)
    return [
        columns.decode(value_words(rows, place.word, place.kind), valid.missing(place.bit), rows.heap, place.type)
        for place in places
    ]


def counted(firsts: np.ndarray, counts: np.ndarray, at_most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For items with ``counts`` partners from number ``firsts`` on: (item, partner), at most so many at a time."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shift = firsts - (ends - counts)
    for low in range(0, total, at_most):
        numbers = np.arange(low, min(low + at_most, total), dtype=np.int64)
        items = np.searchsorted(ends, numbers, "right")
        yield items, numbers + shift[items]


def has_keys(rows: Rows, layout: RecordLayout) -> np.ndarray:
    """Rows without a null among their keys: only these can match."""
    keyed: np.ndarray = (rows.words[:, VALID] & layout.key_mask) == layout.key_mask
    return keyed
