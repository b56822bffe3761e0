"""What tasks and servers need to know to number rows: plain data that travels as JSON."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from tailrace.operators.spec import HintTarget, SpecBase, column_names
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import BIGINT, Field


@dataclass(frozen=True)
class RowNumberSpec(SpecBase):
    operator: ClassVar[str] = "row_number"

    name: str
    keys: tuple[Field, ...]
    columns: tuple[Field, ...]  # all of a row, keys included, in order
    time_column: Field | None
    number: str  # name of the output column
    limit: int | None
    shards: int

    @property
    def rows(self) -> tuple[Field, ...]:
        """The columns that are sent beside the keys."""
        return tuple(column for column in self.columns if column not in self.keys)

    def layout(self) -> RecordLayout:
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)

    def kept_layout(self) -> RecordLayout:
        """Of what is kept: how many rows of a key came so far."""
        return record_layout(self.keys, [(Merge.ADD, BIGINT)], ansi=False)

    @property
    def watermarked(self) -> bool:
        return False

    @property
    def emit_changed(self) -> bool:
        return False

    @property
    def keeps_rows(self) -> bool:
        return True

    @property
    def reads(self) -> tuple[str, ...]:
        return column_names(self.columns)

    @property
    def emits(self) -> tuple[Field, ...]:
        return (*self.columns, Field(self.number, BIGINT))

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return (*(row.name for row in self.rows), self.number)

    def narrowed(self, reads: Collection[str]) -> RowNumberSpec:
        needed = {*reads, *column_names(self.keys, self.time_column)}
        return replace(self, columns=tuple(column for column in self.columns if column.name in needed))

    def passes_through(self, column: Field) -> bool:
        return column in self.columns

    def hint_target(self) -> HintTarget | None:
        return HintTarget()
