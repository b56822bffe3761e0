"""What plan, tasks, servers and relays need to know of any operator: plain data that travels as JSON.

The plan makes it, the driver sends it, tasks lift rows by it, servers build their stores from it, and it is kept with
the checkpoint so that a changed query is refused. Nothing here touches Spark or Arrow. Each kind of operator has its
own description; ``from_json`` reads any of them.
"""

from __future__ import annotations

from typing import Protocol

from tailrace.ids import Micros
from tailrace.state.layout import MAX_BITS, RecordLayout
from tailrace.types import Field

VALUES_MAX = MAX_BITS
"""Of all keys and values of a record together; some values take two."""


class OperatorSpec(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> tuple[Field, ...]:
        """Rows with the same keys are on the same server."""

    @property
    def shards(self) -> int: ...

    @property
    def watermarked(self) -> bool:
        """Whether the watermark makes rows late and state go."""

    @property
    def emit_changed(self) -> bool:
        """True: rows that changed (update). False: rows that are final (append)."""

    @property
    def keeps_rows(self) -> bool:
        """Whether rows are kept as they are: then tasks have nothing to combine."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The input columns that it needs."""

    @property
    def time_column(self) -> Field | None:
        """The input column with the event time."""

    @property
    def takes_window_start(self) -> bool:
        """Of rows that come with a window: whether their event time is its start, and not its last moment."""

    @property
    def emits(self) -> tuple[Field, ...]:
        """The output columns in order."""

    @property
    def distinguishing(self) -> tuple[str, ...]:
        """The output columns, beside the keys that are among them, by which any two rows of an epoch differ."""

    @property
    def output_delay(self) -> Micros | None:
        """No row that is emitted in a later epoch has an event time before this epoch's watermark minus this.

        None: there is no such span, so that nothing that closes can stand behind this operator.
        """

    def layout(self) -> RecordLayout:
        """Of what tasks send."""

    def without_code(self) -> OperatorSpec:
        """The same without the user's functions: for tasks, which call none, and to compare."""

    def to_json(self) -> str: ...
