"""Reading a state object: the index first, then only the batches that hold the shards asked for.

Every byte that is used was checked before: what does not match raises ``CorruptionError`` with the file's name. An
``ObjectReader`` belongs to one thread.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import format as fmt
from tailrace.log.typed_json import typed

_UNREADABLE = (ValueError, OSError, EOFError, pa.ArrowException)
"""What Arrow raises for bytes that are none of its own, though they are in memory."""

_OFFSETS = {pa.string(): "<i4", pa.binary(): "<i4", pa.large_string(): "<i8", pa.large_binary(): "<i8"}

WHOLE_BYTES_MAX = 256 << 10
"""Objects up to this size are read in one request; of larger ones, the tail is read first."""


class BatchPlace(NamedTuple):
    offset: int
    length: int
    crc: int
    rows: tuple[tuple[int, int], ...]  # shard, rows of it; in order


@dataclass(frozen=True)
class _Operator:
    """What the index says of an operator."""

    schema: str
    batches: tuple[BatchPlace, ...]


class ObjectReader:
    """One object, its index verified. ``about`` is what the writer wrote beside the index.

    ``read_ahead_bytes``: how much to fetch at once where neighbouring shards will be read in order.
    """

    def __init__(self, store: ObjectStore, name: str, size: int, read_ahead_bytes: int = 0) -> None:
        self.name = name
        self.where = locate(store, name)
        self._store = store
        self._size = size
        self._read_ahead_bytes = read_ahead_bytes
        self._ahead, self._ahead_start = memoryview(b""), 0
        self._tail_start = max(0, size - WHOLE_BYTES_MAX)
        self._tail = memoryview(self._fetch(self._tail_start, size - self._tail_start))
        index = self._read_index()
        try:
            operators = typed(dict[str, _Operator], index.pop("operators", None))
            self._schemas = {
                operator: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(each.schema)))
                for operator, each in operators.items()
            }
        except _UNREADABLE as error:
            raise CorruptionError(fmt.damaged(self.where, f"its index is none of ours: {error}")) from None
        self.about: dict[str, Any] = index
        self._places = {operator: list(each.batches) for operator, each in operators.items()}
        self._check_tiling()
        if self._tail_start:
            self._tail, self._tail_start = memoryview(b""), size  # of a large object, only the index was wanted
        self._by_shard: dict[str, dict[int, list[tuple[BatchPlace, int, int]]]] = {
            operator: _by_shard(places) for operator, places in self._places.items()
        }
        # The last pack of small sections: neighbouring shards are usually read one after the other.
        self._pack: tuple[BatchPlace, pa.RecordBatch] | None = None

    @property
    def operators(self) -> Collection[str]:
        return self._schemas.keys()

    def section(self, operator: str, shard: int) -> Iterator[pa.RecordBatch]:
        """The records of one shard, as written, read one by one: usually one batch, none where it has no records."""
        for place, start, rows in self._by_shard.get(operator, {}).get(shard, ()):
            yield self._batch(operator, place).slice(start, rows)

    def size_of(self, operator: str, shard: int) -> tuple[int, int]:
        """Rows and about the bytes of a section."""
        places = self._by_shard.get(operator, {}).get(shard, ())
        per_row = ((rows, place.length // max(1, sum(n for _, n in place.rows))) for place, _, rows in places)
        sizes = [(rows, rows * bytes_) for rows, bytes_ in per_row]
        return sum(rows for rows, _ in sizes), sum(bytes_ for _, bytes_ in sizes)

    def shards(self, operator: str) -> set[int]:
        """The shards that have records of the operator."""
        return set(self._by_shard.get(operator, {}))

    def verify(self) -> None:
        """Read and check every byte."""
        for operator, places in self._places.items():
            for place in places:
                self._batch(operator, place)
        fmt.check_object_header(self._fetch(0, fmt.OBJECT_HEADER.size), self.where)

    def _read_index(self) -> dict[str, Any]:
        tail = self._tail
        length, crc = fmt.footer_length(bytes(tail[-fmt.OBJECT_TRAILER.size :]), self.where)
        start = self._size - fmt.OBJECT_TRAILER.size - length
        if start < fmt.OBJECT_HEADER.size:
            raise CorruptionError(fmt.damaged(self.where, f"its index would be {length} bytes long"))
        if self._tail_start == 0:
            fmt.check_object_header(bytes(tail[: fmt.OBJECT_HEADER.size]), self.where)
        else:
            fmt.check_object_header(self._fetch(0, fmt.OBJECT_HEADER.size), self.where)
        self._data_end = start
        return fmt.parse_footer(self._bytes(start, length), crc, self.where)

    def _check_tiling(self) -> None:
        """The batches must fill the space between header and footer: so no byte is outside every checksum."""
        at = fmt.OBJECT_HEADER.size
        for place in sorted((p for places in self._places.values() for p in places), key=lambda each: each.offset):
            if place.offset != at or place.length < 0 or any(rows < 0 for _, rows in place.rows):
                raise CorruptionError(fmt.damaged(self.where, f"its index leaves byte {at} to nobody"))
            at += place.length
        if at != self._data_end:
            raise CorruptionError(fmt.damaged(self.where, f"its index leaves byte {at} to nobody"))

    def _batch(self, operator: str, place: BatchPlace) -> pa.RecordBatch:
        if self._pack is not None and self._pack[0] is place:
            return self._pack[1]
        data = self._bytes(place.offset, place.length)
        if len(data) != place.length or crc32(data) != place.crc:
            raise CorruptionError(
                fmt.damaged(
                    self.where, f"the checksum of bytes {place.offset} to {place.offset + place.length} does not match"
                )
            )
        try:
            batch = pa.ipc.read_record_batch(_aligned(data), self._schemas[operator])
            _check_inside(batch)
        except _UNREADABLE as error:
            raise CorruptionError(fmt.damaged(self.where, f"its records cannot be read: {error}")) from None
        if batch.num_rows != sum(rows for _, rows in place.rows):
            raise CorruptionError(fmt.damaged(self.where, "its index and its records count differently"))
        if len(place.rows) > 1:
            self._pack = (place, batch)
        return batch

    def _bytes(self, start: int, length: int) -> memoryview:
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : start - self._tail_start + length]
        at = start - self._ahead_start
        if at < 0 or at + length > len(self._ahead):
            if length >= self._read_ahead_bytes:
                return memoryview(self._fetch(start, length))  # not kept: each object of many may have such a section
            end = min(start + self._read_ahead_bytes, self._data_end)
            self._ahead, self._ahead_start, at = memoryview(self._fetch(start, end - start)), start, 0
        return self._ahead[at : at + length]

    def _fetch(self, start: int, length: int) -> bytes:
        try:
            data = self._store.get_range(self.name, start, length)
        except FileNotFoundError:
            raise CorruptionError(fmt.damaged(self.where, "it is missing")) from None
        if len(data) != length:
            raise CorruptionError(
                fmt.damaged(self.where, f"it should have {self._size} bytes and ends after {start + len(data)}")
            )
        return data


def _aligned(data: memoryview) -> pa.Buffer:
    """Arrow data at an address that is a multiple of 8, as kernels over its columns expect."""
    buffer = pa.py_buffer(data)
    return buffer if buffer.address % 8 == 0 else pa.py_buffer(bytes(data))


def _check_inside(batch: pa.RecordBatch) -> None:
    """Every value lies in its batch: kernels do not look whether strings are where a column says.

    Not Arrow's full validation, which looks at each decimal and each character.
    """
    batch.validate()
    for column in batch.columns:
        width = _OFFSETS.get(column.type)
        if width is None:
            column.validate(full=pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type))
        elif len(column):
            offsets = np.frombuffer(column.buffers()[1], width)[column.offset : column.offset + len(column) + 1]
            if (offsets[1:] < offsets[:-1]).any():
                raise ValueError("strings that end before they begin")


def _by_shard(places: list[BatchPlace]) -> dict[int, list[tuple[BatchPlace, int, int]]]:
    """Where each shard's records lie: batch, first row, rows."""
    found: dict[int, list[tuple[BatchPlace, int, int]]] = {}
    for place in places:
        start = 0
        for shard, rows in place.rows:
            found.setdefault(shard, []).append((place, start, rows))
            start += rows
    return found
