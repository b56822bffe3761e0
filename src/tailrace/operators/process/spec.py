"""What tasks and servers need to know to run a user's function of rows and state: plain data that travels as JSON.

A row is late, and does not come, where its time lies before the watermark of the epoch before.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from tailrace.ids import Micros
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import BIGINT, DataType, Field

KIND = "process"
"""In JSON, this tells it from every other operator."""


@dataclass(frozen=True)
class ProcessSpec:
    """A record is the state of one key: some words of our own first (see ``hidden``), then the user's columns.

    ``timers``: the state column with the time at which a key is due, by ``timers_clock``.
    """

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
    kind: str = KIND

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

    # Rows ------------------------------------------------------------------------------------------------------------

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(field.name for field in (*self.keys, *self.rows))

    @property
    def keeps_rows(self) -> bool:
        return True

    @property
    def takes_window_start(self) -> bool:
        return False

    def layout(self) -> RecordLayout:
        """Of what is sent."""
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)

    def kept_layout(self) -> RecordLayout:
        types = [*(BIGINT for _ in self.hidden), *(field.type for field in self.state)]
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    # Output ----------------------------------------------------------------------------------------------------------

    @property
    def emit_changed(self) -> bool:
        return False

    @property
    def emits(self) -> tuple[Field, ...]:
        return self.outputs

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.outputs if field not in self.keys)

    @property
    def output_delay(self) -> Micros:
        return Micros(0)  # rows that are older than the watermark of the epoch before are refused

    def without_code(self) -> ProcessSpec:
        return replace(self, function="")

    # JSON ------------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ProcessSpec:
        raw: dict[str, Any] = json.loads(text)

        def field(part: dict[str, Any]) -> Field:
            return Field(part["name"], DataType(part["type"]["name"]))

        raw |= {name: tuple(map(field, raw[name])) for name in ("keys", "rows", "state", "outputs")}
        raw["time_column"] = field(raw["time_column"]) if raw["time_column"] else None
        raw["timers_clock"] = Clock(raw["timers_clock"]) if raw["timers_clock"] else None
        raw["ttl"] = Ttl.from_json(raw["ttl"])
        return cls(**raw)
