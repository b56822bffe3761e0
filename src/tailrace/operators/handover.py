"""What one operator emits as what the next one takes: column by column, whole batches.

The window that a row comes from becomes its event time: the window's start where the next operator groups by that same
window, else the last moment that belongs to it (Spark's ``window_time``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.key_hash import hash_program, put_hashes
from tailrace.operators.spec import OperatorSpec
from tailrace.state.columns import arrow_type
from tailrace.state.layout import HASH, record_layout
from tailrace.state.sections import RowsBuilder
from tailrace.types import DataType

_ROWS_MAX = 1 << 17


def output_types(spec: OperatorSpec) -> dict[str, DataType]:
    """The columns of an operator's output, by name; its window as the event time that is made of it."""
    types = {key.name: key.type for key in spec.keys} | {out.name: out.type for out in spec.outputs}
    if spec.windowed:
        assert spec.time_column is not None
        types[spec.window_name] = spec.time_column.type
    return types


def handed_over(batch: pa.RecordBatch, spec: OperatorSpec) -> pa.RecordBatch:
    """The columns of an emission that operator ``spec`` reads, as it reads them."""
    names = {key.name for key in spec.keys} | {row.name for row in spec.rows}
    names |= {accumulator.column for accumulator in spec.accumulators if accumulator.column is not None}
    columns = {name: batch.column(name) for name in names if batch.schema.get_field_index(name) >= 0}
    if spec.time_column is not None:
        inherited = spec.window is not None and spec.window.lasts is not None
        columns[spec.time_column.name] = _times(batch.column(spec.time_column.name), spec.time_column.type, inherited)
    if not columns:
        return pa.RecordBatch.from_arrays([pa.nulls(len(batch))], names=["nothing"])
    return pa.RecordBatch.from_pydict(columns)


def _times(windows: pa.Array, type_: DataType, inherited: bool) -> pa.Array:
    if inherited:
        return windows.field("start")
    ends = np.asarray(windows.field("end").cast(pa.int64()))
    return pa.array(ends - 1).cast(arrow_type(type_))


def in_fixed_order(batches: Sequence[pa.RecordBatch], spec: OperatorSpec) -> list[pa.RecordBatch]:
    """The rows that operator ``spec`` emitted, by shard, then by hash of their keys, then by window."""
    whole = [batch for batch in batches if len(batch)]
    if not whole or not spec.shown_keys:
        return whole
    table = pa.Table.from_batches(whole)
    layout = record_layout(spec.shown_keys, [], spec.ansi)
    builder = RowsBuilder(len(table), layout)
    for key, place in zip(spec.shown_keys, layout.keys, strict=True):
        builder.put(table.column(key.name).combine_chunks(), key.type, place.word, place.bit)
    rows = builder.finish()
    put_hashes(rows, hash_program(layout))
    hashes = rows.words[:, HASH]
    starts = np.zeros(len(table), np.int64)
    if spec.windowed:
        windows = table.column(spec.window_name).combine_chunks()
        starts = np.asarray(windows.field("start").cast(pa.int64()))
    order = np.lexsort((starts, hashes, hashes % spec.shards))
    cuts = range(0, len(order), _ROWS_MAX)
    parts = (table.take(pa.array(order[at : at + _ROWS_MAX])).combine_chunks().to_batches() for at in cuts)
    return [batch for part in parts for batch in part]
