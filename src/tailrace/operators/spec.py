"""What plan, tasks, servers and exchanges need to know of any operator: plain data that travels as JSON.

The plan makes it, the driver sends it, tasks turn rows into frames by it, servers build their stores from it, and it is
kept with the checkpoint so that a changed query is refused. Nothing here touches Spark or Arrow. Each operator has a
spec of its own: a frozen dataclass that extends ``SpecBase``; ``operators.registry`` reads any of them from JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar, cast

from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.spec_json import from_plain, to_plain
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.windows.panes import Panes
from tailrace.state.layout import MAX_BITS, Merge, RecordLayout, record_layout
from tailrace.types import Field

SIDE, TIME = "__side", "__time"
CLOCK = "__clock"
"""Begins the names of columns by which the watermark goes on, where that is not by the event time."""
"""Columns of the rows of two streams that come united: false for the left one, and the row's event time."""

VALUES_MAX = MAX_BITS
"""Of all keys and values of a record together; some values take two."""


@dataclass(frozen=True)
class HintTarget:
    """How a row on its way says which record of an operator it will need: by its key, or by its key and its pane.

    ``panes``: a key has a record for each of these panes of the time column; None: it has one.
    """

    panes: Panes | None = None
    whole_keys: bool = False  # the operator needs the key columns themselves, and not only their hashes


class OperatorSpec(Protocol):
    operator: ClassVar[str]
    """Which operator it describes: a name of ``operators.registry``, kept in checkpoints."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> tuple[Field, ...]:
        """Rows with the same keys are on the same server."""

    @property
    def shards(self) -> int: ...

    @property
    def watermarked(self) -> bool:
        """Whether the watermark makes rows late and drops state."""

    @property
    def emit_changed(self) -> bool:
        """True: rows that changed (update). False: rows that are final (append), or all rows (complete)."""

    @property
    def complete(self) -> bool:
        """Whether every epoch gives all rows, and the watermark drops no state."""

    @property
    def sends_rows(self) -> bool:
        """Whether tasks send every row as it is, because the operator needs each of them: they combine nothing."""

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

    @property
    def state_ttl(self) -> Ttl | None:
        """How long state stays that nothing updates; None: it does not go for that reason."""

    @property
    def late_by_ttl(self) -> bool:
        """Whether rows are late whose key, had it no others, would have expired by the time-to-live."""

    @property
    def uses_clock(self) -> bool:
        """Whether what an epoch emits depends on when it ran."""

    @property
    def ends_by_clock(self) -> bool:
        """Whether state expires, or timers come up, by when epochs run."""

    @property
    def has_user_code(self) -> bool:
        """Whether state servers call a user's function for it, which may take as long as it likes."""

    @property
    def waits_outside(self) -> bool:
        """Whether a step may wait for something outside of the engine, and then says itself that it took too long."""

    def layout(self) -> RecordLayout:
        """Of what tasks send."""

    def without_code(self) -> OperatorSpec:
        """The same without the user's functions: to compare, and for the checkpoint."""

    def for_tasks(self) -> OperatorSpec:
        """The same with only those of the user's functions that tasks call."""

    def narrowed(self, reads: Collection[str]) -> OperatorSpec:
        """The same for a next operator that reads only these columns: nothing else is read, kept and passed on."""

    def with_changelog(self) -> OperatorSpec:
        """The same as the last one of a query whose output is a changelog; refused where it makes no sense."""

    def with_sparks_watermark(self) -> OperatorSpec:
        """The same in a query whose watermark is of what was seen before an epoch, as Spark's."""

    def passes_through(self, column: Field) -> bool:
        """Whether rows that it emits have in this column what the rows they are made of had there."""

    def hint_target(self) -> HintTarget | None:
        """Which state a row on its way will need; None: more than its key and its time says that."""

    def why_not_recordable(self) -> str | None:
        """Why its state accesses cannot be recorded one by one, and of which operators they can; None: they can."""

    def to_json(self) -> str: ...


_Self = TypeVar("_Self", bound="SpecBase")


