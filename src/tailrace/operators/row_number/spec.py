"""What tasks and servers need to know to number rows: plain data that travels as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tailrace.operators.spec import HintTarget, WholeRowsSpec
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import BIGINT, Field


@dataclass(frozen=True)
class RowNumberSpec(WholeRowsSpec):
    operator: ClassVar[str] = "row_number"

    number: str  # name of the output column
    limit: int | None
    shards: int

    def kept_layout(self) -> RecordLayout:
        """Of what is kept: how many rows of a key came so far."""
        return record_layout(self.keys, [(Merge.ADD, BIGINT)], ansi=False)

    @property
    def watermarked(self) -> bool:
        return False

    @property
    def emits(self) -> tuple[Field, ...]:
        return (*self.columns, Field(self.number, BIGINT))

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return (*(row.name for row in self.rows), self.number)

    def hint_target(self) -> HintTarget | None:
        return HintTarget()
