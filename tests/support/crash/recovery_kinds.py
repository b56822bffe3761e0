"""One query for each kind of operator and store, as descriptions made by the planner; and rows for all of them.

Rows come from a seed: out of order, some late, with null keys, some with texts so long that a small memory needs the
disk. The same columns serve every kind; of a join, half of the rows are its right side.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import tailrace as tr
from support.bids import RecordingRuntime
from support.crash.recovery_processors import Expiring, Sessions, processed
from tailrace.api.options import Options
from tailrace.api.processors import TimeMode
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import DynamicSessionWindow, count_window, custom_window, session_window, window
from tailrace.ids import MIN_MICROS
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.plan.physical import plan_relation
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType, Field

SECOND = 1_000_000
SHARDS = 8
DELAY = 3 * SECOND
COLUMNS = {"k": "string", "ts": "timestamp", "v": "bigint", "s": "string", "until": "timestamp"}
RIGHT_COLUMNS = {"k": "string", "rt": "timestamp", "rv": "bigint"}


def _stream(columns: dict[str, str], time: str) -> Stream:
    fields = tuple(Field(name, DataType(type_)) for name, type_ in columns.items())
    return Stream("a DataFrame", fields, RecordingRuntime()).withWatermark(time, "3 seconds")


def _uneven(times: Any) -> Any:
    """Windows of a user's own: five seconds long, then three, then five ..."""
    start = times.astype("int64") // (8 * SECOND) * (8 * SECOND)
    second = times.astype("int64") - start >= 5 * SECOND
    starts, ends = start + second * 5 * SECOND, start + 5 * SECOND + second * 3 * SECOND
    return starts.astype("datetime64[us]"), ends.astype("datetime64[us]")


K = Field("k", DataType("string"))
_INCREMENTAL = (tr.count(), tr.sum("v"), tr.max("s"), tr.first("v"))
_WHOLE = (tr.median("v"), tr.collect_list("s"), tr.count_distinct("v"))
_S = _stream(COLUMNS, "ts")
_RIGHT = _stream(RIGHT_COLUMNS, "rt")
_TUMBLING, _SLIDING = window("ts", "6 seconds"), window("ts", "6 seconds", "4 seconds")
_SESSIONS, _OF_OWN_GAPS = session_window("ts", "2 seconds"), DynamicSessionWindow("ts", "until")

KINDS: dict[str, tuple[Stream, str]] = {
    "windows": (_S.groupBy(_SLIDING, "k").agg(*_INCREMENTAL), "append"),
    "windows, changes": (_S.groupBy(_SLIDING, "k").agg(*_INCREMENTAL), "update"),
    "rolling": (_S.groupBy("k").agg(*_INCREMENTAL), "update"),
    "rolling with ttl": (_S.withStateTtl("5 seconds").groupBy("k", "v").agg(tr.count(), tr.last("s")), "update"),
    "windows, complete": (_S.groupBy(_SLIDING, "k").agg(*_INCREMENTAL), "complete"),
    "rows by window": (_S.groupBy(_TUMBLING, "k").agg(*_WHOLE), "append"),
    "rows by sliding window": (_S.groupBy(_SLIDING, "k").agg(*_WHOLE), "append"),
    "rows by window in lists": (_S.groupBy(_TUMBLING, "k").store("AUR").agg(*_WHOLE), "append"),
    "rows by sliding window in lists": (_S.groupBy(_SLIDING, "k").store("AUR").agg(*_WHOLE), "update"),
    "rows of a key": (_S.groupBy("k").agg(*_WHOLE), "update"),
    "sessions": (_S.groupBy(_SESSIONS, "k").agg(*_INCREMENTAL), "append"),
    "sessions, changes": (_S.groupBy(_SESSIONS, "k").agg(*_INCREMENTAL), "update"),
    "sessions, complete": (_S.groupBy(_SESSIONS, "k").agg(*_INCREMENTAL), "complete"),
    "rows by session, complete": (_S.groupBy(_SESSIONS, "k").agg(*_WHOLE), "complete"),
    "rows by session": (_S.groupBy(_SESSIONS, "k").agg(*_WHOLE), "append"),
    "sessions of own gaps": (_S.groupBy(_OF_OWN_GAPS, "k").agg(*_INCREMENTAL), "append"),
    "sessions of own gaps, changes": (_S.groupBy(_OF_OWN_GAPS, "k").agg(*_INCREMENTAL), "update"),
    "rows by session of own gaps": (_S.groupBy(_OF_OWN_GAPS, "k").agg(*_WHOLE), "append"),
    "windows by count": (_S.groupBy(count_window(4), "k").agg(*_INCREMENTAL), "append"),
    "rows by count": (_S.groupBy(count_window(4), "k").agg(*_WHOLE), "append"),
    "windows by count that overlap": (_S.groupBy(count_window(6, 4), "k").agg(*_INCREMENTAL), "append"),
    "windows by count that overlap and go": (
        _S.withStateTtl("5 seconds").groupBy(count_window(7, 2), "k").agg(*_INCREMENTAL),
        "update",
    ),
    "windows by count with ttl": (
        _S.withStateTtl("5 seconds").groupBy(count_window(4), "k").agg(*_INCREMENTAL),
        "append",
    ),
    "rows by count with ttl": (
        _S.withStateTtl("3 seconds", "processingTime").groupBy(count_window(4), "k").agg(*_WHOLE),
        "update",
    ),
    "a user's windows": (_S.groupBy(custom_window("ts", _uneven), "k").agg(*_INCREMENTAL), "append"),
    "rows of a user's windows": (_S.groupBy(custom_window("ts", _uneven), "k").agg(*_WHOLE), "append"),
    "duplicates": (_S.dropDuplicates(["k", "v"]), "append"),
    "duplicates within": (_S.dropDuplicatesWithinWatermark(["k", "v"]), "append"),
    "duplicates for a time": (_S.withStateTtl("5 seconds", "processingTime").dropDuplicates(["k", "v"]), "append"),
    "best rows": (_S.groupBy("k").topN(3, "v"), "update"),
    "best rows with ttl": (_S.withStateTtl("5 seconds").groupBy("k").topN(3, "v"), "update"),
    "best rows of sessions": (_S.groupBy(_SESSIONS, "k").topN(2, "v"), "append"),
    "best rows of sessions of own gaps": (_S.groupBy(_OF_OWN_GAPS, "k").topN(2, "v"), "append"),
    "best rows by count": (_S.groupBy(count_window(5, 2, "at"), "k").topN(2, "v"), "update"),
    "best rows of a user's windows": (_S.groupBy(custom_window("ts", _uneven), "k").topN(2, "v"), "append"),
    "interval join": (_S.join(_RIGHT, "k", "left_outer", within=("-1 second", "2 seconds")), "append"),
    "full outer interval join": (_S.join(_RIGHT, "k", "full", within=("-1 second", "2 seconds")), "append"),
    "semi interval join": (_S.join(_RIGHT, "k", "semi", within=("-1 second", "2 seconds")), "append"),
    "full outer window join": (_S.join(_RIGHT, "k", "full", window=window("ts", "4 seconds")), "append"),
    "window join": (_S.join(_RIGHT, "k", "left_outer", window=window("ts", "4 seconds")), "append"),
    "processor with timers": (processed(_S, (K,), Sessions(), TimeMode.EVENT), "append"),
    "processor whose state expires": (processed(_S, (K,), Expiring(), TimeMode.PROCESSING), "append"),
    "join with ttl": (_S.join(_RIGHT, "k", ttl="3 seconds"), "append"),
}

