"""Spilled records that undoable epochs have taken: which ones, so that undoing an epoch brings them back.

Invariants
- A taken record is dead in its segment. It stays on disk through every compaction until its epoch is forgotten, and
  ``follow`` keeps its position true.

Threads: as the records, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state.segments.compaction import Moved
from tailrace.state.segments.segment import Segment


@dataclass(frozen=True)
class _Taken:
    segment: Segment
    at: np.ndarray
    removed: bool  # it did not come into a table, but was removed


class TakenRecords:
    def __init__(self) -> None:
        self._by_epoch: dict[int, list[_Taken]] = {}

    @property
    def nbytes(self) -> int:
        return sum(part.at.nbytes for parts in self._by_epoch.values() for part in parts)

    def take(self, epoch: int, segment: Segment, at: np.ndarray, *, removed: bool = False) -> None:
        self._by_epoch.setdefault(epoch, []).append(_Taken(segment, at, removed))
        segment.mark(at, dead=True)

    def removed(self, epoch: int) -> Iterator[tuple[Segment, np.ndarray]]:
        """Positions of the records that the epoch has removed where they lie."""
        yield from ((part.segment, part.at) for part in self._by_epoch.get(epoch, ()) if part.removed)

    def undo(self, epoch: int) -> None:
        for part in self._by_epoch.pop(epoch, ()):
            part.segment.mark(part.at, dead=False)

    def forget(self, epoch: int) -> None:
        self._by_epoch.pop(epoch, None)

    def clear(self) -> None:
        self._by_epoch = {}

    def of_segment(self, segment: Segment) -> np.ndarray:
        """Positions of the taken records that lie in this segment."""
        parts = [part.at for parts in self._by_epoch.values() for part in parts if part.segment is segment]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def follow(self, old: Sequence[Segment], new: Sequence[tuple[Segment, list[Moved]]]) -> None:
        """Records of the old segments lie in the new ones now."""
        for parts in self._by_epoch.values():
            parts[:] = [after for part in parts for after in _followed(part, old, new)]


def _followed(part: _Taken, old: Sequence[Segment], new: Sequence[tuple[Segment, list[Moved]]]) -> list[_Taken]:
    if part.segment not in old:
        return [part]
    number = old.index(part.segment)
    places = [(made, moved[number].places(part.at)) for made, moved in new]
    return [_Taken(made, at, part.removed) for made, at in places if len(at)]
