"""Joins by nested loops over plain Python rows: what each epoch must emit, from the definitions alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.operators.join.spec import LEFT, JoinKind, JoinSpec

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
    """One output row: the window's start, the rows that it is made of, its event time."""

    window: int | None
    left: JoinRow
    right: JoinRow | None
    time: int


class JoinOracle:
    """Epochs one after the other. ``watermarks[i]``: that of epoch ``i - 1``; the first is before any."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.rows: list[JoinRow] = []
        self.watermarks = [NO_WATERMARK]
        self.emitted: list[Answer] = []

    def late(self, time: int) -> bool:
        before = self.watermarks[-1]
        if self.spec.kind is JoinKind.WINDOW:
            return all(start + self.spec.window.size <= before for start in self.windows(time))
        return time < before

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
            for left in inside:
                if left.side != LEFT:
                    continue
                rights = [right for right in inside if right.side != LEFT and same_key(left, right)]
                for right in rights:
                    yield Answer(start, left, right, start + size - 1)
                if not rights and self.spec.outer:
                    yield Answer(start, left, None, start + size - 1)

    # All other kinds -------------------------------------------------------------------------------------------------

    def _as_they_come(self) -> Iterator[Answer]:
        epoch, now = len(self.watermarks) - 2, self.watermarks[-1]
        lefts = [row for row in self.rows if row.side == LEFT]
        rights = [row for row in self.rows if row.side != LEFT]
        for left in lefts:
            for right in rights:
                if max(left.epoch, right.epoch) == epoch and self.meet(left, right):
                    yield Answer(None, left, right, max(left.time, right.time))
        if not self.spec.outer:
            return
        for left in lefts:
            already_emitted = left.epoch != epoch and not self.hopes(left, self.watermarks[-2])
            if (
                not already_emitted
                and not self.hopes(left, now)
                and not any(self.meet(left, right) for right in rights)
            ):
                yield Answer(None, left, None, left.time)

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

    def hopes(self, left: JoinRow, watermark: int) -> bool:
        """Whether some right row that is not late by this watermark could match."""
        spec = self.spec
        if None in left.key:
            return False
        # A row of the valid side is forgotten with its ttl, and a point in time as soon as it is late.
        lasts = spec.ttl is None or (spec.kind is JoinKind.CONTINUOUS and spec.valid_side != LEFT)
        if not lasts and left.time + spec.ttl < watermark:
            return False
        times = [watermark, left.time, left.time + (spec.lower or 0), left.time + (spec.upper or 0)]
        return any(time >= watermark and self.fits(left, time, None) for time in times)


def same_key(left: JoinRow, right: JoinRow) -> bool:
    return None not in left.key and left.key == right.key
