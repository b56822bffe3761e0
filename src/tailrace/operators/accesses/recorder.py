"""An operator that also records its state accesses, one by one, as a store with one entry a key and window sees them.

What counts as an access (docs/explanation/gadget-analysis.md has it in a user's words). The engine works on whole
columns, and on
panes that overlapping windows share; what is recorded is what its rows ask for, as if they were applied one by one:
- a row of an incremental aggregate: a get and a put for each window it is in that is still open, by ascending start;
  without windows, one of each on its key;
- a row of a window join, or of an aggregate of whole groups: a merge for each such window;
- a window of a key that the operator closes: a get and a delete; in update mode, where it is not read, a delete.

Invariants
- Rows come from the frames of the committed attempts, in the order of their partitions and, inside one, of their
  arrival. So tasks must not combine, and must send arrivals.
- What closes is what the operator itself says it has closed (``on_close``), not what somebody expects to close.
- An epoch is handed to the log when it has advanced; one that is undone is taken back there.
- Nothing runs once per row. Who does not record never comes here: the operator is used as it is.

Threads: one call at a time, as for every operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from tailrace.env import clock
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.ingest.frame import Frame, arrival_order
from tailrace.operators.join.output import has_keys
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import FIRST_KEY, HASH, PANE
from tailrace.state.rows.rows import Rows

GET, PUT, MERGE, DELETE = 0, 1, 2, 3
"""Kept in recordings: these numbers may not change."""

ROW, ROW_AGAIN, CLOSE = 0, 1, 2
"""What caused an access: the first of a row, another one of the same row, a window that closed. Kept in recordings."""

SCHEMA = pa.schema(
    [
        ("operation", pa.uint8()),
        ("key", pa.int64()),  # the hash of the key columns
        ("window", pa.int64()),  # its start, 0 without windows
        ("value_size", pa.int32()),
        ("time", pa.int64()),
        ("cause", pa.uint8()),
    ]
)


_NOTHING = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)


class Log(Protocol):
    def write(self, epoch: int, accesses: pa.RecordBatch) -> None:
        """All of an epoch. What the log has of this epoch and of later ones does not count any more."""


class Closing(Protocol):
    """An operator that reports which windows it closes: hashes of their keys, and their starts (one, or one each)."""

    on_close: Callable[[np.ndarray, Any], None] | None


@dataclass(frozen=True)
class _Touched:
    """Rows in the order of their arrival."""

    hashes: np.ndarray
    panes: np.ndarray
    times: np.ndarray


class RecordedOperator:
    """What it does not define itself is the operator's own."""

    def __init__(self, operator: Operator, spec: OperatorSpec, log: Log) -> None:
        wrong = spec.why_not_recordable()
        assert wrong is None, wrong
        assert isinstance(spec, AggregateSpec | JoinSpec)
        self._operator = operator
        self._spec = spec
        self._log = log
        self._layout = spec.layout()
        self._window = _time_window(spec)
        self._row_operations = (MERGE,) if spec.sends_rows else (GET, PUT)
        self._close_operations = (DELETE,) if spec.emit_changed else (GET, DELETE)
        self._value_bytes = 8 * (self._layout.words - FIRST_KEY - len(self._layout.key_words))
        self._touched: list[_Touched] = []
        self._closed: list[tuple[np.ndarray, np.ndarray]] = []
        cast(Closing, operator).on_close = self._note_closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        self._operator.apply(epoch, frames)
        self._touched = [self._rows_of(frame) for frame in frames]

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        self._closed = []
        emitted = self._operator.advance(epoch, late_before, watermark)
        accesses = [self._of_rows(rows, late_before) for rows in self._touched]
        accesses += [self._of_closed(watermark)] if self._closed else []
        columns = zip(*accesses, strict=True) if accesses else ((),) * len(SCHEMA)
        arrays = [
            pa.array(np.concatenate(column) if column else [], field.type) for column, field in zip(columns, SCHEMA)
        ]
        self._log.write(epoch, pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self._touched, self._closed = [], []
        return emitted

    def undo(self, epoch: int) -> None:
        self._touched, self._closed = [], []
        self._operator.undo(epoch)
        self._log.write(epoch, _NOTHING)

    def _note_closed(self, hashes: np.ndarray, windows: Any) -> None:
        self._closed.append((hashes.copy(), np.broadcast_to(windows, hashes.shape).copy()))

    def _rows_of(self, frame: Frame) -> _Touched:
        words = frame.rows[arrival_order(frame)]
        if isinstance(self._spec, JoinSpec):
            side, time = (self._layout.accumulators[i].word for i in (0, 1))
            keep = has_keys(Rows(words, frame.heap), self._layout)
            keep = keep | np.isin(words[:, side], self._spec.outer_sides)
            words = words[keep]
            assert self._window is not None
            return _Touched(words[:, HASH], self._window.panes.of(words[:, time]), words[:, time])
        panes = words[:, PANE]
        times = panes if self._window is not None else np.full(len(words), int(clock.now() * 1e6), np.int64)
        return _Touched(words[:, HASH], panes, times)

    def _of_rows(self, rows: _Touched, late_before: int) -> tuple[np.ndarray, ...]:
        """As columns of ``SCHEMA``."""
        if self._window is None:
            at, windows = np.arange(len(rows.hashes)), np.zeros(len(rows.hashes), np.int64)
        else:
            at, windows = self._window.holding(rows.panes, late_before)
            order = np.lexsort((windows, at))
            at, windows = at[order], windows[order]
        causes = np.full((len(at), len(self._row_operations)), ROW_AGAIN, np.uint8)
        causes[:, 0][np.diff(at, prepend=-1) > 0] = ROW
        return self._expanded(self._row_operations, rows.hashes[at], windows, rows.times[at], causes.reshape(-1))

    def _of_closed(self, watermark: int) -> tuple[np.ndarray, ...]:
        """By window; keys of one window have no order of their own, the operator takes them as its store holds them."""
        hashes, windows = (np.concatenate([each[i] for each in self._closed]) for i in (0, 1))
        order = np.argsort(windows, kind="stable")
        times = np.full(len(order), watermark, np.int64)
        causes = np.full(len(order) * len(self._close_operations), CLOSE, np.uint8)
        return self._expanded(self._close_operations, hashes[order], windows[order], times, causes)

    def _expanded(
        self,
        operations: tuple[int, ...],
        hashes: np.ndarray,
        windows: np.ndarray,
        times: np.ndarray,
        causes: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """All operations on each entry, one after the other."""
        width = len(operations)
        sizes = [self._value_bytes if operation in (PUT, MERGE) else 0 for operation in operations]
        return (
            np.tile(np.array(operations, np.uint8), len(hashes)),
            np.repeat(hashes, width),
            np.repeat(windows, width),
            np.tile(np.array(sizes, np.int32), len(hashes)),
            np.repeat(times, width),
            causes,
        )


def _time_window(spec: AggregateSpec | JoinSpec) -> TimeWindowSpec | None:
    return spec.time_window if isinstance(spec, AggregateSpec) else spec.window


def recording_metadata(spec: OperatorSpec) -> dict[str, str]:
    """What a recording says of its operator."""
    assert isinstance(spec, AggregateSpec | JoinSpec)
    layout, window = spec.layout(), _time_window(spec)
    kind = "join" if isinstance(spec, JoinSpec) else "holistic" if spec.sends_rows else "incremental"
    shape = "continuous" if window is None else "tumbling" if window.tumbling else "sliding"
    metadata = {
        "workload": "aggregation" if window is None else f"{shape}-{kind}",
        "operator": spec.name,
        "key_bytes": str(8 * len(layout.key_words) + (0 if window is None else 8)),
    }
    if window is not None:
        metadata |= {"window_us": str(window.size), "slide_us": str(window.slide)}
    return metadata
