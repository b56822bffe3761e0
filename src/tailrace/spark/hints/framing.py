"""How a task's rows are cut into frames. Pure.

Servers see the keys of a frame when it comes: of rows that come in several frames, most keys are known while the rest
still comes (ADR 19). So where an operator has waited for spilled state, the tasks that feed it send their rows in three
frames instead of one, each smaller than the one before: the first rows have the most time before they are needed, and
the last ones the least (ADR 21).
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX

FRAMES = 3
_UNITS = FRAMES * (FRAMES + 1) // 2
"""Three frames that become smaller one by one have six times the rows of the last."""
_ROWS_MIN = 128
"""A frame costs a millisecond or so, whatever its size."""


@dataclass(frozen=True)
class Cut:
    """How a task's rows are cut: its first frame has ``first`` times ``rows`` of them, the second one time less, and so
    on down to ``rows``, as all that follow have."""

    rows: int = FRAME_ROWS_MAX
    first: int = 1


def cut_of(task_rows: int, before: Cut) -> Cut:
    """Three frames, for tasks of about so many rows.

    ``before``: the cut of the epoch before. It stays while it is right to a quarter, since a cut is part of the epoch's
    config, which is recorded whenever it changes. It stays as well for tasks with hardly any rows.
    """
    if task_rows < 2 * _ROWS_MIN:
        return before
    rows = min(FRAME_ROWS_MAX // FRAMES, max(_ROWS_MIN, -(-task_rows // _UNITS)))
    if before.first == FRAMES and 3 * before.rows <= 4 * rows <= 5 * before.rows:
        return before
    return Cut(rows, FRAMES)
