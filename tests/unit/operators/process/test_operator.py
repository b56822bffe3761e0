"""A user's function of rows and state against the same function key by key over plain dictionaries.

Undone, replayed, moved, restarted, compacted, in and out of memory, with timers and time-to-live by both clocks.
"""

from __future__ import annotations

import base64
import os
import random
import tempfile
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.keyed_cluster import NO_TIME, KeyedCluster, Times
from support.operators.scenario import TimedScenario, few_hashes, play
from tailrace.ids import Micros
from tailrace.operators.ingest import rows as row_ingest
from tailrace.operators.process import call as process_call
from tailrace.operators.process import operator as process
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
TEXT = DataType("string")
KEYS = (Field("k", TEXT), Field("n", BIGINT))
TS, V, S = Field("ts", TIMESTAMP), Field("v", DataType("decimal(30,2)")), Field("s", TEXT)
STATE = (Field("count", BIGINT), Field("until", TIMESTAMP), Field("note", TEXT))
OUTPUT = (Field("k", TEXT), Field("what", TEXT))
Key = tuple[Any, ...]
State = tuple[int, int | None, str | None]


def one_key(key: Key, rows: list[tuple[Any, ...]], state: State | None, due: bool) -> tuple[list[str], State | None]:
    """What the function makes of one key: as capricious as it may be, but decided by what it is given alone."""
    rng = random.Random(repr((key, rows, state, due)))
    said = [f"{key[1:]} {rows} {state} {due}"]
    if (state is not None and rng.random() < 0.25) or rng.random() < 0.1:
        return said * rng.choice([0, 1, 2]), None
    count = (0 if state is None else state[0]) + len(rows)
    newest = max([row[0] for row in rows] + [0 if state is None or state[1] is None else state[1]])
    until = rng.choice([None, newest, newest + rng.randint(-5, 30), None if state is None else state[1]])
    note = rng.choice([None, "", "x" * rng.randint(0, 40), "ü"])
    return said * rng.choice([0, 1, 1, 2]), (count, until, note)


def by_key(spec_keys: list[str], timed: bool) -> Any:
    """The function as the engine calls it: whole tables, checked, and then key by key."""

    def function(rows: pa.Table, state: pa.Table, *due: pa.Array) -> tuple[pa.Table, pa.Table]:
        assert rows.column_names == [*spec_keys, *(["ts"] if timed else []), "v", "s"]
        assert state.column_names == [*spec_keys, "count", "until", "note"]
        numbers = rows.append_column("at", rows["ts"].cast(pa.int64())) if timed else rows
        found: dict[Key, list[tuple[Any, ...]]] = defaultdict(list)
        order: list[Key] = []
        for row in numbers.to_pylist():
            key = tuple(row[name] for name in spec_keys)
            if key not in found:
                order.append(key)
            else:
                assert order[-1] == key, "the rows of a key are not together"
            found[key].append((row["at"] if timed else 0, row["v"], row["s"]))
        assert all(each == sorted(each, key=_first) for each in found.values())
        assert order == sorted(order, key=_nulls_first)
        made, kept = [], []
        untils = state["until"].cast(pa.int64()).to_pylist()
        keys = [tuple(row[name] for name in spec_keys) for row in state.select(spec_keys).to_pylist()]
        keys = keys or [()] * len(state)
        assert keys == sorted(keys, key=_nulls_first) and len(set(keys)) == len(keys)
        for number, key in enumerate(keys):
            count = state["count"][number].as_py()
            before = None if count is None else (count, untils[number], state["note"][number].as_py())
            is_due = bool(due) and due[0][number].as_py()
            assert is_due or key in found
            said, after = one_key(key, found.pop(key, []), before, is_due)
            made += [(key[0] if key else None, each) for each in said]
            kept += [] if after is None else [(*key, *after)]
        assert not found, "rows without a state"
        types = [state.schema.field(name).type for name in spec_keys] + [pa.int64(), pa.int64(), pa.string()]
        columns = zip(*kept, strict=True) if kept else [[] for _ in types]
        arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
        table = pa.table(dict(zip(state.column_names, arrays, strict=True)))
        out = pa.table({"k": pa.array([k for k, _ in made], pa.string()), "what": [what for _, what in made]})
        return out, table.take(pa.array(np.random.permutation(len(table))))

    return function


def _first(row: tuple[Any, ...]) -> Any:
    return row[0]


def _nulls_first(key: Key) -> Any:
    return [
        (part is not None, b"" if part is None else part.encode() if isinstance(part, str) else part) for part in key
    ]


