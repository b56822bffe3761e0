"""Duplicates dropped by a dictionary over plain Python rows: what each epoch must emit, from the definitions alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NO_WATERMARK = -(2**63)
_AT_ONCE = 2 * NO_WATERMARK
Row = Sequence[Any]


class DeduplicateModel:
    """``keys``, ``time``: places in a row. ``delay``: how long after its row's time a key is forgotten; None: never,
    unless the time is one of the keys. Without a ``time`` nothing is late and nothing forgotten.
    """

    def __init__(self, keys: Sequence[int], time: int | None, *, within: bool, delay: int = 0, behind: int = 0) -> None:
        self._keys, self._time = keys, time
        self._within, self._delay, self._behind = within, delay, behind
        self.remembered: dict[tuple[Any, ...], int | None] = {}  # key -> watermark at which it goes
        self.late = 0

    def epoch(self, partitions: Sequence[Sequence[Row]], late_before: int, watermark: int) -> list[Row]:
        rows = [row for rows in partitions for row in rows]
        if self._time is not None:
            in_time = [row for row in rows if not self._is_late(row, late_before)]
            self.late += len(rows) - len(in_time)
            # Stable: rows of one time stay in the order of their partitions.
            rows = sorted(in_time, key=lambda row: (row[self._time] is None, row[self._time] or 0))
        emitted = []
        for row in rows:
            key = tuple(row[i] for i in self._keys)
            if key not in self.remembered:
                self.remembered[key] = self._expiry(row)
                emitted.append(row)
        mark = watermark - self._behind
        self.remembered = {key: end for key, end in self.remembered.items() if end is None or end > mark}
        return emitted

    def _is_late(self, row: Row, late_before: int) -> bool:
        time = row[self._time]
        return time is not None and late_before != NO_WATERMARK and time <= late_before - self._behind

    def _expiry(self, row: Row) -> int | None:
        if self._time is None:
            return None
        time = row[self._time]
        if self._within:
            return _AT_ONCE if time is None else time + self._delay
        return time if self._time in self._keys else None
