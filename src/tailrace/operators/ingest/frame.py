"""A frame: what a task sends to a server. Partials as packed words, sorted by shard.

On the wire a frame is an Arrow record batch of one row with four binary cells, so that it is received without a copy.
A frame never leaves the machines of one run; its layout follows the operator's ``RecordLayout`` and needs no version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.frame_kernels import mix_bytes, mix_words, strings_inside
from tailrace.operators.ingest.shard_kernels import scatter_numbers, scatter_rows, shards_of
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.arrange_kernels import shift_strings
from tailrace.state.rows.buffers import view
from tailrace.state.rows.rows import Rows
from tailrace.state.rows.value_kernels import copy_out, heap_needed

FRAME_SCHEMA = pa.schema([pa.field(name, pa.large_binary()) for name in ("rows", "heap", "bounds", "arrivals")])

_DTYPES = (np.int64, np.uint8, np.int64, np.int64)
_NOT_KEPT = np.empty(0, np.int64)
_SAME_PANES = np.empty(0, np.int64)
_SMALL_ROWS = 1 << 14
_TOGETHER_ROWS = 1 << 15
_TOGETHER_BYTES = 16 << 20


@dataclass(frozen=True)
class Frame:
    """``rows[bounds[s]:bounds[s + 1]]`` are the partials of shard ``s``.

    ``arrivals``: of each row its place before it was sorted, for who records accesses in their order; else empty.
    """

    rows: np.ndarray  # int64[n, words]
    heap: np.ndarray  # uint8[m]
    bounds: np.ndarray  # int64[shards + 1]
    arrivals: np.ndarray = field(default_factory=lambda: _NOT_KEPT)  # int64[n] or int64[0]

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return int(sum(cell.nbytes for cell in self.cells))

    @property
    def cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As they travel."""
        return self.rows, self.heap, self.bounds, self.arrivals

    def checksum(self) -> int:
        """64 bits over every byte, order included."""
        words = np.ascontiguousarray(self.rows).reshape(-1)
        seed = mix_words(self.arrivals, 0) if len(self.arrivals) else 0
        return int(mix_words(words, mix_bytes(self.heap, mix_words(self.bounds, seed))))

    def parts(self) -> tuple[Rows, np.ndarray]:
        return Rows(self.rows, self.heap), self.bounds

    def to_batch(self) -> pa.RecordBatch:
        cells = [_cell(part) for part in self.cells]
        return pa.RecordBatch.from_arrays(cells, schema=FRAME_SCHEMA)

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch, words: int) -> Frame:
        """``ValueError`` where a cell does not lie in its batch, or is no matrix of so many words."""
        if batch.schema.types != FRAME_SCHEMA.types or batch.num_rows != 1:
            raise ValueError(f"a batch of {batch.num_rows} rows and columns {batch.schema.types} is no frame")
        batch.validate(full=True)
        rows, heap, bounds, arrivals = (_array(batch.column(i), dtype) for i, dtype in enumerate(_DTYPES))
        return cls(rows.reshape(-1, words), heap, bounds, arrivals)

    def check(self, layout: RecordLayout, shards: int) -> None:
        """``ValueError`` where what came off the wire would lead a kernel beyond the frame: none looks where it goes.

        What is inside the byte string of an accumulator is not looked at.
        """
        bounds = self.bounds
        if len(bounds) != shards + 1 or bounds[0] or bounds[-1] != self.n or (np.diff(bounds) < 0).any():
            raise ValueError(f"a frame of {self.n} rows is not divided into {shards} shards")
        if len(self.arrivals) not in (0, self.n):
            raise ValueError(f"a frame of {self.n} rows has {len(self.arrivals)} numbers of arrival")
        if layout.has_bytes and not strings_inside(self.rows, self.heap, layout.bytes_words):
            raise ValueError(f"strings of a frame lie beyond its {len(self.heap)} bytes")


def _cell(part: np.ndarray) -> pa.Array:
    data = np.ascontiguousarray(part).reshape(-1)
    edges = np.array([0, data.nbytes], np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])


