"""What a state server needs to know to run one operator: plain data that travels as JSON.

The plan makes it, the driver sends it, tasks lift rows by it, servers build their stores from it, and its
``fingerprint`` is kept with the checkpoint so that a changed query is refused. Nothing here touches Spark or Arrow.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from tailrace.ids import Micros
from tailrace.state.layout import MAX_BITS, Merge, RecordLayout, bits_of, record_layout
from tailrace.types import DataType, Field, Kind

VALID_BITS_MAX = MAX_BITS
"""Of all keys and accumulators of an operator together; a key takes one."""


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
    """One output column. ``accumulators`` are indexes into ``OperatorSpec.accumulators``."""

    name: str
    result: Result
    accumulators: tuple[int, ...]
    type: DataType
    column: str | None = None  # of results of whole groups, as is ``argument``
    argument: float | None = None


@dataclass(frozen=True)
class WindowSpec:
    """Windows ``[start, start + size)`` with ``start = offset + k * slide``; tumbling where slide equals size.

    ``lasts``: of windows that rows bring with them, from an operator upstream. A row's time is then its window's start,
    ``size`` and ``slide`` are the distance of two starts, and a window ends ``lasts`` after its start.
    """

    size: Micros
    slide: Micros
    offset: Micros
    lasts: Micros | None = None

    @property
    def length(self) -> Micros:
        """From a window's start to its end."""
        return self.size if self.lasts is None else self.lasts

    @property
    def pane(self) -> Micros:
        """The width of a pane: the widest span that no window edge ever cuts."""
        a, b = self.size, self.slide
        while b:
            a, b = Micros(b), Micros(a % b)
        return a

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide


@dataclass(frozen=True)
class OperatorSpec:
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

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> OperatorSpec:
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