class SpecBase:
    """What holds of most operators. A spec overrides what is different."""

    operator: ClassVar[str]
    name: str

    @property
    def complete(self) -> bool:
        return False

    @property
    def sends_rows(self) -> bool:
        return True

    @property
    def takes_window_start(self) -> bool:
        return False

    @property
    def output_delay(self) -> Micros | None:
        return Micros(0)

    @property
    def state_ttl(self) -> Ttl | None:
        return None

    @property
    def late_by_ttl(self) -> bool:
        return False

    @property
    def uses_clock(self) -> bool:
        return self.ends_by_clock

    @property
    def ends_by_clock(self) -> bool:
        return self.state_ttl is not None and self.state_ttl.clock is Clock.PROCESSING

    @property
    def has_user_code(self) -> bool:
        return not self.waits_outside and self.without_code() != self

    @property
    def waits_outside(self) -> bool:
        return False

    def without_code(self: _Self) -> _Self:
        return self

    def for_tasks(self: _Self) -> _Self:
        return self.without_code()

    def narrowed(self: _Self, reads: Collection[str]) -> _Self:
        return self

    def with_changelog(self: _Self) -> _Self:
        raise AnalysisError(
            f'{self.name}: option "changelog" is for aggregates over sessions in output mode update, which take back '
            "the sessions that others have absorbed; all other rows are final, or are replaced by rows of the same "
            'group: remove it, or group by tailrace.session_window(...) and use .outputMode("update")'
        )

    def with_sparks_watermark(self: _Self) -> _Self:
        return self

    def passes_through(self, column: Field) -> bool:
        return False

    def hint_target(self) -> HintTarget | None:
        return None

    def why_not_recordable(self) -> str | None:
        return f"accesses of {self.name} cannot be recorded: {_RECORDABLE}"

    def to_json(self) -> str:
        return json.dumps({"operator": self.operator, **cast(dict[str, Any], to_plain(self))}, sort_keys=True)

    @classmethod
    def from_json(cls: type[_Self], text: str) -> _Self:
        return from_plain(cls, json.loads(text))


class SentRows(Protocol):
    """What tasks send an operator: the keys of a row, then its columns ``rows``; the event time is among them."""

    @property
    def keys(self) -> tuple[Field, ...]: ...
    @property
    def rows(self) -> tuple[Field, ...]: ...
    @property
    def time_column(self) -> Field | None: ...


class FinalRowsSpec(SpecBase):
    """Of an operator that is sent rows as they are, and gives rows once, when they are final."""

    @property
    def emit_changed(self) -> bool:
        return False

    @property
    def reads(self: SentRows) -> tuple[str, ...]:
        return column_names((*self.keys, *self.rows), self.time_column)

    def layout(self: SentRows) -> RecordLayout:
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)


_Whole = TypeVar("_Whole", bound="WholeRowsSpec")


@dataclass(frozen=True)
class WholeRowsSpec(FinalRowsSpec):
    """Of an operator that is sent whole rows, and gives those that it chooses as they came."""

    name: str
    keys: tuple[Field, ...]
    columns: tuple[Field, ...]  # all of a row, keys included, in order
    time_column: Field | None

    @property
    def rows(self) -> tuple[Field, ...]:
        """The columns that are sent beside the keys."""
        return tuple(column for column in self.columns if column not in self.keys)

    @property
    def reads(self) -> tuple[str, ...]:
        return column_names(self.columns)

    def narrowed(self: _Whole, reads: Collection[str]) -> _Whole:
        needed = {*reads, *column_names(self.keys, self.time_column)}
        return replace(self, columns=tuple(column for column in self.columns if column.name in needed))

    def passes_through(self, column: Field) -> bool:
        return column in self.columns


_RECORDABLE = (
    "aggregates over all time (without a ttl), over tumbling and sliding windows (holistic ones in append mode) and "
    "window joins can be recorded"
)


def column_names(fields: Collection[Field], time_column: Field | None = None) -> tuple[str, ...]:
    """The names of these columns and of the event time, each once."""
    names = [field.name for field in fields]
    names += [] if time_column is None else [time_column.name]
    return tuple(dict.fromkeys(names))
