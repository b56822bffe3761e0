"""Counts the records that stores look at, whether they lie in a table or in a segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailrace.state.hash_table.table import Table
from tailrace.state.segments.segment import Segment


class RecordWork:
    """Records looked at, read from disk and written among the deadlines, counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.records = 0
        self._count(patch, Segment, "copied")
        self._count(patch, Table, "words")
        self._count(patch, Table, "copy")

    def _count(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(this: Any, rows: np.ndarray, *more: Any) -> Any:
            self.records += len(rows)
            return real(this, rows, *more)

        patch.setattr(owner, name, counted)
