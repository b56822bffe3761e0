"""Sections of windows by count that keep rows: the lists of open windows, and how many rows of each key came, in one.

The schema is ``__total`` and then that of ``state.list_sections``. Where ``__total`` is not null, the entry is no row
of a list but the count of the key that it names, in pane 0; the newest one of a key is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.state import append_unaligned, list_sections, section_tables, sections
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import BIGINT

_TOTAL = pa.field("__total", pa.int64())


def section_schema(layout: RecordLayout) -> pa.Schema:
    return pa.schema([_TOTAL, *list_sections.section_schema(layout)])


def totals_layout(spec: AggregateSpec) -> RecordLayout:
    return record_layout(spec.keys, [(Merge.ADD, BIGINT)], ansi=False)


def united(
    layout: RecordLayout, lists: Mapping[int, pa.RecordBatch], totals: Mapping[int, pa.RecordBatch]
) -> dict[int, pa.RecordBatch]:
    """By shard: the sections of both stores as one."""
    return {shard: _one(layout, lists.get(shard), totals.get(shard)) for shard in sorted(lists.keys() | totals.keys())}


def divided(batch: pa.RecordBatch, spec: AggregateSpec) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The section of the lists and that of the counts."""
    counted = pc.is_valid(batch.column(0))
    rows, counts = batch.filter(pc.invert(counted)), batch.filter(counted)
    layout = totals_layout(spec)
    keys = counts.columns[3 : 5 + len(layout.keys)]
    return (
        pa.RecordBatch.from_arrays(rows.columns[1:], schema=list_sections.section_schema(spec.layout())),
        pa.RecordBatch.from_arrays([*keys, counts.column(0)], schema=sections.section_schema(layout)),
    )


def fold(spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    """One section that stands for several, oldest first."""
    parts = [divided(batch, spec) for batch in batches]
    lists = append_unaligned.fold_sections(spec.layout(), [rows for rows, _ in parts], horizon, complete=complete)
    totals = section_tables.fold_sections(totals_layout(spec), [counts for _, counts in parts], horizon)
    return _one(spec.layout(), lists, totals)


def _one(layout: RecordLayout, lists: pa.RecordBatch | None, totals: pa.RecordBatch | None) -> pa.RecordBatch:
    schema, parts = section_schema(layout), []
    if totals is not None:
        count, end = len(totals), 2 + len(layout.keys)
        none = [pa.nulls(count, field.type) for field in list(schema)[3 + end :]]
        gone, trigger = pa.array(np.zeros(count, bool)), pa.nulls(count, pa.int64())
        columns = [totals.column(end), gone, trigger, *totals.columns[:end], *none]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    if lists is not None:
        columns = [pa.nulls(len(lists), pa.int64()), *lists.columns]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    whole = pa.Table.from_batches(parts, schema).combine_chunks().to_batches()
    return whole[0] if whole else parts[0]
