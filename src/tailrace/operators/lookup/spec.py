"""What tasks and servers need to know to join rows with a lookup table: plain data that travels as JSON.

Every row comes, however late: a row that is emitted has the event time with which it came, and the operators behind
this one say what is late, as they would without it. A row whose key is null, or that the table does not have, is left
out (inner) or gets nulls (left outer). Nothing is kept between epochs but copies of the table's rows.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from tailrace.ids import Micros
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import DataType, Field

KIND = "lookup"
_PRESENT = DataType("boolean")


class Backend(StrEnum):
    REDIS = "redis"
    PARQUET = "parquet"
    DBAPI = "dbapi"


@dataclass(frozen=True)
class TableSpec:
    """``shown``: in a user's words, without secrets. ``options``: JSON, with them; ``code``: cloudpickle in base64."""

    backend: Backend
    shown: str
    retry: Micros  # how long a lost connection is waited for
    options: str = field(repr=False)
    code: str = field(default="", repr=False)


@dataclass(frozen=True)
class LookupSpec:
    name: str
    keys: tuple[Field, ...]
    rows: tuple[Field, ...]  # the stream's columns beside the keys
    values: tuple[Field, ...]  # the table's columns beside the keys, as far as they are wanted
    fields: tuple[
        str, ...
    ]  # all columns of the table beside the keys: how it is read does not depend on what is wanted
    table: TableSpec
    outer: bool
    time_column: Field | None
    shards: int
    kind: str = KIND

    def layout(self) -> RecordLayout:
        """Of what is sent: whole rows."""
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)

    def cached_layout(self) -> RecordLayout:
        """Of a copy of what the table says of a key: whether it has a row, and that row's values."""
        types = [_PRESENT, *(value.type for value in self.values)]
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    # As every operator ----------------------------------------------------------------------------------------------

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
        names = [field.name for field in (*self.keys, *self.rows)]
        names += [] if self.time_column is None else [self.time_column.name]
        return tuple(dict.fromkeys(names))

    @property
    def takes_window_start(self) -> bool:
        return False

    @property
    def emits(self) -> tuple[Field, ...]:
        return (*self.keys, *self.rows, *self.values)

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return tuple(field.name for field in (*self.rows, *self.values))  # rows that agree in all of it are alike

    @property
    def output_delay(self) -> Micros:
        """A row that comes too late is too late for the operator behind this one as well, which drops it."""
        return Micros(0)

    def without_code(self) -> LookupSpec:
        """Also without what may be secret: tasks ask no table, and a table may move from one run to the next."""
        return replace(self, table=replace(self.table, options="", code=""))

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> LookupSpec:
        raw: dict[str, Any] = json.loads(text)

        def column(part: dict[str, Any]) -> Field:
            return Field(part["name"], DataType(part["type"]["name"]))

        raw |= {name: tuple(column(part) for part in raw[name]) for name in ("keys", "rows", "values")}
        raw["fields"] = tuple(raw["fields"])
        raw["time_column"] = column(raw["time_column"]) if raw["time_column"] else None
        raw["table"] = TableSpec(**{**raw["table"], "backend": Backend(raw["table"]["backend"])})
        return cls(**raw)
