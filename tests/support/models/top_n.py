"""The best rows of each key by sorting all rows that ever came: what each epoch must emit, by definition."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.operators.top_n.spec import TopNSpec

Row = dict[str, Any]
Group = tuple[Any, ...]  # the window's start, then the keys


class TopNModel:
    """Keeps every row that is not late, by group."""

    def __init__(self, spec: TopNSpec) -> None:
        self.spec = spec
        self.rows: dict[Group, list[Row]] = {}
        self.late = 0
        self.touched: set[Group] = set()

    def epoch(self, rows: Iterable[Row], late_before: int) -> dict[Group, tuple[list[Row], list[Row]]]:
        """Of each group that got rows, its best before and now."""
        self.touched = set()
        before: dict[Group, list[Row]] = {}
        for row in rows:
            for start in self._windows(row, late_before):
                group = (start, *(row[key.name] for key in self.spec.keys))
                if group not in self.touched:
                    self.touched.add(group)
                    before[group] = self.best(group)
                self.rows.setdefault(group, []).append(row)
        return {group: (before[group], self.best(group)) for group in self.touched}

    def _windows(self, row: Row, late_before: int) -> list[int | None]:
        window = self.spec.window
        if window is None:
            return [None]
        assert self.spec.time_column is not None
        time = row[self.spec.time_column.name]
        if time is None:
            return []
        last = window.offset + (time - window.offset) // window.slide * window.slide
        starts = [start for start in range(last, time - window.size, -window.slide) if start + window.size > time]
        open_ = [start for start in starts if not self.spec.watermarked or start + window.size > late_before]
        self.late += not open_
        return list(open_)

    def closed(self, late_before: int, watermark: int) -> list[Group]:
        assert self.spec.window is not None
        size = self.spec.window.size
        return [group for group in self.rows if late_before < group[0] + size <= watermark]

    def best(self, group: Group) -> list[Row]:
        return sorted(self.rows.get(group, ()), key=functools.cmp_to_key(self._compare))[: self.spec.n]

    def _compare(self, one: Row, other: Row) -> int:
        requested = [(order.column, 1 if order.ascending else -1) for order in self.spec.order]
        named = [name for name, _ in requested]
        time = [] if self.spec.time_column is None else [self.spec.time_column.name]
        rest = [row.name for row in self.spec.rows if row.name not in named and row.name not in time]
        terms = [*requested, *((name, 1) for name in [*(t for t in time if t not in named), *rest])]
        for name, sign in terms:
            result = compare(one[name], other[name])
            if result:
                return result * sign
        for name, _ in terms:  # zeros of either sign
            if isinstance(one[name], float) and bits(one[name]) != bits(other[name]):
                return -1 if bits(one[name]) < bits(other[name]) else 1
        return 0

    def shown(self, group: Group, best: Sequence[Row]) -> list[str]:
        """As an operator emits them."""
        lines = []
        for rank, row in enumerate(best, 1):
            cells: list[Any] = list(group[1:])
            if self.spec.window is not None:
                window = {"start": group[0], "end": group[0] + self.spec.window.length}
                cells.insert(self.spec.window_position, window)
            lines.append(repr((*cells, *(row[name] for name in self.spec.shown), rank)))
        return lines


def bits(value: float) -> int:
    (number,) = struct.unpack("<q", struct.pack("<d", value))
    return int(number)


def compare(one: Any, other: Any) -> int:
    """As Spark orders values: null first, NaN last."""
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, float) and (math.isnan(one) or math.isnan(other)):
        return math.isnan(one) - math.isnan(other)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return (one > other) - (one < other)