def _array(cell: pa.Array, dtype: type) -> np.ndarray:
    """The bytes of a cell, without a copy where they are aligned."""
    _, edges, data = cell.buffers()
    low, high = view(edges, np.int64, 2, cell.offset)
    size = np.dtype(dtype).itemsize
    if (high - low) % size:
        raise ValueError(f"a cell of {high - low} bytes is no array of {np.dtype(dtype)}")
    return view(None if data is None else data.slice(low, high - low), dtype, int(high - low) // size)


def split(frame: Frame, layout: RecordLayout, ranges: list[tuple[int, int]]) -> list[Frame]:
    """One frame per half-open range of shards; together the ranges must hold every shard that has rows."""
    if len(ranges) == 1:
        return [frame]
    out = []
    for lo, hi in ranges:
        start, stop = int(frame.bounds[lo]), int(frame.bounds[hi])
        bounds = np.clip(frame.bounds, start, stop) - start
        rows, heap = frame.rows[start:stop], frame.heap
        if layout.has_bytes and stop > start:
            everyone = np.arange(stop - start)
            needed = heap_needed(rows, frame.heap, everyone, layout.bytes_words)
            own_rows, heap = np.empty_like(rows), np.empty(int(needed), np.uint8)
            copy_out(rows, frame.heap, everyone, _SAME_PANES, layout.bytes_words, own_rows, 0, heap, 0)
            rows = own_rows
        elif stop == start:
            heap = np.empty(0, np.uint8)
        out.append(Frame(rows, heap, bounds, frame.arrivals[start:stop]))
    return out


def gathered(frames: Sequence[Frame], layout: RecordLayout) -> list[Frame]:
    """Small frames put together, so that what a frame costs is paid seldom. Rows of a shard keep their order.

    None where they are much together: then what a frame costs is little, and a copy of all is not.
    """
    if sum(frame.nbytes for frame in frames) > _TOGETHER_BYTES:
        return list(frames)
    out: list[Frame] = []
    some: list[Frame] = []
    for frame in frames:
        alone = frame.n > _SMALL_ROWS or len(frame.arrivals) > 0
        if some and (alone or sum(each.n for each in some) + frame.n > _TOGETHER_ROWS):
            out.append(_joined(some, layout))
            some = []
        if alone:
            out.append(frame)
        elif frame.n:
            some.append(frame)
    return [*out, _joined(some, layout)] if some else out


def _joined(frames: Sequence[Frame], layout: RecordLayout) -> Frame:
    if len(frames) == 1:
        return frames[0]
    bounds = np.sum([frame.bounds for frame in frames], axis=0)
    out = np.empty((int(bounds[-1]), layout.words), np.int64)
    places, heap_end = bounds[:-1].copy(), 0
    for frame in frames:
        rows = frame.rows
        if layout.has_bytes and heap_end:
            rows = rows.copy()
            shift_strings(rows, layout.bytes_words, heap_end)
        shard_of = np.repeat(np.arange(len(places), dtype=np.int32), np.diff(frame.bounds))
        scatter_rows(rows, shard_of, places, out)
        heap_end += len(frame.heap)
    return Frame(out, np.concatenate([frame.heap for frame in frames]), bounds)


def by_shard(rows: Rows, shards: int, *, keep_arrivals: bool = False) -> Frame:
    """Sort partials by shard; inside a shard their order stays."""
    shard_of, bounds = _shards(rows.words, shards)
    out = np.empty_like(rows.words)
    scatter_rows(rows.words, shard_of, bounds[:-1].copy(), out)
    arrivals = _scattered(shard_of, bounds) if keep_arrivals else _NOT_KEPT
    return Frame(out, rows.heap, bounds, arrivals)


def shard_order(words: np.ndarray, shards: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of these rows sorted by shard, and where each shard's begin: as ``by_shard`` sorts them."""
    shard_of, bounds = _shards(words, shards)
    return _scattered(shard_of, bounds), bounds


def _shards(words: np.ndarray, shards: int) -> tuple[np.ndarray, np.ndarray]:
    shard_of, bounds = np.empty(len(words), np.int32), np.zeros(shards + 1, np.int64)
    shards_of(words, shards, shard_of, bounds)
    return shard_of, bounds


def _scattered(shard_of: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    order = np.empty(len(shard_of), np.int64)
    scatter_numbers(shard_of, bounds[:-1].copy(), order)
    return order


def arrival_order(frame: Frame) -> np.ndarray:
    """Positions of the frame's rows in the order in which they came, as far as it is known."""
    return np.argsort(frame.arrivals, kind="stable") if len(frame.arrivals) else np.arange(frame.n)
