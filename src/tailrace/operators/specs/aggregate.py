"""What tasks and servers need to know to run an aggregation: plain data that travels as JSON.

Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from tailrace.ids import Micros
from tailrace.operators.specs.window import WindowSpec
from tailrace.state.layout import Merge, RecordLayout, bits_of, record_layout
from tailrace.types import DataType, Field, Kind, window_of


class Lift(StrEnum):
    """What one row contributes to an accumulator."""

    ONE = "one"  # 1
    PRESENT = "present"  # 1 where the input is not null, else 0
    VALUE = "value"  # the input; null contributes nothing
    DOUBLE = "double"  # the input as a double; null contributes nothing
    TIMED = "timed"  # (event time, input); a null input is a value
    TIMED_PRESENT = "timed_present"  # (event time, input); null contributes nothing


class Result(StrEnum):
    """How accumulators become an output column."""

    VALUE = "value"  # the accumulator as it is
    QUOTIENT = "quotient"  # accumulator 0 / accumulator 1, null where that is 0 (avg)
    STDDEV = "stddev"  # sample standard deviation, null below two rows
    # Of all rows of a group, which are kept for it:
    QUANTILE = "quantile"  # of ``column``, at the share ``argument``
    COUNT_DISTINCT = "count_distinct"
    COLLECT_LIST = "collect_list"  # by event time, then by value
    TOP_K = "top_k"  # the ``argument`` largest values, largest first
    FUNCTION = "function"  # a column of the user's function


WHOLE_GROUP = frozenset({Result.QUANTILE, Result.COUNT_DISTINCT, Result.COLLECT_LIST, Result.TOP_K, Result.FUNCTION})
"""Results that are made of all rows of a group, and not of accumulators."""


@dataclass(frozen=True)
class Accumulator:
    """One mergeable value of a state record. ``type`` is the type of the value kept."""

    merge: Merge
    lift: Lift
    column: str | None  # the input column; None for Lift.ONE
    type: DataType

    @property
    def kind(self) -> Kind:
        kind = self.type.kind
        assert kind is not None, self.type
        return kind

    @property
    def valid_bits(self) -> int:
        return bits_of(self.merge, self.type)


@dataclass(frozen=True)
class Output:
    """One output column. ``accumulators`` are indexes into ``AggregateSpec.accumulators``."""

    name: str
    result: Result
    accumulators: tuple[int, ...]
    type: DataType
    column: str | None = None  # of results of whole groups, as is ``argument``
    argument: float | None = None


@dataclass(frozen=True)
class AggregateSpec:
    name: str
    keys: tuple[Field, ...]
    accumulators: tuple[Accumulator, ...]
    outputs: tuple[Output, ...]
    window: WindowSpec | None
    window_name: str  # name of the output struct column (start, end) and, with keys, where it stands:
    window_position: int  # before keys[window_position]
    time_column: Field | None  # event time; None without a watermark and without a window
    emit_changed: bool  # True: rows that changed (update); False: closed windows (append)
    watermarked: bool  # False: windows never close
    ansi: bool  # integer and decimal sums raise on overflow instead of wrapping (decimals: null)
    shards: int
    rows: tuple[Field, ...] = ()  # columns of every row that are kept, where accumulators do not suffice
    function: str | None = None  # the user's, of the rows of a window: cloudpickle in base64
    session_gap: Micros | None = None  # in place of ``window``: a session's rows are at most this far apart

    @property
    def windowed(self) -> bool:
        """Whether the output has a column of windows, ``window_name``."""
        return self.window is not None or self.session_gap is not None

    @property
    def shown_keys(self) -> tuple[Field, ...]:
        """The group columns that are in the output: a user's function gives those that it wants itself."""
        return self.keys if self.function is None else ()

    @property
    def keeps_rows(self) -> bool:
        return bool(self.rows)

    def layout(self) -> RecordLayout:
        """Of what is sent and kept: rows as they are, or records of accumulators."""
        if self.keeps_rows:
            return record_layout(self.keys, [(Merge.ROW, row.type) for row in self.rows], self.ansi)
        return record_layout(self.keys, [(a.merge, a.type) for a in self.accumulators], self.ansi)

    @property
    def reads(self) -> tuple[str, ...]:
        names = [key.name for key in self.keys] + [row.name for row in self.rows]
        names += [one.column for one in self.accumulators if one.column is not None]
        names += [] if self.time_column is None else [self.time_column.name]
        return tuple(dict.fromkeys(names))

    @property
    def takes_window_start(self) -> bool:
        return self.window is not None and self.window.lasts is not None

    @property
    def emits(self) -> tuple[Field, ...]:
        groups = list(self.shown_keys)
        if self.windowed:
            assert self.time_column is not None
            groups.insert(self.window_position, Field(self.window_name, window_of(self.time_column.type)))
        return (*groups, *(Field(out.name, out.type) for out in self.outputs))

    @property
    def tells_apart(self) -> tuple[str, ...]:
        return (self.window_name,) if self.windowed else ()

    @property
    def output_delay(self) -> Micros:
        return Micros(0)  # a window that is still open ends after the watermark

    def without_code(self) -> AggregateSpec:
        return replace(self, function=None if self.function is None else "")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> AggregateSpec:
        raw = json.loads(text)

        def field(part: dict) -> Field:
            return Field(part["name"], DataType(part["type"]["name"]))

        return cls(
            name=raw["name"],
            keys=tuple(field(key) for key in raw["keys"]),
            accumulators=tuple(
                Accumulator(Merge(a["merge"]), Lift(a["lift"]), a["column"], DataType(a["type"]["name"]))
                for a in raw["accumulators"]
            ),
            outputs=tuple(
                Output(
                    o["name"],
                    Result(o["result"]),
                    tuple(o["accumulators"]),
                    DataType(o["type"]["name"]),
                    o.get("column"),
                    o.get("argument"),
                )
                for o in raw["outputs"]
            ),
            window=WindowSpec(**raw["window"]) if raw["window"] else None,
            window_name=raw["window_name"],
            window_position=raw["window_position"],
            time_column=field(raw["time_column"]) if raw["time_column"] else None,
            emit_changed=raw["emit_changed"],
            watermarked=raw["watermarked"],
            ansi=raw["ansi"],
            shards=raw["shards"],
            rows=tuple(field(row) for row in raw.get("rows", ())),
            function=raw.get("function"),
            session_gap=raw.get("session_gap"),
        )
