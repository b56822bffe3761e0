"""Processors by themselves, without Spark: against PySpark's own ``TwsTester``, and with time under control."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from tailrace.errors import AnalysisError, UserFunctionError
from tailrace.operators.stateful_processor import packed_state
from tailrace.testing import ProcessorTester

START = datetime(2026, 1, 1, tzinfo=UTC)


class Everything(StatefulProcessor):
    """Does to each kind of state what a row says, and tells what it sees."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._value = handle.getValueState("value", "v bigint, s string")
        self._list = handle.getListState("list", "v bigint, s string")
        self._map = handle.getMapState("map", "v bigint", "n bigint, s string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in sorted(rows, key=lambda row: row.n):
            getattr(self, f"_{row.do}")(row.v)
        yield Row(k=key[0], said=self._said())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        if at % 3 == 0:
            self._handle.registerTimer(at + 10_000)
        self._list.appendValue((at, "timer"))
        yield Row(k=key[0], said=f"{at} {self._said()}")

    def _said(self) -> str:
        value = self._value.get() if self._value.exists() else "none"
        items = sorted(self._map.iterator())
        assert [key for key, _ in items] == sorted(self._map.keys())
        rows = list(self._list.get()) if self._list.exists() else []
        return f"{value} {rows} {items} {sorted(self._handle.listTimers())}"

    def _update(self, v: Any) -> None:
        self._value.update((v, None if v is None else "ü" * (v % 3)))

    def _clear(self, v: Any) -> None:
        {0: self._value, 1: self._list, 2: self._map}[(v or 0) % 3].clear()

    def _append(self, v: Any) -> None:
        self._list.appendValue((v, f"{v}"))

    def _extend(self, v: Any) -> None:
        self._list.appendList([(v, None), (1, "")])

    def _put(self, v: Any) -> None:
        self._list.put([(v, "put")])

    def _set(self, v: Any) -> None:
        n = (self._map.getValue((v,)) or (0,))[0]
        self._map.updateValue((v,), (n + 1, f"{v}"))
        assert self._map.containsKey((v,))

    def _remove(self, v: Any) -> None:
        self._map.removeKey((v,))

    def _register(self, v: Any) -> None:
        self._handle.registerTimer((v or 0) + 10_000)

    def _delete(self, v: Any) -> None:
        self._handle.deleteTimer((v or 0) + 10_000)


DEEDS = ["update", "clear", "append", "extend", "put", "set", "remove", "register", "delete"]
KEYS = st.sampled_from(["a", "b", "c"])
BATCHES = st.lists(
    st.lists(st.tuples(KEYS, st.sampled_from(DEEDS), st.integers(0, 5)), max_size=8), min_size=1, max_size=6
)


@given(BATCHES, st.lists(st.integers(0, 9_000), min_size=6, max_size=6))
@settings(max_examples=40)
def test_it_does_what_pysparks_own_tester_does(batches: Any, steps: list[int]) -> None:
    ours = ProcessorTester(
        Everything(), "k string, n int, do string, v bigint", "k string, said string",
        keys=["k"], timeMode="processingTime",
    )  # fmt: skip
    theirs = TwsTester(Everything(), timeMode="ProcessingTime")
    now = 1_000
    for deeds, step in zip(batches, steps, strict=False):
        now += step + 1
        wanted = []
        for key in sorted({deed[0] for deed in deeds}):
            rows = [Row(k=k, n=n, do=do, v=v) for n, (k, do, v) in enumerate(deeds) if k == key]
            wanted += theirs.test(key, rows)
        wanted += theirs.setProcessingTime(now)
        given_rows = [{"k": k, "n": n, "do": do, "v": v} for n, (k, do, v) in enumerate(deeds)]
        found = ours.batch(given_rows, datetime.fromtimestamp(now / 1e3, UTC))
        assert sorted(map(str, found)) == sorted(str(row.asDict()) for row in wanted)


class Expiring(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", "n bigint", 10_000)
        self._list = handle.getListState("list", "n bigint", 5_000)
        self._map = handle.getMapState("map", "n bigint", "n bigint", 5_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        said = f"{self._value.get()} {list(self._list.get())} {sorted(self._map.iterator())}"
        for frame in rows:
            for n in frame["n"]:
                self._value.update((n,))
                self._list.appendValue((n,))
                self._map.updateValue((n,), (n,))
        yield pd.DataFrame({"said": [said], "k": key})


def test_state_expires_value_by_value_and_keys_go_with_it() -> None:
    tester = ProcessorTester(
        Expiring(), "k string, n bigint", "k string, said string", keys=["k"], timeMode="ProcessingTime", pandas=True
    )

    def batch(second: int, *rows: tuple[str, int]) -> list[str]:
        made = tester.batch([{"k": k, "n": n} for k, n in rows], START + timedelta(seconds=second))
        return sorted(f"{row['k']}: {row['said']}" for row in made)

    assert batch(0, ("a", 1), ("b", 1)) == ["a: None [] []", "b: None [] []"]
    assert batch(3, ("a", 2)) == ["a: (1,) [(1,)] [((1,), (1,))]"]
    assert batch(5, ("a", 3)) == ["a: (2,) [(2,)] [((2,), (2,))]"], "what was written at 0 is gone at 5, not later"
    assert tester.keys_kept == 2
    assert batch(10) == [] and tester.keys_kept == 1, "nothing of b is left, though no row of it came"
    assert batch(14, ("a", 4), ("b", 5)) == ["a: (3,) [] []", "b: None [] []"]
    assert batch(24) == [] and tester.keys_kept == 0


TYPES = "b boolean, t tinyint, i int, l bigint, f float, d double, s string, x binary, y date, ts timestamp"
CELLS = {
    "b": True, "t": -3, "i": 7, "l": 2**62 + 1, "f": 0.5, "d": 1e300, "s": "ü", "x": b"\0\xff", "y": date(1969, 7, 20),
    "ts": datetime(1960, 2, 29, 1, 2, 3, 4, tzinfo=UTC), "c": Decimal("-1.50"), "w": Decimal("1e30"),
}  # fmt: skip
COLUMNS = f"{TYPES}, c decimal(10,2), w decimal(38,2)"


class Keeper(StatefulProcessor):
    """Gives back what the last batch brought, out of a state of each kind."""

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", COLUMNS)
        self._list = handle.getListState("list", COLUMNS)
        self._map = handle.getMapState("map", COLUMNS, COLUMNS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        before = [*([self._value.get()] if self._value.exists() else []), *self._list.get()]
        for stored, value in self._map.iterator():
            assert self._map.containsKey(stored)
            before += [stored, value]
        for row in rows:
            cells = tuple(row)[1:]
            self._value.update(cells)
            self._list.put([cells])
            self._map.clear()
            self._map.updateValue(cells, dict(zip(row.__fields__[1:], cells, strict=True)))
        for values in before:
            yield Row(**dict(zip(row.__fields__, (key[0], *map(_in_utc, values)), strict=True)))


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def test_values_of_every_type_are_kept_as_they_are() -> None:
    tester = ProcessorTester(Keeper(), f"k int, {COLUMNS}", f"k int, {COLUMNS}", keys=["k"])
    for number in (0, 1):
        found = tester.batch([{"k": 1, **CELLS}, {"k": 2, **dict.fromkeys(CELLS)}])
        wanted = [{"k": 1, **CELLS}] * 4 + [{"k": 2, **dict.fromkeys(CELLS)}] * 4
        assert found == (wanted if number else [])


def test_a_list_is_appended_to_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Appender(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._list = handle.getListState("list", "n bigint, s string")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            for row in rows:
                self._list.appendValue((row.n, "x" * row.n))
            return iter([Row(n=len(list(self._list.get())))] if key[0] == "read" else [])

    tester = ProcessorTester(Appender(), "k string, n bigint", "n bigint", keys=["k"])
    read: list[int] = []
    objects = packed_state.PackedState._objects
    monkeypatch.setattr(
        packed_state.PackedState, "_objects", lambda self, *edges: read.append(1) or objects(self, *edges)
    )
    for n in range(5):
        assert tester.batch([{"k": "kept", "n": n}, {"k": "kept", "n": n}]) == []
    assert read == []
    assert tester.batch([{"k": "read", "n": 1}]) == [{"n": 1}]


def test_times_of_group_states_are_under_control() -> None:
    def quiet(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})
            state.remove()
        else:
            count = sum(len(frame) for frame in frames)
            state.update((count + (state.getOption or (0,))[0],))
            state.setTimeoutDuration(5_000)

    tester = ProcessorTester.of_function(
        quiet, "k string", "k string, n bigint", "n bigint", keys=["k"], timeoutConf="ProcessingTimeTimeout"
    )
    assert tester.batch([{"k": "a"}, {"k": "a"}], START) == []
    assert tester.batch((), START + timedelta(seconds=5)) == [], "as Spark: past it, not at it"
    assert tester.batch((), START + timedelta(seconds=5.001)) == [{"k": "a", "n": 2}]
    assert tester.keys_kept == 0


def test_watermarks_come_from_the_rows() -> None:
    tester = ProcessorTester(
        Everything(), "k string, n int, do string, v bigint, ts timestamp", "k string, said string",
        keys=["k"], timeMode="eventTime", eventTime="ts", delay="5 seconds",
    )  # fmt: skip

    def batch(second: int) -> list[Any]:
        return tester.batch([{"k": "a", "n": 0, "do": "append", "v": 1, "ts": START + timedelta(seconds=second)}])

    assert len(batch(100)) == 1
    assert tester.watermark == START + timedelta(seconds=95)
    assert batch(95) == [], "a row at the watermark is late"
    assert len(batch(96)) == 1


def test_a_failed_batch_leaves_nothing() -> None:
    class Failing(Everything):
        def _put(self, v: Any) -> None:
            self._append(v)
            raise RuntimeError("no")

    tester = ProcessorTester(
        Failing(), "k string, n int, do string, v bigint", "k string, said string", keys=["k"],
        timeMode="processingTime",
    )  # fmt: skip
    with pytest.raises(UserFunctionError, match="function transformWithState raised RuntimeError: no"):
        tester.batch([{"k": "a", "n": 0, "do": "put", "v": 1}])
    assert tester.keys_kept == 0
    assert tester.batch([{"k": "a", "n": 0, "do": "delete", "v": 1}])[0]["said"] == "none [] [] []"


@pytest.mark.parametrize("schema", ["a", "a array<int>", "a struct<b int>", "a bigint b int", 3])
def test_a_schema_that_needs_a_session_says_so(schema: Any) -> None:
    with pytest.raises(AnalysisError, match="schema"):
        ProcessorTester(Everything(), schema, "k string", keys=["k"])
