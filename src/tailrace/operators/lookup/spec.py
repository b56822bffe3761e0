"""What tasks and servers need to know to join rows with a lookup table: plain data that travels as JSON.

Every row comes, however late: a row that is emitted has the event time with which it came, and the operators behind
this one say what is late, as they would without it. A row whose key is null, or that the table does not have, is left
out (inner) or gets nulls (left outer). Nothing is kept between epochs but copies of the table's rows.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tailrace.ids import Micros
from tailrace.operators.spec import FinalRowsSpec, HintTarget
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import DataType, Field

_PRESENT = DataType("boolean")


@dataclass(frozen=True)
class TableSpec:
    """``backend``: a name of ``lookup.runtime.BACKENDS``, kept in checkpoints. ``shown``: in a user's words, without
    secrets. ``options``: JSON, with them; ``code``: cloudpickle in base64.
    """

    backend: str
    shown: str
    retry: Micros  # how long a lost connection is waited for
    options: str = field(repr=False)
    code: str = field(default="", repr=False)
    max_age: Micros | None = None  # how long a copy of what the table said is used; None: for as long as it stays


@dataclass(frozen=True)
class LookupSpec(FinalRowsSpec):
    operator: ClassVar[str] = "lookup"

    name: str
    keys: tuple[Field, ...]
    rows: tuple[Field, ...]  # the stream's columns beside the keys
    values: tuple[Field, ...]  # the table's columns beside the keys, as far as they are wanted
    # All columns of the table beside the keys: how it is read does not depend on which of them are wanted.
    fields: tuple[str, ...]
    table: TableSpec
    outer: bool
    time_column: Field | None
    shards: int

    def cached_layout(self) -> RecordLayout:
        """Of a copy of what the table says of a key: whether it has a row, and that row's values."""
        types = [_PRESENT, *(value.type for value in self.values)]
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    # As every operator ----------------------------------------------------------------------------------------------

    @property
    def watermarked(self) -> bool:
        return False

    @property
    def emits(self) -> tuple[Field, ...]:
        return (*self.keys, *self.rows, *self.values)

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return tuple(field.name for field in (*self.rows, *self.values))  # rows that agree in all of it are alike

    @property
    def waits_outside(self) -> bool:
        return True

    def passes_through(self, column: Field) -> bool:
        return column in self.keys or column in self.rows

    def hint_target(self) -> HintTarget | None:
        return HintTarget(whole_keys=True) if self.keys else None

    def narrowed(self, reads: Collection[str]) -> LookupSpec:
        time = () if self.time_column is None else (self.time_column.name,)
        rows = tuple(row for row in self.rows if row.name in reads or row.name in time)
        return replace(self, rows=rows, values=tuple(value for value in self.values if value.name in reads))

    def without_code(self) -> LookupSpec:
        """Also without what may be secret: tasks ask no table, and a table may move from one run to the next."""
        return replace(self, table=replace(self.table, options="", code=""))
