"""Event times of a task's rows: panes, lateness, and what was seen. Whole Arrow batches at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import AnalysisError
from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.late_rows import LateTaker, late_batch
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.rows import columns
from tailrace.types import TIMESTAMP

TIME_MAX = 2**62
"""Windows are computed in 64 bits: times this far from 1970 (146,000 years) leave room for any window."""


COUNTS = ("rows", "late_rows", "null_time_rows", "partials", "sampled_rows", "sampled_keys")
"""Of ``IngestCounts``, those that a receipt has under the same names."""


@dataclass
class IngestCounts:
    """What a task saw."""

    rows: int = 0
    """All of them, the next two kinds as well."""
    late_rows: int = 0
    null_time_rows: int = 0
    partials: int = 0
    sampled_rows: int = 0
    """Of which ``sampled_keys`` is the number of different keys: whether rows are worth combining follows from both."""
    sampled_keys: int = 0
    times_max: list[int] = field(default_factory=lambda: [MIN_MICROS])
    """By input, late rows too; MIN_MICROS where no row had an event time."""
    late_taker: LateTaker | None = None
    """Who gets the rows that are left out."""

    def saw(self, input_: int, first: int, last: int, name: str) -> None:
        """Event times from ``first`` to ``last`` of one input."""
        if max(last, -first) > TIME_MAX:
            raise AnalysisError(
                f"{name} holds an event time more than {TIME_MAX} microseconds from 1970 ({first} to {last}): such "
                "rows are not event times; filter them before tr.stream()"
            )
        self.times_max[input_] = max(self.times_max[input_], last)

    def leave_out(self, batch: pa.RecordBatch, late: np.ndarray, missing: np.ndarray) -> None:
        """Rows that go no further: those that are late, and those whose event time is missing."""
        late_rows, missing_rows = int(late.sum()), int(missing.sum())
        self.late_rows += late_rows
        self.null_time_rows += missing_rows
        if self.late_taker is not None and late_rows + missing_rows:
            self.late_taker.take(late_batch(batch, late, missing))


class Clocks:
    """The largest times in columns by which a watermark goes on, beside the event time. ``times_max``: by column."""

    def __init__(self, names: Sequence[str]) -> None:
        self.times_max = dict.fromkeys(names, MIN_MICROS)

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without these columns."""
        if not self.times_max:
            return batch
        for name, before in self.times_max.items():
            last = pc.max(batch.column(name).cast(pa.int64())).as_py()
            self.times_max[name] = before if last is None else max(before, last)
        return batch.select([name for name in batch.schema.names if name not in self.times_max])


def living(
    batch: pa.RecordBatch, name: str, late_before: int, counts: IngestCounts
) -> tuple[pa.RecordBatch, np.ndarray]:
    """For records that are forgotten by event time: rows that would make one which is forgotten already are late.

    The batch without these and without rows that have no time; their times.
    """
    times, known = times_of(batch, name, counts)
    late = known & (times <= late_before)
    counts.leave_out(batch, late, ~known)
    chosen = np.flatnonzero(known & ~late)
    return batch.take(pa.array(chosen)), times[chosen]


def times_of(batch: pa.RecordBatch, name: str, counts: IngestCounts) -> tuple[np.ndarray, np.ndarray]:
    """Event times, and which of them are known. They are also counted as seen, for the watermark."""
    array = batch.column(name)
    valid = columns.valid_mask(array)
    times = columns.fixed_words(array, TIMESTAMP, None)
    known = np.ones(len(batch), bool) if valid is None else valid
    if known.any():
        counts.saw(0, int(times[known].min()), int(times[known].max()), f"column {name}")
    return times, known


def until_ends(
    batch: pa.RecordBatch, name: str, ends_name: str, late_before: int, counts: IngestCounts
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """For sessions whose rows say themselves until when they last: rows whose own session has ended are late.

    The batch without these and without rows that are of no session; their times, and their panes: these times.
    """
    times, known = times_of(batch, name, counts)
    array = batch.column(ends_name)
    valid = columns.valid_mask(array)
    ends = columns.fixed_words(array, TIMESTAMP, None)
    lasting = known & (ends > times) if valid is None else known & valid & (ends > times)
    late = lasting & (ends <= late_before)
    counts.leave_out(batch, late, ~lasting)
    keep = lasting & ~late
    if not keep.all():
        chosen = np.flatnonzero(keep)
        batch, times = batch.take(pa.array(chosen)), times[chosen]
    return batch, times, times


def in_time(
    batch: pa.RecordBatch,
    name: str,
    window: TimeWindowSpec | SessionWindowSpec | None,
    late_before: int,
    counts: IngestCounts,
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray | None]:
    """The batch without rows that are late, or of no window for want of a time; their times; their panes."""
    times, known = times_of(batch, name, counts)
    if window is None:
        return batch, times if known.all() else np.where(known, times, MIN_MICROS), None
    last_end, panes = window.last_ends(times), window.panes.of(times)
    late = known & (last_end <= late_before)
    counts.leave_out(batch, late, ~known)
    keep = known & ~late
    if keep.all():
        return batch, times, panes
    chosen = np.flatnonzero(keep)
    return batch.take(pa.array(chosen)), times[chosen], panes[chosen]
