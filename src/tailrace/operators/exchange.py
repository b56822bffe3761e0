"""What one operator emits as what the next one takes: column by column, whole batches.

The window that a row comes from becomes its event time: the window's start where the next operator groups by that same
window, else the last moment that belongs to it (Spark's ``window_time``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.env.files.scratch import SpilledBatches
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.output import EpochOutput
from tailrace.operators.rows.row_order import row_order
from tailrace.operators.spec import OperatorSpec
from tailrace.state.layout import HASH, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType, Field

_ROWS_MAX = 1 << 17
_SORTED_ROWS_MAX = 1 << 19
"""So many rows are brought into their order at once."""


def output_types(spec: OperatorSpec) -> dict[str, DataType]:
    """The columns of an operator's output, by name; a window as the event time that is made of it."""
    return {field.name: field.type.bounds or field.type for field in spec.emits}


def handed_over(batch: pa.RecordBatch, spec: OperatorSpec) -> pa.RecordBatch:
    """The columns of an output that operator ``spec`` reads, as it reads them."""
    columns = {name: batch.column(name) for name in spec.reads}
    for name, column in columns.items():
        if pa.types.is_struct(column.type):
            assert spec.time_column is not None and name == spec.time_column.name, "a window is read as event time only"
            columns[name] = _times(column, spec.time_column.type, spec.takes_window_start)
    if not columns:
        return pa.RecordBatch.from_arrays([pa.nulls(len(batch))], names=["nothing"])
    return pa.RecordBatch.from_pydict(columns)


def _times(windows: pa.Array, type_: DataType, start: bool) -> pa.Array:
    if start:
        return windows.field("start")
    ends = np.asarray(windows.field("end").cast(pa.int64()))
    return pa.array(ends - 1).cast(arrow_type(type_))


def in_fixed_order(
    batches: Sequence[pa.RecordBatch], spec: OperatorSpec, folder: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows that operator ``spec`` emitted, by shard, by hash of their keys, then by what distinguishes them.

    Many of them are ordered some shards at a time; the others wait in files in ``folder``.
    """
    # By type too: a user's function may give a column of its own the name of a key.
    keys = tuple(key for key in spec.keys if key in spec.emits)
    if len(keys) < len(spec.keys):
        yield from (batch for batch in batches if len(batch))
        return
    rows = batches.rows if isinstance(batches, EpochOutput) else sum(map(len, batches))
    groups = min(spec.shards, -(-rows // _SORTED_ROWS_MAX))
    for some in [batches] if groups <= 1 else _by_shards(batches, keys, spec.shards, groups, folder):
        yield from _ordered([batch for batch in some if len(batch)], keys, spec)


def _ordered(
    batches: Sequence[pa.RecordBatch], keys: tuple[Field, ...], spec: OperatorSpec
) -> Iterator[pa.RecordBatch]:
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    hashes = _hashes(table, keys)
    order = row_order([pa.array(hashes % spec.shards), pa.array(hashes), pa.array(_rest(table, spec))], len(table))
    for at in range(0, len(order), _ROWS_MAX):
        yield from table.take(pa.array(order[at : at + _ROWS_MAX])).combine_chunks().to_batches()


def _by_shards(
    batches: Sequence[pa.RecordBatch], keys: tuple[Field, ...], shards: int, groups: int, folder: str | None
) -> Iterator[Sequence[pa.RecordBatch]]:
    """The rows of so many groups of shards, one group after the other, each row where it stood before."""
    files = [SpilledBatches(folder, batches[0].schema) for _ in range(groups)]
    try:
        for batch in batches:
            owners = _hashes(pa.Table.from_batches([batch]), keys) % shards * groups // shards
            for number, file in enumerate(files):
                own = batch.filter(pa.array(owners == number))
                if len(own):
                    file.write(own)
        for file in files:
            yield file.batches()
            file.close()
    finally:
        for file in files:
            file.close()


def _rest(table: pa.Table, spec: OperatorSpec) -> np.ndarray:
    """A number by which rows of one key follow each other."""
    fields = [field for field in spec.emits if field.name in spec.distinguishing]
    windows = [table.column(field.name).combine_chunks() for field in fields if field.type.bounds is not None]
    starts = [np.asarray(window.field("start").cast(pa.int64())) for window in windows]
    others = tuple(field for field in fields if field.type.kind is not None)
    if not others:
        return starts[0] if starts else np.zeros(len(table), np.int64)
    return sum(starts, _hashes(table, others))


def _hashes(table: pa.Table, fields: tuple[Field, ...]) -> np.ndarray:
    layout = record_layout(fields, [], ansi=False)
    builder = RowsBuilder(len(table), layout)
    for field, place in zip(fields, layout.keys, strict=True):
        builder.put(table.column(field.name).combine_chunks(), field.type, place.word, place.bit)
    rows = builder.finish()
    put_hashes(rows, hash_program(layout))
    return np.ascontiguousarray(rows.words[:, HASH])
