"""Sections of windows by count that keep rows: the lists of open windows, and how many rows of each key came, in one.

The schema is ``__total`` and then that of ``state.append.list_sections``. Where ``__total`` is not null, the entry is
no row of a list but the count of the key that it names, in pane 0; the newest one of a key is right. Where keys have a
time-to-live, ``__updated`` comes behind ``__total``: when the key was last updated. A count without it is a tombstone:
the key is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.rows.row_index import counts_layout
from tailrace.state.append import list_sections
from tailrace.state.append import unaligned as append_unaligned
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.columns import arrow_type
from tailrace.state.sections import compaction as section_compaction
from tailrace.state.sections import sections
from tailrace.types import TIMESTAMP

_TOTAL = pa.field("__total", pa.int64())
_UPDATED = pa.field("__updated", arrow_type(TIMESTAMP))


def section_schema(spec: AggregateSpec) -> pa.Schema:
    return pa.schema([*_own(spec), *list_sections.section_schema(spec.layout())])


def _own(spec: AggregateSpec) -> list[pa.Field]:
    return [_TOTAL] if spec.ttl is None else [_TOTAL, _UPDATED]


def totals_layout(spec: AggregateSpec) -> RecordLayout:
    return counts_layout(spec.keys, expire=spec.ttl is not None)


def united(
    spec: AggregateSpec, lists: Mapping[int, pa.RecordBatch], totals: Mapping[int, pa.RecordBatch]
) -> dict[int, pa.RecordBatch]:
    """By shard: the sections of both stores as one."""
    return {shard: _one(spec, lists.get(shard), totals.get(shard)) for shard in sorted(lists.keys() | totals.keys())}


def divided(batch: pa.RecordBatch, spec: AggregateSpec) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The section of the lists and that of the counts."""
    counted = pc.is_valid(batch.column(0))
    rows, counts = batch.filter(pc.invert(counted)), batch.filter(counted)
    layout, own = totals_layout(spec), len(_own(spec))
    keys = counts.columns[own + 2 : own + 4 + len(layout.keys)]
    values = counts.columns[:own]
    if spec.ttl is not None:
        values[0] = pc.if_else(pc.is_valid(values[1]), values[0], pa.scalar(None, pa.int64()))
    return (
        pa.RecordBatch.from_arrays(rows.columns[own:], schema=list_sections.section_schema(spec.layout())),
        pa.RecordBatch.from_arrays([*keys, *values], schema=sections.section_schema(layout)),
    )


def compact(spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    """One section that stands for several, oldest first."""
    parts = [divided(batch, spec) for batch in batches]
    lists = append_unaligned.compact_sections(spec.layout(), [rows for rows, _ in parts], horizon, complete=complete)
    bury = complete and spec.ttl is not None
    totals = section_compaction.compact_records(
        totals_layout(spec), [counts for _, counts in parts], horizon, bury=bury
    )
    return _one(spec, lists, totals)


def _one(spec: AggregateSpec, lists: pa.RecordBatch | None, totals: pa.RecordBatch | None) -> pa.RecordBatch:
    schema, own, parts = section_schema(spec), _own(spec), []
    if totals is not None:
        count, end = len(totals), 2 + len(spec.keys)
        none = [pa.nulls(count, field.type) for field in list(schema)[len(own) + 2 + end :]]
        gone, trigger = pa.array(np.zeros(count, bool)), pa.nulls(count, pa.int64())
        # A tombstone has a total too, which distinguishes it from rows.
        values = [pc.fill_null(totals.column(end), 0), *totals.columns[end + 1 :]]
        columns = [*values, gone, trigger, *totals.columns[:end], *none]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    if lists is not None:
        columns = [*(pa.nulls(len(lists), field.type) for field in own), *lists.columns]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    whole = pa.Table.from_batches(parts, schema).combine_chunks().to_batches()
    return whole[0] if whole else parts[0]