class Model:
    """What must come out, from plain dictionaries."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.states: dict[Key, State] = {}
        self.seen: dict[Key, int] = {}

    def copy(self) -> Model:
        other = Model(self.spec)
        other.states, other.seen = dict(self.states), dict(self.seen)
        return other

    def epoch(self, rows: list[dict[str, Any]], times: Times) -> Counter[tuple[Any, ...]]:
        spec = self.spec
        if spec.ttl is not None and spec.ttl.clock is Clock.PROCESSING:
            self._expire(times.forget_before)
        found: dict[Key, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            if spec.time_column is not None and (row["ts"] is None or row["ts"] < times.late_before):
                continue
            key = tuple(row[field.name] for field in spec.keys)
            found[key].append((row["ts"] if spec.time_column is not None else 0, row["v"], row["s"]))
        until = times.now if spec.timers_clock is Clock.PROCESSING else times.watermark
        due = set()
        if spec.timers is not None and until > NO_TIME:
            due = {key for key, state in self.states.items() if state[1] is not None and state[1] <= until}
        emitted: Counter[tuple[Any, ...]] = Counter()
        for key in {*found, *due}:
            before = self.states.get(key)
            said, after = one_key(key, sorted(found[key], key=_by_all), before, key in due)
            emitted.update((key[0] if key else None, each) for each in said)
            moments = [row[0] for row in found[key]] + [self.seen.get(key, NO_TIME)]
            if key in due and spec.timers_clock is Clock.EVENT and before is not None and before[1] is not None:
                moments.append(before[1])
            if after is None:
                self.states.pop(key, None)
                self.seen.pop(key, None)
            else:
                self.states[key] = after
                event = spec.ttl is not None and spec.ttl.clock is Clock.EVENT
                self.seen[key] = max(moments) if event else times.now
        if spec.ttl is not None and spec.ttl.clock is Clock.EVENT:
            self._expire(times.forget_before)
        return emitted

    def _expire(self, forget_before: int) -> None:
        for key in [key for key, seen in self.seen.items() if seen <= forget_before]:
            del self.states[key], self.seen[key]


def _by_all(row: tuple[Any, ...]) -> Any:
    return [(cell is not None, cell) if not isinstance(cell, str) else (True, cell.encode()) for cell in row]


def draw_spec(rng: random.Random) -> ProcessSpec:
    timed = rng.random() < 0.8
    keys = rng.choice([KEYS, KEYS, KEYS[:1], ()])
    clocks = [Clock.EVENT, Clock.PROCESSING] if timed else [Clock.PROCESSING]
    timers = rng.choice([None, "until"])
    ttl = Ttl(Micros(rng.choice([0, 3, 20, 100])), rng.choice(clocks)) if rng.random() < 0.6 else None
    function = by_key([key.name for key in keys], timed)
    spec = ProcessSpec(
        name="p",
        keys=keys,
        rows=(*([TS] if timed else []), V, S),
        state=STATE,
        outputs=OUTPUT,
        time_column=TS if timed else None,
        watermarked=timed,
        shards=rng.choice([1, 3, 5]),
        function=base64.b64encode(cloudpickle.dumps(function)).decode(),
        timers=timers,
        timers_clock=rng.choice(clocks) if timers else None,
        ttl=ttl,
    )
    assert ProcessSpec.from_json(spec.to_json()) == spec
    return spec


class Stream:
    def __init__(self, spec: ProcessSpec, rng: random.Random) -> None:
        self.spec, self.rng = spec, rng
        texts = ["", "a", "bee", "ü", None, "long " * 9]
        self.keys = [(rng.choice(texts), rng.choice([0, 1, None])) for _ in range(rng.randint(1, 12))]
        self.time = rng.choice([0, -500, 10**15])
        self.delay = rng.choice([0, 5, 30])
        self.now = rng.choice([0, 10**15])
        self.late = self.mark = NO_TIME
        self.forgotten = NO_TIME

    def rows(self, count: int) -> list[dict[str, Any]]:
        rng = self.rng
        self.time += rng.choice([0, 1, 5, 40])
        return [
            dict(
                zip(("k", "n"), rng.choice(self.keys), strict=True),
                ts=rng.choice([None, *[self.time + rng.randint(-20, 3)] * 9]),
                v=rng.choice([None, Decimal(rng.randint(-9, 9)).scaleb(-2), Decimal("1" + "0" * 27 + ".00")]),
                s=rng.choice([None, "", "row", "é"]),
            )
            for _ in range(count)
        ]

    def times(self, rows: list[dict[str, Any]]) -> Times:
        """Those of the next epoch."""
        self.late = self.mark
        known = [row["ts"] for row in rows if row["ts"] is not None]
        if known:
            self.mark = max(self.mark, max(known) - self.delay)
        self.now += self.rng.choice([0, 1, 7, 50])
        if self.spec.ttl is not None:
            clock = self.now if self.spec.ttl.clock is Clock.PROCESSING else self.mark
            if clock > NO_TIME:
                self.forgotten = max(self.forgotten, clock - self.spec.ttl.span)
        return Times(self.late, self.mark, self.now, self.forgotten)


class Calls(TimedScenario):
    def __init__(self, cluster: KeyedCluster, stream: Stream) -> None:
        super().__init__(cluster, stream)
        self.model = Model(stream.spec)

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        assert Counter(found) == self.model.epoch(*given), f"epoch {epoch}"
        self.check_invariants()

    def check_invariants(self) -> None:
        assert self.cluster.rows == len(self.model.states)


def run_scenario(seed: int, epochs: int) -> KeyedCluster:
    """One stream from its seed, checked epoch by epoch."""
    rng = random.Random(seed)
    spec = draw_spec(rng)
    stream = Stream(spec, rng)
    with (
        tempfile.TemporaryDirectory() as folder,
        few_hashes(rng, row_ingest, process_call),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(process, "CALL_ROWS_MAX", rng.choice([1, 4, 1 << 16]))
        cluster = KeyedCluster(spec, (*KEYS, TS, V, S), rng, folder)
        play(Calls(cluster, stream), rng, epochs)
        return cluster


@given(seed=st.integers(0, 2**48))
@settings(max_examples=600 if LONG else 25)
def test_every_call_sees_and_keeps_what_a_dictionary_would(seed: int) -> None:
    run_scenario(seed, epochs=12)


def test_scenarios_spill_to_disk() -> None:
    """The property above says little if all of its records fit memory."""
    assert any(run_scenario(seed, epochs=8).wrote_segments for seed in range(6))
