"""Windows by the number of a key's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tailrace.operators.windows.window_kind import WindowBase
from tailrace.types import BIGINT, DataType


@dataclass(frozen=True)
class CountWindowSpec(WindowBase):
    """``size`` rows of a key; one begins every ``slide`` rows, or where that is None when the one before is full.

    ``in_time``: of keys that expire, rows before the watermark are late all the same, since what comes out has to be in
    time for others.
    """

    kind: ClassVar[str] = "count"
    by_key: ClassVar[bool] = True

    size: int
    slide: int | None = None
    in_time: bool = False

    @property
    def overlapping(self) -> bool:
        return self.slide is not None

    def output_type(self, time: DataType | None) -> DataType:
        """A window's number."""
        return BIGINT

    def text(self) -> str:
        if self.slide is None:
            return f"every {self.size} rows of a key"
        return f"{self.size} rows of a key, one every {self.slide}"

    def lines(self, column: str, time: str | None) -> list[str]:
        return [f"window {self.text()}, its number in column {column}"]
