"""The epochs of a read-modify-write store that can be undone, and the horizon before which its panes have expired.

Invariants
- At most ``undoable`` epochs are kept, ascending; undoing begins with the newest one.
- Only tables that an epoch touches have an undo log of it: ``logged`` begins one before the first change.
- The horizon moves within an epoch, and goes back with it.

Threads: one at a time; but ``logged`` may be called for different tables at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tailrace.ids import MIN_MICROS
from tailrace.state.hash_table.table import Table
from tailrace.state.segments.spilled_records import SpilledRecords


@dataclass(frozen=True)
class _Epoch:
    number: int
    horizon_before: int
    logged: dict[int, Table] = field(default_factory=dict)  # tables with an undo log of it, by their ids


class UndoableEpochs:
    def __init__(self, undoable: int, spilled: SpilledRecords) -> None:
        self.horizon: int = MIN_MICROS
        self._undoable = undoable
        self._spilled = spilled
        self._epochs: list[_Epoch] = []

    @property
    def newest(self) -> int | None:
        return self._epochs[-1].number if self._epochs else None

    @property
    def open_epoch(self) -> int:
        """The newest epoch, for a caller that changes something in it."""
        return self._epochs[-1].number

    def open(self, epoch: int) -> None:
        """Later changes belong to ``epoch``."""
        if self._epochs and self._epochs[-1].number >= epoch:
            raise ValueError(f"epoch {epoch} is already applied; undo it first")
        while len(self._epochs) >= self._undoable:
            self._forget_oldest()
        self._epochs.append(_Epoch(epoch, self.horizon))

    def undo(self, epoch: int) -> None:
        """Back to before ``epoch`` was opened; nothing happens where it was not."""
        while self._epochs and self._epochs[-1].number >= epoch:
            undone = self._epochs.pop()
            for table in undone.logged.values():
                table.undo()
            self._spilled.undo(undone.number)
            self.horizon = undone.horizon_before

    def forget(self, epoch: int) -> None:
        """Epochs up to ``epoch`` will never be undone."""
        while self._epochs and self._epochs[0].number <= epoch:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = self._epochs.pop(0)
        for table in oldest.logged.values():
            table.forget()
        self._spilled.forget(oldest.number)

    def logged(self, table: Table, rows: int = 0) -> Table:
        """The table, with an undo log of the open epoch. ``rows``: how many changes are expected."""
        logged = self._epochs[-1].logged
        if id(table) not in logged:
            table.begin(rows)
            logged[id(table)] = table  # from here on, and not before, the epoch has something to undo in this table
        return table

    @property
    def touched(self) -> Collection[Table]:
        """The tables that the newest epoch has touched."""
        return self._epochs[-1].logged.values() if self._epochs else ()

    def has_touched(self, table: Table) -> bool:
        return bool(self._epochs) and id(table) in self._epochs[-1].logged

    @property
    def logs(self) -> list[tuple[int, list[Table]]]:
        """Every epoch, with the tables that have an undo log of it."""
        return [(each.number, list(each.logged.values())) for each in self._epochs]

    @property
    def lasting_horizon(self) -> int:
        """Panes before it have expired, whatever is undone."""
        return self._epochs[0].horizon_before if self._epochs else self.horizon

    def drop(self, table: Table) -> None:
        """The table belongs to the store no more."""
        for each in self._epochs:
            each.logged.pop(id(table), None)
