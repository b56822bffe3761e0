"""Rows of several sources as columns, for callers that decide on their order last: nothing is copied twice.

Words of rows are turned to columns once, as they lie in their sources; strings stay in the sources' heaps until a
column is asked for, and then go to where they belong in Arrow's own layout.

Invariants
- A string's position counts through all heaps, laid end to end. A heap without a byte holds no string.
- Sources are only read, and must stay as they are for as long as columns are asked for.

Threads: frozen; any number may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.state.layout import VALID, AccumulatorWords, KeyWords, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows import gather_kernels as sk
from tailrace.state.rows.arrange import Slices
from tailrace.types import Kind

_OFFSETS_MAX = 2**31 - 1
_HEAPS_MAX = 8
"""Every string is looked for in each heap: where there are more, these are copied into one first."""


@dataclass(frozen=True)
class Spread:
    words: np.ndarray  # int64[words of the layout, rows]
    heaps: tuple[np.ndarray, ...]
    bases: tuple[int, ...]
    """Where each heap begins."""
    in_all: int
    """Valid bits that are set in every row."""

    def __len__(self) -> int:
        return int(self.words.shape[1])

    def word(self, word: int, order: np.ndarray | None = None) -> np.ndarray:
        """One word of these rows in this order; of all as they are where none is given."""
        whole: np.ndarray = self.words[word]
        return whole if order is None else whole[order]

    def column(
        self,
        place: KeyWords | AccumulatorWords,
        order: np.ndarray | None = None,
        bits: np.ndarray | None = None,
        *,
        large: bool = False,
    ) -> pa.Array:
        """A key, or a raw value, as an Arrow array.

        ``bits``: the valid bits in this order, if known. ``large``: strings with 64-bit offsets in any case.
        """
        valid = None
        if not self.in_all >> place.bit & 1:
            bits = self.word(VALID, order) if bits is None else bits
            valid = (bits & (1 << place.bit)) != 0
        words = self.word(place.word, order)
        if place.kind is Kind.BYTES:
            return self._strings(words, valid, place, large)
        if place.kind is Kind.INT128:
            words = np.stack([words, self.word(place.word + 1, order)], axis=1)
        return columns.decode(words, valid, _NO_STRINGS, place.type)

    def _strings(
        self, positions: np.ndarray, valid: np.ndarray | None, place: KeyWords | AccumulatorWords, large: bool
    ) -> pa.Array:
        count = len(positions)
        present = valid if valid is not None else np.ones(count, np.bool_)
        lengths = np.zeros(count, np.int64)
        for base, heap in zip(self.bases, self.heaps, strict=True):
            sk.string_lengths(positions, present, base, heap, lengths)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        for base, heap in zip(self.bases, self.heaps, strict=True):
            sk.copy_strings(positions, present, base, heap, offsets, data)
        bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        large = large or len(data) > _OFFSETS_MAX
        edges = pa.py_buffer(offsets if large else offsets.astype(np.int32))
        target = columns.arrow_type(place.type, large)
        return pa.Array.from_buffers(target, count, [bitmap, edges, pa.py_buffer(data)])


_NO_STRINGS = np.empty(0, np.uint8)


def spread(sources: Sequence[Slices], layout: RecordLayout) -> Spread:
    """The rows of all slices, source after source."""
    count = sum(int((source.hi - source.lo).sum()) for source in sources)
    words = np.empty((layout.words, count), np.int64)
    strings = np.ascontiguousarray(layout.bytes_words[:, 0])
    heaps: list[np.ndarray] = []
    bases: list[int] = []
    at = base = 0
    for source in sources:
        rows = source.rows
        at = sk.turn_slices(rows.words, source.lo, source.hi, at, strings, base, words)
        if len(rows.heap):
            heaps.append(rows.heap)
            bases.append(base)
            base += len(rows.heap)
    if len(heaps) > _HEAPS_MAX:
        heaps, bases = [np.concatenate(heaps)], [0]
    in_all = int(np.bitwise_and.reduce(words[VALID])) if count else -1
    return Spread(words, tuple(heaps), tuple(bases), in_all)
