"""Joins by nested loops over plain Python rows: what each epoch must emit, from the definitions alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.operators.join.spec import LEFT, RIGHT, How, JoinKind, JoinSpec

NO_WATERMARK = -(2**63)


@dataclass(frozen=True)
class JoinRow:
    side: int
    key: tuple[Any, ...]
    time: int
    values: tuple[Any, ...]
    until: int | None  # end of validity, of rows of the side that has one
    epoch: int


@dataclass(frozen=True)
class Answer:
    """One output row: the window's start, the rows that it is made of, its event time.

    Of a semi join, ``right`` is None.
    """

    window: int | None
    left: JoinRow | None
    right: JoinRow | None
    time: int

    @property
    def alone(self) -> JoinRow | None:
        """The only row that it is made of."""
        return None if self.left is not None and self.right is not None else self.left or self.right

    @property
    def key(self) -> tuple[Any, ...]:
        row = self.left or self.right
        assert row is not None
        return row.key

    def cells(self, spec: JoinSpec) -> list[Any]:
        """Keys and columns as they are shown."""
        shown = [*self.key, *(self.left.values if self.left else [None] * len(spec.left))]
        if spec.how is How.LEFT_SEMI:
            return shown
        return [*shown, *(self.right.values if self.right else [None] * len(spec.right))]


class JoinOracle:
    """Epochs one after the other. ``watermarks[i]``: that of epoch ``i - 1``; the first is before any."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.rows: list[JoinRow] = []
        self.watermarks = [NO_WATERMARK]
        self.emitted: list[Answer] = []

    def late(self, time: int, side: int) -> bool:
        before = self.watermarks[-1]
        if self.spec.kind is JoinKind.WINDOW:
            return all(start + self.spec.window.size <= before for start in self.windows(time))
        return time < before or (time == before and not self.spec.handed_over[side])

    def windows(self, time: int) -> list[int]:
        window = self.spec.window
        last = (time - window.offset) // window.slide * window.slide + window.offset
        return [
            start for start in range(last, time - window.size, -window.slide) if start <= time < start + window.size
        ]

    def epoch(self, rows: list[JoinRow], watermark: int) -> list[Answer]:
        """``rows``: none is late."""
        self.rows += rows
        self.watermarks.append(watermark)
        found = list(self._windows() if self.spec.kind is JoinKind.WINDOW else self._as_they_come())
        self.emitted += found
        return found

    # Windows ---------------------------------------------------------------------------------------------------------

    def _windows(self) -> Iterator[Answer]:
        before, now = self.watermarks[-2:]
        size = self.spec.window.size
        starts = {start for row in self.rows for start in self.windows(row.time) if before < start + size <= now}
        for start in starts:
            inside = [row for row in self.rows if start <= row.time < start + size]
            yield from self._in_window(inside, start)

    def _in_window(self, rows: list[JoinRow], window: int) -> Iterator[Answer]:
        time = window + self.spec.window.size - 1
        lefts, rights = ([row for row in rows if row.side == side] for side in (LEFT, RIGHT))
        for left in lefts:
            matches = [right for right in rights if same_key(left, right)]
            if self.spec.how is How.LEFT_SEMI:
                matches, alone = [], bool(matches)
            else:
                alone = not matches and self.spec.how in (How.LEFT_OUTER, How.FULL_OUTER)
            for right in matches:
                yield Answer(window, left, right, time)
            if alone:
                yield Answer(window, left, None, time)
        if self.spec.how in (How.RIGHT_OUTER, How.FULL_OUTER):
            for right in rights:
                if not any(same_key(left, right) for left in lefts):
                    yield Answer(window, None, right, time)

    # All other kinds -------------------------------------------------------------------------------------------------

    def _as_they_come(self) -> Iterator[Answer]:
        epoch, how = len(self.watermarks) - 2, self.spec.how
        lefts = [row for row in self.rows if row.side == LEFT]
        rights = [row for row in self.rows if row.side != LEFT]
        for left in lefts:
            met = [(max(left.epoch, right.epoch), right) for right in rights if self.meet(left, right)]
            if how is How.LEFT_SEMI:
                if met and min(when for when, _ in met) == epoch:
                    yield Answer(None, left, None, left.time)
                continue
            for when, right in met:
                if when == epoch:
                    yield Answer(None, left, right, max(left.time, right.time))
        if how in (How.LEFT_OUTER, How.FULL_OUTER):
            for left in lefts:
                if self._gives_up(left) and not any(self.meet(left, right) for right in rights):
                    yield Answer(None, left, None, left.time)
        if how in (How.RIGHT_OUTER, How.FULL_OUTER):
            for right in rights:
                if self._gives_up(right) and not any(self.meet(left, right) for left in lefts):
                    yield Answer(None, None, right, right.time)

    def _gives_up(self, row: JoinRow) -> bool:
        """Whether the newest epoch is the first with which no match can come any more."""
        epoch, (before, now) = len(self.watermarks) - 2, self.watermarks[-2:]
        return not self.hopes(row, now) and (row.epoch == epoch or self.hopes(row, before))

    def meet(self, left: JoinRow, right: JoinRow) -> bool:
        if not same_key(left, right) or not self.fits(left, right.time, right.until):
            return False
        if self.spec.ttl is None or left.epoch == right.epoch:
            return True
        first, second = sorted((left, right), key=lambda row: row.epoch)
        return first.time + self.spec.ttl >= self.watermarks[second.epoch]  # not forgotten before the second came

    def fits(self, left: JoinRow, time: int, until: int | None) -> bool:
        spec = self.spec
        match spec.kind:
            case JoinKind.INTERVAL:
                above = spec.lower is None or time >= left.time + spec.lower
                return above and (spec.upper is None or time <= left.time + spec.upper)
            case JoinKind.CONTINUOUS if spec.valid_side == LEFT:
                return left.time <= time and (left.until is None or time < left.until)
            case JoinKind.CONTINUOUS:
                return time <= left.time and (until is None or left.time < until)
        return True

    def hopes(self, row: JoinRow, watermark: int) -> bool:
        """Whether some row of the other side could match that comes at this watermark or after it."""
        spec = self.spec
        if None in row.key:
            return False
        # A row of the valid side is forgotten with its ttl, and a point in time as soon as it is late.
        lasts = spec.ttl is None or (spec.kind is JoinKind.CONTINUOUS and spec.valid_side != row.side)
        if not lasts and row.time + spec.ttl < watermark:
            return False
        bounds = [bound if row.side == LEFT else -bound for bound in (spec.lower or 0, spec.upper or 0)]
        times = [watermark, row.time, *(row.time + bound for bound in bounds)]
        return any(time >= watermark and self._could_meet(row, time) for time in times)

    def _could_meet(self, row: JoinRow, time: int) -> bool:
        """A row of the other side at this time."""
        if row.side == LEFT:
            return self.fits(row, time, None)
        return self.fits(JoinRow(LEFT, row.key, time, (), None, row.epoch), row.time, row.until)


def same_key(left: JoinRow, right: JoinRow) -> bool:
    return None not in left.key and left.key == right.key
