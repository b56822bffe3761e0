"""What tasks and servers need to know to run a user's function of rows and state: plain data that travels as JSON.

A row is late, and does not come, where its time lies before the watermark of the epoch before.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tailrace.operators.spec import FinalRowsSpec, HintTarget
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import BIGINT, Field


@dataclass(frozen=True)
class ProcessSpec(FinalRowsSpec):
    """A record is the state of one key: some words of our own first (see ``hidden``), then the user's columns.

    ``timers``: the state column with the time at which a key is due, by ``timers_clock``.
    """

    operator: ClassVar[str] = "process"

    name: str
    keys: tuple[Field, ...]
    rows: tuple[Field, ...]  # what the function reads of a row, beside the keys; event time first, if there is one
    state: tuple[Field, ...]
    outputs: tuple[Field, ...]
    time_column: Field | None  # event time, among the keys or the rows
    watermarked: bool
    shards: int
    function: str  # cloudpickle in base64
    timers: str | None = None
    timers_clock: Clock | None = None
    ttl: Ttl | None = None
    time_name: str | None = None  # the output column with each row's event time

    @property
    def hidden(self) -> tuple[str, ...]:
        """Words of a record that the user does not see.

        ``seen``: when the key was last updated, by the clock of the ttl; always there, so that no record looks like a
        tombstone. ``timer``, ``expiry``: where the record's entry lies among the times at which records are looked at.
        """
        return (
            "seen",
            *(["timer"] if self.timers is not None else []),
            *(["expiry"] if self.ttl is not None else []),
        )

    def kept_layout(self) -> RecordLayout:
        types = [*(BIGINT for _ in self.hidden), *(field.type for field in self.state)]
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    # Output ----------------------------------------------------------------------------------------------------------

    @property
    def emits(self) -> tuple[Field, ...]:
        return self.outputs

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.outputs if field not in self.keys)

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def state_ttl(self) -> Ttl | None:
        return self.ttl

    @property
    def uses_clock(self) -> bool:
        return True  # the function may ask for the time

    @property
    def ends_by_clock(self) -> bool:
        return self.timers_clock is Clock.PROCESSING or super().ends_by_clock

    def hint_target(self) -> HintTarget | None:
        return HintTarget() if self.keys else None

    def without_code(self) -> ProcessSpec:
        return replace(self, function="")
