"""The lookup join against a dictionary: exact keys, absent ones, hints, little room, two keys with one hash."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.manual_clock import StillClock
from tailrace.env import clock
from tailrace.errors import QueryStopped, TableError
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.base import Hinted, HintedByKey, HintedKeys
from tailrace.operators.exchange import in_fixed_order
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.lookup.backend import Answer, Asker, ConnectionLost
from tailrace.operators.lookup.operator import LookupJoin
from tailrace.operators.lookup.spec import LookupSpec, TableSpec
from tailrace.operators.registry import ingest_of, spec_from_json
from tailrace.state.layout import HASH
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.rows import Rows
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
K, J = Field("k", DataType("string")), Field("j", DataType("int"))
TS, V = Field("ts", TIMESTAMP), Field("v", BIGINT)
A, B = Field("a", DataType("string")), Field("b", DataType("decimal(25,2)"))


def described(keys: tuple[Field, ...] = (K,), outer: bool = False, **changes: Any) -> LookupSpec:
    table = TableSpec("dbapi", "a table", Micros(0), "{}")
    spec = LookupSpec("lookup", keys, (TS, V), (A, B), ("a", "b"), table, outer, TS, shards=4)
    return replace(spec, **changes)


class DictTable:
    """A backend that is a dictionary, and remembers the keys of its lookups."""

    def __init__(self, rows: dict[tuple[Any, ...], tuple[Any, Any]], piece: int = 7) -> None:
        self.rows, self.piece = rows, piece
        self.mapped = False
        self.asked: list[tuple[Any, ...]] = []
        self.lost = 0
        self.lock = threading.Lock()
        self.closed = False

    def ask(self, keys: list[pa.Array]) -> Answer:
        asked = list(zip(*(key.to_pylist() for key in keys), strict=True))
        assert 0 < len(asked) <= self.piece and len(set(asked)) == len(asked)
        with self.lock:
            if self.lost:
                self.lost -= 1
                raise ConnectionLost("gone for a moment")
            self.asked += asked
        found = [self.rows.get(key) for key in asked]
        values = [
            pa.array([None if row is None else row[n] for row in found], arrow_type(field.type, large=True))
            for n, field in enumerate((A, B))
        ]
        return Answer(np.array([row is not None for row in found], bool), values)

    def close(self) -> None:
        self.closed = True


def frames(spec: LookupSpec, rows: list[Any], pool: int | None = None) -> list[Frame]:
    """``pool``: how many hashes there are, so that keys collide."""
    fields = (*spec.keys, *spec.rows)
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(column, arrow_type(field.type)) for column, field in zip(columns, fields, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
    frame = ingest_of(spec, MIN_MICROS, False, {}).frame([batch])
    if pool is not None:
        words = frame.rows.copy()
        words[:, HASH] %= pool
        frame = by_shard(Rows(words, frame.heap), spec.shards)
    return [Frame.from_batch(frame.to_batch(), spec.layout().words)]


def plain_rows(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    for batch in batches:
        batch.validate(full=True)
    return [
        tuple(int(v.timestamp() * 1e6 + 0.5) if hasattr(v, "timestamp") else v for v in row.values())
        for batch in batches
        for row in batch.to_pylist()
    ]


def wanted(spec: LookupSpec, rows: list[Any], table: dict[tuple[Any, ...], tuple[Any, Any]]) -> list[Any]:
    width = len(spec.keys)
    joined = [(*row, *table.get(row[:width], (None, None))) for row in rows if spec.outer or row[:width] in table]
    return sorted(joined, key=repr)


values = st.tuples(st.one_of(st.none(), st.text(max_size=20)), st.one_of(st.none(), st.decimals(-999, 999, places=2)))


@settings(max_examples=400 if LONG else 60)
@given(
    table=st.dictionaries(st.integers(0, 30), values, max_size=20),
    epochs=st.lists(st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=30), min_size=1, max_size=6),
    outer=st.booleans(),
    two_keys=st.booleans(),
    pool=st.sampled_from([None, 1, 3]),
    memory=st.sampled_from([0, 1500, 1 << 20]),
    policy=st.sampled_from(["timestamp", "lru", "clock"]),
    access=st.sampled_from(["on", "on", "off", "async-io"]),
    mapped=st.booleans(),
    hinted=st.lists(st.sampled_from(["no", "rows", "keys", "check_invariants"]), min_size=6, max_size=6),
)
def test_as_a_dictionary_says(
    table: dict[int, Any],
    epochs: list[list[int | None]],
    outer: bool,
    two_keys: bool,
    pool: int | None,
    memory: int,
    policy: str,
    access: str,
    mapped: bool,
    hinted: list[str],
) -> None:
    def key(n: int | None) -> tuple[Any, ...]:
        name = None if n is None else f"key {n}"
        return (name, None if n is None else n % 5) if two_keys else (name,)

    spec = described((K, J) if two_keys else (K,), outer)
    assert spec_from_json(spec.to_json()) == spec
    rows = {key(n): value for n, value in table.items()}
    backend = DictTable(rows)
    backend.mapped = mapped
    tuning = Tuning(spilled=SpillTuning(policy, access))
    operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=memory, tuning=tuning)
    assert isinstance(operator, Hinted)
    try:
        for epoch, drawn in enumerate(epochs):
            sent = [(*key(n), 1_000_000 * epoch + place, place) for place, n in enumerate(drawn)]
            cut = len(sent) // 3
            staged = [frame for part in (sent[:cut], sent[cut:]) for frame in frames(spec, part, pool)]
            if hinted[epoch] in ("rows", "check_invariants"):
                for frame in staged:
                    operator.hint_frame(frame, epoch)
            elif hinted[epoch] == "keys":
                hashes = staged[0].rows[:, HASH]
                columns = [
                    pa.array([row[n] for row in _in_order(staged[0], sent)], arrow_type(f.type))
                    for n, f in enumerate(spec.keys)
                ]
                batch = pa.RecordBatch.from_arrays(columns, names=[f.name for f in spec.keys])
                operator.hint_keys(HintedKeys(hashes, np.full(len(hashes), epoch), keys=batch), epoch)
            if hinted[epoch] == "check_invariants":
                operator.drain()
            sums = [frame.checksum() for frame in staged]
            operator.apply(epoch, staged)
            emitted = plain_rows(operator.advance(epoch, MIN_MICROS, MIN_MICROS))
            assert sums == [frame.checksum() for frame in staged], "a frame was written to"
            assert sorted(emitted, key=repr) == wanted(spec, sent, rows)
            assert operator.delta(epoch) == {}
            if epoch % 2:  # a try that was in vain
                operator.undo(epoch)
                operator.apply(epoch, staged)
                assert plain_rows(operator.advance(epoch, MIN_MICROS, MIN_MICROS)) == emitted
        if memory >= 1 << 20 and pool is None:
            # Of a mapped one whoever needs the key, and who fetches it ahead, may both look.
            assert mapped or len(backend.asked) == len(set(backend.asked)), "a key was asked for twice"
            assert not any(None in asked for asked in backend.asked)
    finally:
        operator.close()
    assert backend.closed


def _in_order(frame: Frame, sent: list[Any]) -> list[Any]:
    """The rows of a frame in its own order: the last column distinguishes them."""
    return [sent[int(place)] for place in frame.rows[:, -1]]


def test_a_prefetch_that_fails_is_looked_up_by_who_waits_for_it() -> None:
    """The epoch waits for what is in flight, and asks by itself when nothing comes of that."""
    spec, gate, entered = described(), threading.Event(), threading.Event()

    class Failing(DictTable):
        def ask(self, keys: list[pa.Array]) -> Answer:
            if threading.current_thread().name.startswith("tailrace-"):
                entered.set()
                assert gate.wait(20)
                raise TableError("the prefetch fails")
            return super().ask(keys)

    backend = Failing({("a",): ("x", None)})
    operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
    (frame,) = frames(spec, [("a", 5, 1), ("b", 6, 2)])
    operator.hint_frame(frame, 0)
    assert entered.wait(20)
    applying = threading.Thread(target=operator.apply, args=(0, [frame]))
    applying.start()
    assert backend.asked == []
    gate.set()
    applying.join()
    assert plain_rows(operator.advance(0, MIN_MICROS, MIN_MICROS)) == [("a", 5, 1, "x", None)]
    assert sorted(backend.asked) == [("a",), ("b",)]
    assert operator.metrics()["hintsFetched"] == 0
    operator.close()


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    spec, gate, entered = described(), threading.Event(), threading.Event()

    class Slow(DictTable):
        def ask(self, keys: list[pa.Array]) -> Answer:
            entered.set()
            assert gate.wait(20)
            return super().ask(keys)

    backend = Slow({("key 1",): ("one", None)})
    operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
    staged = frames(spec, [("key 1", 5, 1)])
    operator.hint_frame(staged[0], 0)
    assert entered.wait(20)
    applying = threading.Thread(target=operator.apply, args=(0, staged))
    applying.start()
    gate.set()
    applying.join()
    assert plain_rows(operator.advance(0, 0, 0)) == [("key 1", 5, 1, "one", None)]
    assert backend.asked == [("key 1",)]
    metrics = operator.metrics()
    assert (
        metrics["spilledHits"] == 1
        and metrics["spilledMisses"] == 0
        and metrics["hintsFetched"] == 1
        and metrics["hintsWasted"] == 0
    )
    operator.close()


def test_it_says_by_hashes_which_keys_it_would_fetch() -> None:
    spec, gate = described(), threading.Event()

    class Slow(DictTable):
        def ask(self, keys: list[pa.Array]) -> Answer:
            assert gate.wait(20)
            return super().ask(keys)

    operator = LookupJoin(spec, range(4), Asker(spec, Slow({}, piece=1)), memory_bytes=1 << 20)
    assert isinstance(operator, HintedByKey)
    hashes, times = frames(spec, [(f"key {n}", 5, 1) for n in range(4)])[0].rows[:, HASH].copy(), np.full(4, 5)
    by_key = dict(zip(hashes.tolist(), range(4), strict=True))
    assert operator.lacking(hashes, times).all()
    staged = frames(spec, [("key 1", 5, 1), ("key 2", 5, 1)])
    operator.hint_frame(staged[0], 0)  # one is in flight, the others wait behind it
    foretold = set(staged[0].rows[:, HASH].tolist())
    assert dict(zip(by_key, ~operator.lacking(hashes, times), strict=True)) == {h: h in foretold for h in by_key}
    gate.set()
    operator.drain()
    assert dict(zip(by_key, ~operator.lacking(hashes, times), strict=True)) == {h: h in foretold for h in by_key}
    operator.close()


def test_a_lost_connection_is_waited_for_or_reported() -> None:
    patient = described(table=TableSpec("dbapi", "a table", Micros(20_000_000), "{}"))
    for spec, losses in ((patient, 3), (described(), 1)):
        backend = DictTable({("key 1",): ("one", None)})
        operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
        staged = frames(spec, [("key 1", 5, 1)])
        backend.lost = losses
        if spec is patient:
            operator.apply(0, staged)
            assert len(plain_rows(operator.advance(0, 0, 0))) == 1
        else:
            with pytest.raises(TableError, match="a table cannot be reached: gone for a moment"):
                operator.apply(0, staged)
            operator.undo(0)
            operator.apply(0, staged)  # it is back: nothing was lost
            assert len(plain_rows(operator.advance(0, 0, 0))) == 1
        operator.close()


def test_secrets_stay_out_of_what_is_kept_and_shown() -> None:
    spec = described(table=TableSpec("redis", "Redis h:1/0", Micros(0), '{"password": "pw-1234"}', "code"))
    bare = spec.without_code()
    assert "pw-1234" not in bare.to_json() + repr(spec) and "code" not in bare.table.code
    assert bare.without_code() == bare


def test_rows_are_handed_over_in_one_order_however_they_came() -> None:
    spec = described(outer=True)
    rng = random.Random(random.randrange(2**32))
    sent = [(rng.choice([None, "a", "b", "c"]), rng.randrange(3), rng.randrange(3)) for _ in range(60)]
    instructions = []
    for _ in range(3):
        rng.shuffle(sent)
        operator = LookupJoin(spec, range(4), Asker(spec, DictTable({("a",): ("x", None)})), memory_bytes=1 << 20)
        operator.apply(0, frames(spec, sent))
        instructions.append(plain_rows(in_fixed_order(operator.advance(0, 0, 0), spec)))
        operator.close()
    assert instructions[0] == instructions[1] == instructions[2]


def test_hints_stay_off_while_the_cache_has_all_that_comes() -> None:
    spec, backend = described(), DictTable({(f"key {n}",): ("one", None) for n in range(40)})
    operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
    seen = []
    for epoch in range(6):
        first = 0 if epoch < 4 else 20  # then other keys come
        staged = frames(spec, [(f"key {n}", epoch, n) for n in range(first, first + 20)])
        seen.append(operator.wants_hints())
        operator.hint_frame(staged[0], epoch)
        operator.apply(epoch, staged)
        assert len(plain_rows(operator.advance(epoch, 0, 0))) == 20
    assert seen == [True, True, True, False, False, True]
    assert len(backend.asked) == 40
    operator.close()


def test_ten_times_the_rows_and_keys_need_no_more_calls() -> None:
    """Of Python and of C, in an epoch that had a hint for every key."""
    spec = described(outer=True)

    def counted(rows: int) -> Counter[str]:
        backend = DictTable({(f"key {n}",): ("one", None) for n in range(0, rows, 3)}, piece=1 << 20)
        operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 30)
        found: Counter[str] = Counter()

        def count(frame: Any, event: str, argument: object) -> None:
            if event in ("call", "c_call"):
                found[frame.f_code.co_qualname if event == "call" else getattr(argument, "__qualname__", "c")] += 1

        for epoch in range(3):
            staged = frames(spec, [(f"key {n // 2}", epoch, n) for n in range(rows)])
            gc.disable()  # others hang callbacks on the collector
            sys.setprofile(count if epoch == 2 else None)
            operator.hint_frame(staged[0], epoch)
            operator.apply(epoch, staged)
            operator.advance(epoch, 0, 0)
            sys.setprofile(None)
            gc.enable()
        operator.close()
        return found

    few, many = counted(3_000), counted(30_000)
    assert few == many, f"calls that grow with the rows: {many - few}"


def test_a_query_that_is_stopped_waits_no_more() -> None:
    spec = described(table=TableSpec("dbapi", "a table", Micros(600_000_000), "{}"))
    backend = DictTable({})
    backend.lost = 1_000_000
    operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
    threading.Timer(0.2, operator.give_up).start()
    with pytest.raises(QueryStopped, match="waited for a table"):
        operator.apply(0, frames(spec, [("key 1", 5, 1)]))
    operator.close()


@pytest.mark.parametrize("access", ["on", "off", "async-io"])
def test_copies_are_used_for_a_time_and_then_asked_for_again(access: str) -> None:
    """Of rows, and of the answer that there is none; also where hints name the keys."""
    spec = described(table=TableSpec("dbapi", "a table", Micros(0), "{}", max_age=Micros(60_000_000)), outer=True)
    backend, time = DictTable({("a",): ("old", None)}), StillClock()
    with clock.use(time):
        tuning = Tuning(spilled=SpillTuning(prefetch=access))
        operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20, tuning=tuning)

        def joined(epoch: int) -> list[Any]:
            (frame,) = frames(spec, [("a", 5, 1), ("b", 6, 2)])
            operator.hint_frame(frame, epoch)
            operator.drain()
            operator.apply(epoch, [frame])
            return sorted(plain_rows(operator.advance(epoch, MIN_MICROS, MIN_MICROS)))

        before, after = (
            [("a", 5, 1, "old", None), ("b", 6, 2, None, None)],
            [("a", 5, 1, "new", None), ("b", 6, 2, "b", None)],
        )
        assert joined(0) == before
        backend.rows = {("a",): ("new", None), ("b",): ("b", None)}
        time.jumped += 1e9  # the wall clock ages nothing
        time.at += 59
        assert joined(1) == before
        time.at += 2
        assert joined(2) == after
        assert sorted(backend.asked) == [("a",), ("a",), ("b",), ("b",)]
        operator.close()


def test_copies_without_a_largest_age_stay() -> None:
    spec, backend, time = described(outer=True), DictTable({}), StillClock()
    with clock.use(time):
        operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
        for epoch in range(2):
            operator.apply(epoch, frames(spec, [("a", 5, 1)]))
            time.at += 1e9
        assert backend.asked == [("a",)]
        operator.close()


def test_failed_prefetches_are_reported_and_old_hints_are_dropped() -> None:
    """Hints that there is no room for go with the watermark, or with their epoch where there is no event time."""
    for spec, over in ((described(), 10), (described(time_column=None), MIN_MICROS)):
        backend = DictTable({})
        operator = LookupJoin(spec, range(4), Asker(spec, backend), memory_bytes=1 << 20)
        backend.lost = 1
        operator.hint_frame(frames(spec, [("a", 5, 1)])[0], 0)
        operator.drain()
        assert operator.metrics()["hintsFailed"] == 1
        operator.close()

        crowded = LookupJoin(spec, range(4), Asker(spec, DictTable({})), memory_bytes=0)
        crowded.hint_frame(frames(spec, [("a", 5, 1), ("b", 5, 1)])[0], 0)
        crowded.apply(0, frames(spec, [("a", 5, 1)]))
        crowded.advance(0, MIN_MICROS, over)
        assert crowded.metrics()["hintsDropped"] == 1
        crowded.close()
