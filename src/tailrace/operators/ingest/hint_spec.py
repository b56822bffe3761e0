"""What it takes to make prefetch hints of rows on their way to an operator: plain data, as JSON.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tailrace.operators.spec_json import from_plain, to_plain
from tailrace.operators.windows.panes import Panes
from tailrace.types import Field, Kind


@dataclass(frozen=True)
class HintSpec:
    """``keys``: the operator's, which the source's rows have under the same names, in the operator's order.

    ``panes``: a key has a record for each of these panes of the time column; None: it has one.
    """

    operator: str
    keys: tuple[Field, ...]
    time: Field | None  # event time; the epoch's number stands for it where there is none
    whole_keys: bool  # the operator needs the key columns themselves, and not only their hashes
    shards: int
    panes: Panes | None = None

    @property
    def long_keys(self) -> bool:
        """Whether keys are so long that it pays to ask, by their hashes, which of them are needed."""
        return self.whole_keys and (len(self.keys) > 1 or self.keys[0].type.kind is Kind.BYTES)

    @property
    def found_by(self) -> tuple[Field, ...]:
        """The columns that say which record a row will need."""
        return self.keys if self.panes is None or self.time is None else (*self.keys, self.time)

    @property
    def columns(self) -> tuple[Field, ...]:
        """What is read of a row."""
        time = () if self.time is None or self.time in self.keys else (self.time,)
        return (*self.keys, *time)

    def to_json(self) -> str:
        return json.dumps(to_plain(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> HintSpec:
        return from_plain(cls, json.loads(text))
