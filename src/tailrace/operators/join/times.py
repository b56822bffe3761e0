"""Times of a join's rows: until when each may match, in which pane it lies, and in which panes its partners lie.

Invariants
- A row's *expiry* is the last watermark at which a row that still comes may match it. It is needed while the watermark
  is not beyond.
- Panes are by expiry, not by time, so that one horizon (the watermark) serves both sides: a row's pane word is the end
  of its pane, which its expiry never reaches; the low bits say side and level. Panes with an end before the watermark
  hold only rows that are not needed.
- Of rows with a validity of their own, the width of the pane grows with the validity (a *level* each, four times as
  wide as the one below), so that at most two panes of each level hold what is valid at a given time. Rows that never
  expire, or have next to no end, share one pane.
- Only panes that rows lie in are ever looked into: ``KnownPanes`` has all of them, and may have some that are empty.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.event_time import TIME_MAX
from tailrace.operators.join.spec import LEFT, RIGHT, JoinKind, JoinSpec
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.rows.rows import Rows

NEVER = 2**63 - 1
"""Expiry of rows that never expire."""

_CODES = 256
_NEVER_CODE = 127
_NEVER_PANE = 2**62 + 2**61  # after every other pane
_BITS_MIN, _BITS_MAX, _BITS_UNKNOWN = 20, 58, 24
_LEVEL_WIDTHS = 2 ** np.arange(_BITS_MIN, _BITS_MAX + 1, 2, dtype=np.int64)


@dataclass(frozen=True)
class Moments:
    """Of each row its time, the (exclusive) end of its validity where its side has one, and its expiry."""

    time: np.ndarray
    until: np.ndarray | None
    expiry: np.ndarray

    def past(self, watermark: int) -> np.ndarray:
        """Which rows can match nothing that comes after this watermark, or nothing at all: never valid."""
        past: np.ndarray = self.expiry < watermark
        return past if self.until is None else past | (self.until <= self.time)


@dataclass(frozen=True)
class Ranges:
    """Panes, ascending; for each row the range of them to look into, and that of expiries that partners have there."""

    panes: np.ndarray
    first: np.ndarray
    end: np.ndarray
    low: np.ndarray  # both inclusive
    high: np.ndarray

    def of(self, low: int, high: int) -> Ranges:
        """For a range of the rows."""
        return Ranges(self.panes, *(part[low:high] for part in (self.first, self.end, self.low, self.high)))


class JoinTimes:
    def __init__(self, spec: JoinSpec, layout: RecordLayout) -> None:
        self._spec = spec
        self._side, self._time = (layout.accumulators[i].word for i in (0, 1))
        self._until = None
        if spec.valid_to is not None:
            names = [field.name for field in spec.columns(spec.valid_side)]
            first = 2 + (len(spec.left) if spec.valid_side == RIGHT else 0)
            self._until = layout.accumulators[first + names.index(spec.valid_to)]
        self._bits = {side: self._pane_bits() for side in (LEFT, RIGHT)}

    def _pane_bits(self) -> int:
        """Panes of constant width: wide enough that partners lie in few, narrow enough that few others lie there."""
        spec = self._spec
        if spec.lower is not None and spec.upper is not None:
            span = (spec.upper - spec.lower) // 2
        else:
            span = 2**_BITS_UNKNOWN if spec.ttl is None else spec.ttl // 4
        return min(max(span.bit_length(), _BITS_MIN), _BITS_MAX)

    def sides(self, rows: Rows) -> np.ndarray:
        return np.ascontiguousarray(rows.words[:, self._side])

    def moments(self, rows: Rows, side: int) -> Moments:
        """Of rows that are all of one side."""
        spec = self._spec
        time = np.ascontiguousarray(rows.words[:, self._time])
        life = spec.life(side)
        expiry = np.full(len(time), NEVER) if life is None else time + life
        if self._until is None or side != spec.valid_side:
            return Moments(time, None, expiry)
        there = (rows.words[:, VALID] >> self._until.bit & 1).astype(bool)
        until = np.where(there, rows.words[:, self._until.word], NEVER)
        ends = np.where(until > TIME_MAX, NEVER, np.maximum(until, -TIME_MAX) - 1)
        return Moments(time, until, np.minimum(expiry, ends))

    def match(self, left: Moments, left_at: np.ndarray, right: Moments, right_at: np.ndarray) -> np.ndarray:
        """Which of these pairs of one key belong together."""
        spec = self._spec
        left_time, right_time = left.time[left_at], right.time[right_at]
        fits = np.ones(len(left_at), bool)
        if spec.kind is JoinKind.CONTINUOUS and spec.valid_side == LEFT:
            assert left.until is not None
            fits = _inside(right_time, left_time, left.until[left_at])
        elif spec.kind is JoinKind.CONTINUOUS:
            assert right.until is not None
            fits = _inside(left_time, right_time, right.until[right_at])
        if spec.lower is not None:
            fits &= right_time >= left_time + spec.lower
        if spec.upper is not None:
            fits &= right_time <= left_time + spec.upper
        return fits

    # Panes -----------------------------------------------------------------------------------------------------------

    def panes(self, moments: Moments, side: int) -> np.ndarray:
        """The pane word of each row."""
        if moments.until is None:
            ends = pane_end(moments.expiry, self._bits[side]) + side
            return np.where(moments.expiry == NEVER, _NEVER_PANE + 2 * _NEVER_CODE + side, ends)
        endless = moments.expiry == NEVER
        length = np.where(endless, NEVER, moments.expiry - moments.time + 1)
        level = np.searchsorted(_LEVEL_WIDTHS, length)
        endless |= level == len(_LEVEL_WIDTHS)
        level = np.where(endless, 0, level)
        width = _LEVEL_WIDTHS[level]
        ends = (np.where(endless, 0, moments.expiry) // width + 1) * width + 2 * level + side
        return np.where(endless, _NEVER_PANE + 2 * _NEVER_CODE + side, ends)

    def partners(self, moments: Moments, side: int, known: KnownPanes, horizon: int) -> Iterator[Ranges]:
        """For rows of ``side``, where rows of the other side that match them may lie."""
        other, count = 1 - side, len(moments.time)
        for code, panes in known.of(other):
            if code // 2 == _NEVER_CODE:
                every = (np.zeros(count, np.int64), np.full(count, len(panes)))
                yield Ranges(panes, *every, np.full(count, MIN_MICROS), np.full(count, NEVER))
                continue
            bits = self._bits[other]
            if self._until is not None and other == self._spec.valid_side:
                bits = _BITS_MIN + 2 * (code // 2)
            low, high = self._expiries(moments, side, bits)
            first = np.searchsorted(panes, pane_end(np.maximum(low, horizon), bits) + code, "left")
            end = np.searchsorted(panes, pane_end(high, bits) + code, "right")
            yield Ranges(panes, first, np.maximum(end, first), low, high)

    def _expiries(self, moments: Moments, side: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest expiry of rows of the other side that match."""
        spec, time = self._spec, moments.time
        lowest, highest = np.full(len(time), MIN_MICROS), np.full(len(time), NEVER)
        if spec.kind is JoinKind.CONTINUOUS and moments.until is not None:
            return time, moments.until  # of a point in time, the expiry is its time
        if spec.kind is JoinKind.CONTINUOUS:
            # With a ttl, a row may be valid beyond its expiry.
            return time if spec.ttl is None else lowest, np.minimum(time, TIME_MAX) + ((1 << bits) - 1)
        life = spec.life(1 - side)
        assert life is not None, "rows that never expire lie in one pane"
        # Of the other side's time minus this one's.
        least, most = (spec.lower, spec.upper) if side == LEFT else (_negative(spec.upper), _negative(spec.lower))
        return lowest if least is None else time + (least + life), highest if most is None else time + (most + life)


