"""Windows of a user's own function: called with whole arrays of event times, and held to what it promised.

Every time must lie in its window, ``start <= time < end``, and one start must always come with the same end: a start
with two ends is most likely a function that looks at more than a row's time, and rows would be in the wrong window.

Threads: functions are called by whoever has the object; nothing is kept between calls but what ``KnownWindows`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.errors import UserFunctionError
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.event_time import TIME_MAX
from tailrace.operators.user_code.code import NOTHING_KEPT, called, loaded, said_of
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows import columns
from tailrace.types import BIGINT, TIMESTAMP

_SHOWN = 3
NO_TIME = np.iinfo(np.int64).min
"""What numpy's ``NaT`` is as a number."""


class Assigner:
    """Gives event times their windows."""

    def __init__(self, spec: AggregateSpec, epoch: int | None = None) -> None:
        assert spec.custom_window is not None
        self._assign = loaded(spec.custom_window.assign, spec.name, "the function of a custom window")
        self._name = said_of(spec.name, epoch, self._assign)

    def windows(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends for times, all in microseconds."""
        if not len(times):
            return times, times
        name = self._name
        given = called(self._assign, name, times.astype("datetime64[us]"))
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UserFunctionError(f"{name} gave a {type(given).__name__}, and must give a pair (starts, ends)")
        starts, ends = (
            _micros(part, len(times), f"{name}: its {which}")
            for part, which in zip(given, ("starts", "ends"), strict=True)
        )
        wrong = ~((starts <= times) & (times < ends)) | (starts < -TIME_MAX) | (ends > TIME_MAX)
        if wrong.any():
            shown = "; ".join(
                f"time {_text(time)} in [{_text(start)}, {_text(end)})"
                for time, start, end in zip(times[wrong][:_SHOWN], starts[wrong], ends[wrong], strict=False)
            )
            raise UserFunctionError(
                f"{name} must give each time a window that holds it, start <= time < end, and gave {int(wrong.sum())} "
                f"of {len(times)} another: {shown}. {NOTHING_KEPT}"
            )
        check_one_end(starts, ends, name)
        return starts, ends


class Trigger:
    """When windows will probably be read."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._name = spec.name
        self._function: Callable[..., Any] | None = None
        if spec.custom_window is not None and spec.custom_window.trigger is not None:
            self._function = loaded(spec.custom_window.trigger, spec.name, "the trigger of a custom window")

    def times(self, starts: np.ndarray, ends: np.ndarray, newest: np.ndarray, epoch: int) -> np.ndarray:
        """For windows and times of rows in them, when they are expected to be read; the largest number: unknown."""
        if self._function is None or not len(starts):
            return ends
        name = said_of(self._name, epoch, self._function)
        given = called(self._function, name, *(part.astype("datetime64[us]") for part in (starts, ends, newest)))
        times = _micros(given, len(starts), f"{name}: its times", nulls=True)
        return np.where(times == NO_TIME, np.iinfo(np.int64).max, times)


class KnownWindows:
    """The windows of which rows have come, to notice a start that comes with another end.

    ``layout``: of records or rows whose last key is their window's start, and whose pane is its end.
    """

    def __init__(self, name: str, layout: RecordLayout) -> None:
        self._name = name
        self._start_word = layout.keys[-1].word
        self._start_column = f"k{len(layout.keys) - 1}"
        self._starts, self._ends = np.empty(0, np.int64), np.empty(0, np.int64)

    def see(self, epoch: int, frames: Sequence[np.ndarray], horizon: int) -> None:
        """Words of what came in an epoch. Windows that end before ``horizon`` are forgotten."""
        open_ = self._ends >= horizon
        starts = np.concatenate([self._starts[open_], *(words[:, self._start_word] for words in frames)])
        ends = np.concatenate([self._ends[open_], *(words[:, PANE] for words in frames)])
        name = f"operator {self._name}, epoch {epoch}: the function of its windows"
        self._starts, self._ends = check_one_end(starts, ends, name)

    def restore(self, sections: Sequence[pa.RecordBatch]) -> None:
        """Windows of a checkpoint, which have passed already."""
        for section in sections:
            starts = columns.fixed_words(section.column(self._start_column), TIMESTAMP, None)
            ends = columns.fixed_words(section.column("__pane"), BIGINT, None)
            found, at = np.unique(np.concatenate([self._starts, starts]), return_index=True)
            self._starts, self._ends = found, np.concatenate([self._ends, ends])[at]


def check_one_end(starts: np.ndarray, ends: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Refuse a start that comes with two ends; the distinct windows, by their starts."""
    distinct, first, numbers = np.unique(starts, return_index=True, return_inverse=True)
    other = ends[first][numbers.reshape(-1)] != ends
    if other.any():
        at = int(np.flatnonzero(other)[0])
        start, one, two = _text(starts[at]), _text(ends[first][numbers.reshape(-1)[at]]), _text(ends[at])
        raise UserFunctionError(
            f"{name} gave two windows that start at {start}: one ends at {one}, the other at {two}. A start must "
            f"always come with the same end, whatever times are asked for together. {NOTHING_KEPT}"
        )
    return distinct, ends[first]


def _micros(given: Any, count: int, what: str, nulls: bool = False) -> np.ndarray:
    """Times of a user as microseconds."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.Array):
        given = given.to_numpy(zero_copy_only=False)
    array = np.asarray(given)
    if array.dtype.kind != "M":
        raise UserFunctionError(
            f"{what} are {array.dtype}, and must be numpy.datetime64 or Arrow timestamps: "
            "starts.astype('datetime64[us]')"
        )
    if array.shape != (count,):
        raise UserFunctionError(f"{what} have the shape {array.shape}, and must be {count}, one for each time")
    micros = array.astype("datetime64[us]").view(np.int64)
    if not nulls and (micros == NO_TIME).any():
        raise UserFunctionError(f"{what} have {int((micros == NO_TIME).sum())} without a value (NaT, null)")
    return micros


def _text(micros: int) -> str:
    return str(np.int64(micros).astype("datetime64[us]"))
