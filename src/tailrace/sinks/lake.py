"""What tables of a lake have in common: each commit goes through a handle that was read before, and fails where another
run has committed since. So of two runs that write at once one wins.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import pyarrow as pa

from tailrace.sinks.contract import Owner, fenced
from tailrace.sinks.rows import check_columns

_Handle = TypeVar("_Handle")


class LakeTable(Generic[_Handle]):
    """The order of steps. A library's own ways to read, to refresh and to commit are its class's."""

    shown: str
    _schema: pa.Schema
    _names: list[str]
    """The table's columns, in its order."""
    _table: _Handle | None = None
    _owner = Owner("", -1)

    def open(self, owner: Owner) -> int:
        self._owner = owner
        with self._errors():
            table, columns = self._read()
            check_columns(self.shown, self._schema, columns)
            self._names = columns.names
            self._table = table
            run, epoch = self._entry()
            if run > owner.run:
                raise fenced(self.shown, run)
            if run < owner.run:
                self._commit(epoch, iter(()), lambda: None)
        return epoch

    def write(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        with self._errors():
            self._refresh()
            run, last = self._entry()
            if run != self._owner.run:
                raise fenced(self.shown, run)
            if last < epoch:
                self._commit(epoch, rows, before_commit)

    def close(self) -> None:
        self._table = None

    @property
    def _opened(self) -> _Handle:
        assert self._table is not None, "a table is opened before it is written to"
        return self._table

    def _errors(self) -> AbstractContextManager[None]:
        """The library's errors by what a caller does about them."""
        raise NotImplementedError

    def _read(self) -> tuple[_Handle, pa.Schema]:
        """The table, made where there is none, and its columns."""
        raise NotImplementedError

    def _refresh(self) -> None:
        """Read what others have committed."""
        raise NotImplementedError

    def _entry(self) -> tuple[int, int]:
        """Run and epoch, as the handle has read them; -1 where there are none."""
        raise NotImplementedError

    def _commit(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        """Rows and entry in one commit, also where there are no rows."""
        raise NotImplementedError
