"""Sections of a join: rows of both of its stores in one.

The schema is ``__unmatched`` and then that of ``state.sections``. Where ``__unmatched`` is set, the row is one of the
stores of rows that wait for a match (see ``unmatched``; the last column says of which side), else of the store of all
rows. Nothing is ever removed but by the horizon, so that sections are added up: there are no tombstones, and rows need
no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.join.spec import RIGHT
from tailrace.state.append import list_sections
from tailrace.state.append.aligned import live_rows
from tailrace.state.layout import RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.rows import no_rows
from tailrace.state.sections import sections
from tailrace.types import BIGINT

_UNMATCHED = pa.field("__unmatched", pa.bool_())


def section_schema(layout: RecordLayout) -> pa.Schema:
    return pa.schema([_UNMATCHED, *sections.section_schema(layout)])


def united(
    layout: RecordLayout, kept: Mapping[int, pa.RecordBatch], unmatched: Iterable[Mapping[int, pa.RecordBatch]]
) -> dict[int, pa.RecordBatch]:
    """By shard: the sections of all stores (the first with the columns of ``list_sections``) as one."""
    parts: dict[int, list[pa.RecordBatch]] = {}
    for flag, first, deltas in ((False, 2, kept), *((True, 0, each) for each in unmatched)):
        for shard, batch in deltas.items():
            flags = pa.array(np.full(len(batch), flag))
            arrays = [flags, *batch.columns[first:]]
            parts.setdefault(shard, []).append(pa.RecordBatch.from_arrays(arrays, schema=section_schema(layout)))
    return {shard: _one(batches, layout) for shard, batches in sorted(parts.items())}


def divided(batch: pa.RecordBatch, layout: RecordLayout) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The sections of the store of all rows, and of those of unmatched ones together."""
    flags = np.asarray(batch.column(0).to_numpy(zero_copy_only=False), bool)
    kept, unmatched = (
        batch if chosen.all() else batch.filter(pa.array(chosen)) for chosen in (~flags, flags)
    )  # the common case, of inner joins, is not copied
    none, never = pa.array(np.zeros(len(kept), bool)), pa.nulls(len(kept), pa.int64())
    return (
        pa.RecordBatch.from_arrays([none, never, *kept.columns[1:]], schema=list_sections.section_schema(layout)),
        pa.RecordBatch.from_arrays(unmatched.columns[1:], schema=sections.section_schema(layout)),
    )


def of_side(unmatched: pa.RecordBatch, side: int) -> pa.RecordBatch:
    """Of unmatched rows those of one side: it is in the sign of their numbers."""
    numbers = columns.fixed_words(unmatched.column(unmatched.num_columns - 1), BIGINT, None)
    return unmatched.filter(pa.array((numbers < 0) == (side == RIGHT)))


def compact(layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int) -> pa.RecordBatch:
    """One section that stands for several."""
    return _one([live_rows(batch, horizon) for batch in batches], layout)


def _one(batches: Sequence[pa.RecordBatch], layout: RecordLayout) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    found = pa.Table.from_batches(batches, section_schema(layout)).combine_chunks().to_batches()
    if found:
        return found[0]
    empty = sections.to_section(no_rows(layout), layout)
    return pa.RecordBatch.from_arrays([pa.array([], pa.bool_()), *empty.columns], schema=section_schema(layout))