LONG = {
    "full outer window join",
    "rows by session, complete",
    "sessions, complete",
    "best rows by count",
    "best rows of a user's windows",
    "best rows of sessions",
    "best rows of sessions of own gaps",
    "sessions of own gaps, changes",
    "duplicates for a time",
    "processor whose state expires",
    "rows by sliding window in lists",
    "windows by count that overlap and go",
    "windows by count that overlap",
    "windows by count with ttl",
}
"""Kinds that others stand for where there is little time."""
PARAMETERS = [pytest.param(kind, marks=pytest.mark.long) if kind in LONG else kind for kind in KINDS]


def spec_of(kind: str) -> OperatorSpec:
    requested, mode = KINDS[kind]
    (stage,) = plan_relation(requested.source, OutputMode(mode), Options(shards=SHARDS)).stages
    return stage.operator


@dataclass(frozen=True)
class Script:
    """By epoch, what each of two tasks reads; and watermarks: ``marks[i]`` is before epoch ``i``, the next after it."""

    batches: list[list[pa.RecordBatch]]
    marks: list[int]


def script_of(spec: OperatorSpec, seed: int, epochs: int) -> Script:
    rng = random.Random(seed)
    row = _join_row if isinstance(spec, JoinSpec) else _row
    names = [field.name for field in (*spec.keys, *spec.rows)] if isinstance(spec, JoinSpec) else list(COLUMNS)
    types = {field.name: field.type for field in (*spec.keys, *spec.rows)} if isinstance(spec, JoinSpec) else TYPES
    made: list[list[pa.RecordBatch]] = []
    marks, newest = [MIN_MICROS], MIN_MICROS
    for epoch in range(epochs):
        tasks = []
        for _ in range(2):
            rows = [row(rng, 1_000 + 2 * epoch) for _ in range(rng.choice([0, 3, 12, 25]))]
            newest = max([newest, *(time for time, _ in rows)])
            columns = [pa.array([cells[name] for _, cells in rows], arrow_type(types[name])) for name in names]
            tasks.append(pa.RecordBatch.from_arrays(columns, names))
        made.append(tasks)
        marks.append(MIN_MICROS if newest == MIN_MICROS else max(marks[-1], newest - DELAY))
    return Script(made, marks)


TYPES = {name: DataType(type_) for name, type_ in COLUMNS.items()}


def _row(rng: random.Random, now: int) -> tuple[int, dict[str, Any]]:
    time = now * SECOND - rng.randrange(6 * SECOND) + rng.choice([0, 0, 0, 2 * SECOND])
    text = rng.choice([None, "", "ä", "text " * 3, "long " * 40])
    cells = {"k": _key(rng), "ts": time, "v": rng.choice([None, *range(6)]), "s": text}
    return time, {**cells, "until": time + rng.choice([1, SECOND, 4 * SECOND])}


def _join_row(rng: random.Random, now: int) -> tuple[int, dict[str, Any]]:
    time, cells = _row(rng, now)
    right = rng.random() < 0.5
    side = {"__side": right, "__time": time, "k": cells["k"]}
    if right:
        return time, {**side, **dict.fromkeys(COLUMNS), "k": cells["k"], "rt": time, "rv": cells["v"]}
    return time, {**side, **cells, "rt": None, "rv": None}


def _key(rng: random.Random) -> str | None:
    return rng.choice([None, "", "a", "b", "ß", "key " * 10, *map(str, range(6))])
