"""What tasks and servers need to know to keep the best rows of each key: plain data that travels as JSON.

Over all time, and over windows that end for all keys at once: of other windows all rows are kept until they end, see
``aggregate``. What makes a row better, ``best`` says.

With a time-to-live a group is forgotten that no row has come for: any row keeps it, also one that is not among the
best. Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.ids import Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.top_n.best_spec import Order
from tailrace.operators.windows import WindowSpec
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.types import TIMESTAMP, DataType, Field, window_of

KIND = "top_n"
_INT = DataType("int")


@dataclass(frozen=True)
class TopNSpec:
    name: str
    keys: tuple[Field, ...]
    rows: tuple[Field, ...]  # what is kept of a row beside the keys: shown, ordered by, event time
    shown: tuple[str, ...]  # those of ``rows`` that are emitted, in order
    order: tuple[Order, ...]  # by columns of ``rows``, the most important first
    n: int
    rank: str  # name of the output column with 1 to n
    window: WindowSpec | None
    window_name: str  # name of the output struct column (start, end) and, with keys, where it stands:
    window_position: int  # before keys[window_position]
    time_column: Field | None
    emit_changed: bool
    watermarked: bool
    shards: int
    ttl: Ttl | None = None  # of groups without a window
    kind: str = KIND

    @property
    def expires(self) -> bool:
        """Whether rows are late whose group, had it no others, would be forgotten already."""
        return self.ttl is not None and self.ttl.clock is Clock.EVENT

    def layout(self) -> RecordLayout:
        """Of what is sent: rows as they are."""
        return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], ansi=False)

    def section_layout(self) -> RecordLayout:
        """Of sections: rows and, with a time-to-live, behind each when its group was last updated."""
        types = [row.type for row in self.rows] + ([] if self.ttl is None else [TIMESTAMP])
        return record_layout(self.keys, [(Merge.ROW, type_) for type_ in types], ansi=False)

    def records(self) -> AggregateSpec:
        """What is kept, as an aggregation over the same windows: one record a key and pane, its rows packed in one.

        With a time-to-live there is a second value, when the group was last updated.
        """
        packed = Accumulator(Merge.ROW, AccumulatorInput.VALUE, None, DataType("binary"))
        updated = Accumulator(Merge.MAX, AccumulatorInput.STAMP, None, TIMESTAMP)
        return AggregateSpec(
            name=self.name,
            keys=self.keys,
            accumulators=(packed,) if self.ttl is None else (packed, updated),
            outputs=(),
            window=self.window,
            window_name=self.window_name,
            window_position=self.window_position,
            time_column=self.time_column,
            emit_changed=self.emit_changed,
            watermarked=self.watermarked,
            ansi=False,
            shards=self.shards,
        )

    # As every operator ----------------------------------------------------------------------------------------------

    @property
    def keeps_rows(self) -> bool:
        return False  # tasks leave out what is not among the best of their own

    @property
    def reads(self) -> tuple[str, ...]:
        names = [field.name for field in (*self.keys, *self.rows)]
        names += [] if self.time_column is None else [self.time_column.name]
        return tuple(dict.fromkeys(names))

    @property
    def takes_window_start(self) -> bool:
        return self.window is not None and self.window.lasts is not None

    @property
    def emits(self) -> tuple[Field, ...]:
        groups = list(self.keys)
        if self.window is not None:
            assert self.time_column is not None
            groups.insert(self.window_position, Field(self.window_name, window_of(self.time_column.type)))
        by_name = {row.name: row for row in self.rows}
        return (*groups, *(by_name[name] for name in self.shown), Field(self.rank, _INT))

    @property
    def distinguishing(self) -> tuple[str, ...]:
        return (*(() if self.window is None else (self.window_name,)), self.rank)

    @property
    def output_delay(self) -> Micros:
        return Micros(0)  # a window that is still open ends after the watermark

    def without_code(self) -> TopNSpec:
        return self

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TopNSpec:
        raw: dict[str, Any] = json.loads(text)

        def field(part: dict[str, Any]) -> Field:
            return Field(part["name"], DataType(part["type"]["name"]))

        raw |= {name: tuple(field(part) for part in raw[name]) for name in ("keys", "rows")}
        raw["shown"] = tuple(raw["shown"])
        raw["order"] = tuple(Order(**part) for part in raw["order"])
        raw["window"] = WindowSpec(**raw["window"]) if raw["window"] else None
        raw["time_column"] = field(raw["time_column"]) if raw["time_column"] else None
        raw["ttl"] = Ttl.from_json(raw.get("ttl"))
        return cls(**raw)
