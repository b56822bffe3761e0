"""Rows that a task leaves out, as a user may want them back: late ones, and those without an event time.

They are the source's rows with the columns that the query reads, and two more: why they were left out, and of a join
which side they are of. Which rows are late is decided where they are ingested (``event_time``, ``join.ingest``), and
nowhere else.

Pure functions over whole batches.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.spec import SIDE, TIME

REASON_COLUMN = "tailrace_reason"
SIDE_COLUMN = "tailrace_side"
LATE, NO_TIME = "late", "no event time"
LEFT, RIGHT = "left", "right"


class LateTaker(Protocol):
    """Who wants the rows that are left out."""

    def take(self, rows: pa.RecordBatch) -> None:
        """Rows as :func:`late_batch` makes them."""


def late_columns(read: list[str]) -> list[str]:
    """The names of a late row's columns, given those that the operator reads."""
    side = [SIDE_COLUMN] if SIDE in read else []
    return [*side, *(name for name in read if name not in (SIDE, TIME)), REASON_COLUMN]


def late_batch(batch: pa.RecordBatch, late: np.ndarray, missing: np.ndarray) -> pa.RecordBatch:
    """The rows that are ``late`` or whose time is ``missing``, in the order in which they came."""
    at = np.flatnonzero(late | missing)
    rows = batch.take(pa.array(at))
    reasons = pa.DictionaryArray.from_arrays(pa.array(missing[at].astype(np.int8)), pa.array([LATE, NO_TIME]))
    columns = {name: rows.column(name) for name in rows.schema.names if name not in (SIDE, TIME)}
    if SIDE in rows.schema.names:
        columns[SIDE_COLUMN] = pc.if_else(rows.column(SIDE), RIGHT, LEFT)
    columns[REASON_COLUMN] = reasons.cast(pa.string())
    return pa.RecordBatch.from_pydict({name: columns[name] for name in late_columns(rows.schema.names)})
