"""Writing a state object: a stream of parts for ``ObjectStore.put``.

Sections come in order (operator by operator, shards ascending within one) and leave as encapsulated Arrow record
batches. Small neighbours are packed into one batch, because a batch costs about 50 microseconds to write and to read
whatever it holds; the index keeps the row range of each shard. One thread.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from tailrace.log import format as fmt

Section = tuple[str, int, pa.RecordBatch]
"""Operator, shard, and the records of that shard."""


def object_parts(about: Mapping[str, Any], sections: Iterable[Section]) -> Iterator[Any]:
    """The bytes of one object, in order. ``about``, as it is after the last section, is written beside the index.

    Holds one pack of small sections, or one large section, at a time.
    """
    yield fmt.object_header()
    offset = fmt.OBJECT_HEADER.size
    operators: dict[str, dict[str, Any]] = {}
    for operator, rows_of, batch in _packed(sections):
        index = operators.get(operator)
        if index is None:
            index = operators[operator] = {"schema": _schema_text(batch.schema), "batches": []}
        data = batch.serialize()
        index["batches"].append([offset, data.size, crc32(data), rows_of])
        offset += data.size
        yield data
    yield fmt.object_footer({**about, "operators": operators})


def _packed(sections: Iterable[Section]) -> Iterator[tuple[str, list[list[int]], pa.RecordBatch]]:
    """Batches to write, each with its ``[shard, rows]`` pairs."""
    waiting: list[tuple[int, pa.RecordBatch]] = []
    waiting_bytes = 0
    at: tuple[str, int] | None = None
    schema: pa.Schema | None = None

    def flush(operator: str) -> Iterator[tuple[str, list[list[int]], pa.RecordBatch]]:
        nonlocal waiting, waiting_bytes
        if waiting:
            whole = waiting[0][1] if len(waiting) == 1 else pa.concat_batches([batch for _, batch in waiting])
            yield operator, [[shard, batch.num_rows] for shard, batch in waiting], whole
        waiting, waiting_bytes = [], 0

    for operator, shard, batch in sections:
        if at is not None and operator != at[0]:
            yield from flush(at[0])
            if operator < at[0]:
                raise ValueError(f"sections of {operator} come after those of {at[0]}")
            schema = None
        elif at is not None and shard < at[1]:
            raise ValueError(f"{operator}: the section of shard {shard} comes after that of shard {at[1]}")
        at = (operator, shard)
        if schema is None:
            schema = batch.schema
        elif not batch.schema.equals(schema):
            raise ValueError(f"{operator}: shard {shard} has another schema than the shards before it")
        if not batch.num_rows:
            continue
        size = batch.nbytes
        if waiting and waiting_bytes + size > fmt.PACK_BYTES:
            yield from flush(operator)
        if size <= fmt.SECTION_BATCH_BYTES:
            waiting.append((shard, batch))
            waiting_bytes += size
            continue
        rows = max(1, batch.num_rows * fmt.SECTION_BATCH_BYTES // size)
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            yield operator, [[shard, part.num_rows]], part
    if at is not None:
        yield from flush(at[0])


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()