def pane_end(expiry: np.ndarray, bits: int) -> np.ndarray:
    """The end of the pane, ``2 ** bits`` wide, that holds the expiry."""
    ends: np.ndarray = ((np.minimum(expiry, _NEVER_PANE) >> bits) + 1) << bits
    return ends


def _negative(bound: int | None) -> int | None:
    return None if bound is None else -bound


def _inside(points: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    inside: np.ndarray = (first <= points) & (points < end)
    return inside


class KnownPanes:
    """The panes that rows may lie in, by code (level and side)."""

    def __init__(self) -> None:
        self._panes: dict[int, np.ndarray] = {}

    def add(self, panes: np.ndarray) -> None:
        fresh = np.unique(panes)
        codes = fresh % _CODES
        for code in np.unique(codes).tolist():
            old = self._panes.get(code, np.empty(0, np.int64))
            self._panes[code] = np.union1d(old, fresh[codes == code])

    def drop(self, horizon: int) -> None:
        """Panes before it are never looked into again."""
        left = {code: panes[np.searchsorted(panes, horizon) :] for code, panes in self._panes.items()}
        self._panes = {code: panes for code, panes in left.items() if len(panes)}

    def of(self, side: int) -> list[tuple[int, np.ndarray]]:
        return [(code, panes) for code, panes in sorted(self._panes.items()) if code % 2 == side]
