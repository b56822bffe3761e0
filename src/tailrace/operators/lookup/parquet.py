"""A lookup table in Parquet files, brought into the order of its keys' hashes once, on this machine's disk.

Invariants
- Files are read when the server first asks, whole, piece by piece: rows are split by hash into buckets of some ten
  megabytes, and each bucket is sorted and written as one mapped Arrow batch. So memory is bounded by a bucket, and a
  look-up reads only the pages that hold its rows. What is mapped is not in memory until then.
- A key is in the table once; a table that has one twice is refused. Rows with a null in the key are left out.

Threads: any. The first one reads the files, others wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tailrace.env.files.scratch import SpilledBatches
from tailrace.errors import TableError
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.lookup.backend import NOTHING_LOST, Answer, ConnectionLost, converted
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.state.layout import HASH, record_layout
from tailrace.state.rows.arrange import row_numbers
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.columns import arrow_type

_PIECE = 1 << 16
_READ_ROWS = 1 << 16
BUCKET_BYTES = 32 << 20
_BUCKETS_MAX = 512
_HASH = "__hash"


class ParquetTable:
    piece = _PIECE
    mapped = True

    def __init__(
        self, spec: LookupSpec, options: dict[str, Any], folder: str, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self._spec, self._path, self._folder, self._bucket_bytes = spec, options["path"], folder, bucket_bytes
        fields = [(_HASH, pa.int64())]
        fields += [(f"k{n}", arrow_type(key.type, large=True)) for n, key in enumerate(spec.keys)]
        fields += [(f"v{n}", arrow_type(value.type, large=True)) for n, value in enumerate(spec.values)]
        self._schema = pa.schema(fields)
        self._layout = record_layout(spec.keys, [], ansi=False)
        self._program = hash_program(self._layout)
        self._lock = threading.Lock()
        self._buckets: list[pa.RecordBatch] | None = None

    def ask(self, keys: list[pa.Array]) -> Answer:
        with self._lock:
            if self._buckets is None:
                self._buckets = self._read()
            buckets = self._buckets
        hashes, count = self._hashes(keys), len(keys[0])
        there, place = np.zeros(count, bool), np.zeros(count, np.int64)
        parts: list[pa.RecordBatch] = []
        found = 0
        owner = hashes % len(buckets)
        for number in np.unique(owner):
            bucket, asked = buckets[number], np.flatnonzero(owner == number)
            at, rows = self._found(bucket, hashes[asked], [key.take(pa.array(asked)) for key in keys])
            there[asked[at]], place[asked[at]] = True, found + np.arange(len(at))
            found += len(at)
            parts.append(bucket.take(pa.array(rows)))
        table = pa.Table.from_batches(parts, self._schema).combine_chunks()
        order = pa.array(place, mask=~there)
        values = [table.column(f"v{n}").take(order) for n in range(len(self._spec.values))]
        return Answer(there, [value.combine_chunks() for value in values])

    def _found(self, bucket: pa.RecordBatch, hashes: np.ndarray, keys: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        """Which of the keys are there, and in which rows."""
        own = np.asarray(bucket.column(0))
        low, high = (np.searchsorted(own, hashes, side=side) for side in ("left", "right"))
        rows, asked = row_numbers(low, high), np.repeat(np.arange(len(hashes)), high - low)
        same = np.ones(len(rows), bool)
        for n, key in enumerate(keys):
            mine = bucket.column(1 + n).take(pa.array(rows))
            same &= np.asarray(pc.equal(mine, key.cast(mine.type).take(pa.array(asked))))
        return asked[same], rows[same]

    def _hashes(self, keys: list[pa.Array]) -> np.ndarray:
        builder = RowsBuilder(len(keys[0]), self._layout)
        for key, place in zip(keys, self._layout.keys, strict=True):
            builder.put(key, place.type, place.word, place.bit)
        rows = builder.finish()
        put_hashes(rows, self._program)
        return np.ascontiguousarray(rows.words[:, HASH])

    # Reading the files -----------------------------------------------------------------------------------------------

    def _read(self) -> list[pa.RecordBatch]:
        try:
            buckets = self._split(_files(self._path))
        except (OSError, pa.ArrowInvalid) as error:
            said = str(error).splitlines()[0]
            missing = isinstance(error, FileNotFoundError | pa.ArrowInvalid)
            raise (
                TableError(f"{self._spec.table.shown} cannot be read: {said}. {NOTHING_LOST}")
                if missing
                else ConnectionLost(said)
            ) from None
        return [self._sorted(bucket) for bucket in buckets]

    def _split(self, files: list[pq.ParquetFile]) -> list[SpilledBatches]:
        size = sum(map(_bytes, files))
        count = min(_BUCKETS_MAX, 1 + size // self._bucket_bytes)
        buckets = [SpilledBatches(self._folder, self._schema) for _ in range(count)]
        for batch in self._batches(files):
            owner = np.asarray(batch.column(0)) % count
            for number in range(count):
                own = batch.filter(pa.array(owner == number)) if count > 1 else batch
                if len(own):
                    buckets[number].write(own)
        return buckets

    def _batches(self, files: list[pq.ParquetFile]) -> Iterator[pa.RecordBatch]:
        fields = (*self._spec.keys, *self._spec.values)
        for batch in (batch for file in files for batch in _columns(file, [field.name for field in fields])):
            arrays = [
                converted(_plain(array), field.type, field.name, self._spec.table.shown)
                for array, field in zip(batch.columns, fields)
            ]
            keys = arrays[: len(self._spec.keys)]
            known = np.all([np.asarray(pc.is_valid(key)) for key in keys], axis=0)
            if not known.all():
                arrays = [array.filter(pa.array(known)) for array in arrays]
                keys = arrays[: len(keys)]
            yield pa.RecordBatch.from_arrays([pa.array(self._hashes(keys)), *arrays], schema=self._schema)

    def _sorted(self, bucket: SpilledBatches) -> pa.RecordBatch:
        table = pa.Table.from_batches(bucket.batches(), self._schema).combine_chunks()
        bucket.close()
        names = self._schema.names[: 1 + len(self._spec.keys)]
        table = table.take(pc.sort_indices(table, [(name, "ascending") for name in names]))
        self._refuse_twice(table, names)
        sorted_ = SpilledBatches(self._folder, self._schema)
        for batch in table.combine_chunks().to_batches():
            sorted_.write(batch)
        batches = sorted_.batches()
        sorted_.close()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self._schema)

    def _refuse_twice(self, table: pa.Table, names: list[str]) -> None:
        if len(table) < 2:
            return
        same = np.ones(len(table) - 1, bool)
        for name in names:
            column = table.column(name)
            same &= np.asarray(pc.equal(column.slice(1), column.slice(0, len(table) - 1)))
        if same.any():
            row = table.slice(int(np.argmax(same)), 1).to_pylist()[0]
            key = ", ".join(f"{field.name}={row[f'k{n}']!r}" for n, field in enumerate(self._spec.keys))
            raise TableError(
                f"{self._spec.table.shown} has {int(same.sum())} keys more than once, such as {key}, and a lookup "
                f"table has one row for a key: join with a static DataFrame, or make the key unique. {NOTHING_LOST}"
            )

    def close(self) -> None:
        with self._lock:
            self._buckets = None


def _files(path: str) -> list[pq.ParquetFile]:
    """A file, or all files of a folder. Not by Arrow's datasets: these bring pandas along, which servers do without."""
    filesystem, inside = (
        fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path.removeprefix("file:"))
    )
    found = filesystem.get_file_info(inside)
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is nothing at {path}")
    paths = [inside]
    if found.type == fs.FileType.Directory:
        below = filesystem.get_file_info(fs.FileSelector(inside, recursive=True))
        start = len(inside.rstrip("/"))
        paths = sorted(each.path for each in below if each.is_file and not _hidden(each.path[start:]))
    return [pq.ParquetFile(filesystem.open_input_file(each)) for each in paths]


def _hidden(path: str) -> bool:
    """Whether Spark would not read it either: it, or a folder on the way to it, is no data, by its name.

    ``_delta_log`` and ``_temporary`` hold Parquet files too. A partition's folder may begin with ``_``.
    """
    return any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in path.split("/"))


def _columns(file: pq.ParquetFile, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Batches of these columns, in this order, whatever the case of their names."""
    by_name = {name.lower(): name for name in file.schema_arrow.names}
    missing = [name for name in wanted if name.lower() not in by_name]
    if missing:
        raise pa.ArrowInvalid(f"no column {', '.join(missing)}; there are {', '.join(file.schema_arrow.names)}")
    names = [by_name[name.lower()] for name in wanted]
    for batch in file.iter_batches(batch_size=_READ_ROWS, columns=names):
        yield batch.select(names)


def _bytes(file: pq.ParquetFile) -> int:
    groups = range(file.metadata.num_row_groups)
    size: int = file.metadata.serialized_size + sum(file.metadata.row_group(n).total_byte_size for n in groups)
    return size


def _plain(array: pa.Array) -> pa.Array:
    """Out of a dictionary, as Parquet files may hold strings."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
