"""The rows of an initial state: given to the function in the first epoch, before the rows of the stream.

They come with the operator's description, and so only to servers of a query that has no epoch yet.

Threads: immutable.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec
from tailrace.state.layout import HASH, RecordLayout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows

FIRST_EPOCH = 0


def packed_rows(rows: pa.Table) -> str:
    """The form in which they travel."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode()


class InitialState:
    """``rows``: all of them; what the function sees is their columns ``names``, without those of the keys."""

    def __init__(self, spec: StatefulProcessorSpec) -> None:
        self._spec = spec
        table = pa.ipc.open_stream(base64.b64decode(spec.initial)).read_all()
        count = len(spec.keys)
        self._keys = table.select(range(count))
        self.rows: pa.Table = table.select(range(count, table.num_columns))
        self._at: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number, key in enumerate(_tuples(self._keys)):
            self._at[key].append(number)

    def rows_of(self, keys: pa.Table) -> list[list[int]]:
        """Which rows are whose."""
        return [self._at.get(key, []) for key in _tuples(keys)]

    def keys(self, layout: RecordLayout, shards: Collection[int]) -> Rows:
        """Those of these shards."""
        builder = RowsBuilder(len(self._keys), layout)
        for column, key, place in zip(self._keys.columns, self._spec.keys, layout.keys, strict=True):
            builder.put(column.combine_chunks(), key.type, place.word, place.bit)
        rows = builder.finish()
        put_hashes(rows, hash_program(layout))
        own = np.isin(rows.words[:, HASH] % self._spec.shards, list(shards))
        return Rows(np.ascontiguousarray(rows.words[own]), rows.heap)


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
