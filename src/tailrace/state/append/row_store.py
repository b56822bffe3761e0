"""What both append stores do alike: whose rows they keep, and which epochs can still be undone.

Invariants
- Rows of one (key, pane) come back in the order in which they were appended: by epoch, then as in the frames.
- At most ``undo_epochs`` epochs can be undone, newest first. Each knows the horizon before it, so that what it expired
  comes back; a row goes for good when the oldest of them no longer needs it.

Threads: one at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tailrace.ids import MIN_MICROS
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.rows import Rows


@dataclass
class UndoableEpoch:
    number: int
    horizon_before: int


_Epoch = TypeVar("_Epoch", bound=UndoableEpoch)


class RowStore(ABC, Generic[_Epoch]):
    """Raw rows, appended by epochs, undone, expired."""

    def __init__(self, layout: RecordLayout, shards: Iterable[int], shard_count: int, undo_epochs: int) -> None:
        self.layout = layout
        self.horizon: int = MIN_MICROS  # no row of an earlier pane is seen again
        self._shards = set(shards)
        self._shard_count = shard_count
        self._undo_epochs = undo_epochs
        self._epochs: list[_Epoch] = []  # that can be undone, oldest first

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self._shards)

    @property
    def newest_epoch(self) -> int | None:
        return self._epochs[-1].number if self._epochs else None

    def expire(self, horizon: int) -> None:
        """Drop every row of a pane that starts before ``horizon``, as part of the open epoch."""
        if horizon > self.horizon:
            self._open_epoch("to expire in")
            self.horizon = horizon

    def forget(self, epoch: int) -> None:
        """Epochs up to ``epoch`` will never be undone."""
        while self._epochs and self._epochs[0].number <= epoch:
            self._forget_oldest()
        self._maintain()

    def _check_frames(self, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Refuse rows that some other server keeps: they would be lost with this one."""
        for rows, bounds in frames:
            if len(bounds) != self._shard_count + 1:
                raise ValueError(f"a frame has bounds of {len(bounds) - 1} shards, the store has {self._shard_count}")
            sizes = np.diff(bounds)
            if int(sizes[sorted(self._shards)].sum()) != len(rows):
                raise ValueError("frames hold rows of shards that are not kept here")

    def _check_fresh(self, epoch: int) -> None:
        if self._epochs and self._epochs[-1].number >= epoch:
            raise ValueError(f"epoch {epoch} is already applied; undo it first")

    def _make_room(self) -> None:
        """For one more epoch that can be undone."""
        while len(self._epochs) >= self._undo_epochs:
            self._forget_oldest()
        self._maintain()

    def _open_epoch(self, purpose: str) -> _Epoch:
        if not self._epochs:
            raise ValueError(f"no epoch is open {purpose}: call append or open_epoch first")
        return self._epochs[-1]

    @property
    def _floor(self) -> int:
        """Rows of earlier panes are needed by no epoch that can be undone."""
        return self._epochs[0].horizon_before if self._epochs else self.horizon

    @abstractmethod
    def _forget_oldest(self) -> None:
        """The oldest epoch cannot be undone any more."""

    @abstractmethod
    def _maintain(self) -> None:
        """Drop rows below the floor, merge and write where it is time to."""
