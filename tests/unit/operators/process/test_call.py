"""Calls of a user's function of rows and state: how large, how often, at what cost, and which answers are refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.call_counts import calls
from tailrace.errors import UserFunctionError
from tailrace.operators.process import operator as process
from tailrace.operators.process.ingest import ProcessIngest
from tailrace.operators.process.operator import Process
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.resources import Resources
from tailrace.operators.timers.ttl import Clock
from tailrace.operators.warm_up import warm_up
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

SHARDS = 4
NO_TIME = -(2**63)
STAMP = pa.timestamp("us", "UTC")
SEEN: list[tuple[pa.Table, pa.Table]] = []


def counted(rows: pa.Table, state: pa.Table, *due: pa.Array) -> tuple[pa.Table, pa.Table]:
    """How often each key came; its timer is a hundred after its newest row. One that is due is emitted and removed."""
    new = rows.append_column("t", rows["ts"].cast(pa.int64())).group_by("k").aggregate([("t", "max"), ("t", "count")])
    at = pc.index_in(state["k"], new["k"])
    n = pc.add(pc.coalesce(state["n"], 0), pc.coalesce(new["t_count"].take(at), 0))
    until = pc.coalesce(pc.add(new["t_max"].take(at), 100), state["until"].cast(pa.int64()))
    made = pa.table({"k": state["k"], "n": n, "until": until.cast(STAMP)})
    if not due:
        return made.select(["k", "n"]), made
    return made.filter(due[0]).select(["k", "n"]), made.filter(pc.invert(due[0]))


def spec_of(function: Callable[..., Any] = counted, **more: Any) -> ProcessSpec:
    given: dict[str, Any] = {
        "name": "p",
        "keys": (Field("k", BIGINT),),
        "rows": (Field("ts", TIMESTAMP), Field("s", DataType("string"))),
        "state": (Field("n", BIGINT), Field("until", TIMESTAMP)),
        "outputs": (Field("k", BIGINT), Field("n", BIGINT)),
        "time_column": Field("ts", TIMESTAMP),
        "watermarked": True,
        "shards": SHARDS,
        "function": base64.b64encode(cloudpickle.dumps(function)).decode(),
        **more,
    }
    return ProcessSpec(**given)


def made(spec: ProcessSpec, folder: Path, memory_bytes: int = 1 << 28) -> Process:
    return Process(spec, range(SHARDS), Resources(memory_bytes=memory_bytes, folder=str(folder), threads=1))


def epoch(operator: Process, number: int, keys: Any, time: int = 0, watermark: int = NO_TIME) -> list[dict[str, Any]]:
    keys = np.asarray(keys, np.int64)
    columns = {"k": pa.array(keys), "ts": pa.array(np.full(len(keys), time), STAMP), "s": pa.array(keys.astype(str))}
    frame = ProcessIngest(operator.spec, NO_TIME).frame([pa.RecordBatch.from_pydict(columns)])
    operator.apply(number, [frame])
    batches = operator.advance(number, NO_TIME, watermark)
    operator.delta(number)
    operator.forget(number)
    return [row for batch in batches for row in batch.to_pylist()]


# Sizes ---------------------------------------------------------------------------------------------------------------


def test_a_call_is_bounded_and_holds_whole_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    sets: list[set[int]] = []

    def function(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        sizes.append((len(rows), len(state)))
        sets.append(set(state["k"].to_pylist()))
        assert sets[-1] == set(rows["k"].to_pylist())
        return counted(rows, state)

    monkeypatch.setattr(process, "CALL_ROWS_MAX", 100)
    operator = made(spec_of(), tmp_path)
    operator._caller._function._function = function
    keys = np.concatenate([np.arange(300), np.arange(0, 300, 2), np.full(500, 7)])
    found = {row["k"]: row["n"] for row in epoch(operator, 0, keys)}
    assert found == {k: int((keys == k).sum()) for k in range(300)}
    alone = [size for size, keys_ in zip(sizes, sets, strict=True) if 7 in keys_]
    assert alone == [(501, 1)], "a key with more rows than a call may have comes alone, and whole"
    assert all(rows + state <= 100 for rows, state in sizes if rows < 500)
    assert 8 <= len(sizes) < 16 and sum(map(len, sets)) == 300
    operator.close()


def test_few_rows_of_many_shards_are_one_call(tmp_path: Path) -> None:
    operator = made(spec_of(), tmp_path)
    seen: list[int] = []
    operator._caller._function._function = lambda rows, state: (seen.append(len(state)), counted(rows, state))[1]
    epoch(operator, 0, range(1000))
    epoch(operator, 1, [])
    assert seen == [1000], "and no call where there is nothing to do"
    operator.close()


def test_ten_times_the_keys_need_no_more_calls_of_python(tmp_path: Path) -> None:
    """Of Python in the engine: the function itself is Arrow's."""
    warm_up()

    def of(rows: int) -> Any:
        spec = spec_of(timers="until", timers_clock=Clock.EVENT)
        operator = made(spec, tmp_path)
        for number in range(2):
            epoch(operator, number, np.arange(rows), 10 * number)
        found = calls(lambda: epoch(operator, 2, np.arange(rows // 2), 20, 115))
        operator.close()
        return found

    few, many = of(3_000), of(30_000)
    assert few == many, f"calls that grow with the rows: {many - few}"


# Costs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes", [1 << 19, 1 << 28])
def test_timers_cost_what_is_due(tmp_path: Path, memory_bytes: int) -> None:
    """A hundred keys are due in each of some epochs, out of 1,000 or of 20,000 that wait, in memory or on disk."""

    def work(waiting: int) -> tuple[int, int]:
        operator = made(spec_of(timers="until", timers_clock=Clock.EVENT), tmp_path, memory_bytes)
        for number in range(10):
            epoch(operator, number, np.arange(100 * number, 100 * number + 100), number)
        epoch(operator, 10, np.arange(1000, 1000 + waiting), 5000)
        if memory_bytes < 1 << 20 and waiting > 10_000:
            assert operator.disk_bytes > 1 << 19
        timers = operator._timers
        assert timers is not None
        moved, looked = timers.deadlines.moved, timers.looked
        for number in range(11, 16):
            assert len(epoch(operator, number, [], 0, 100 + number - 11)) == 100
        operator.close()
        return timers.deadlines.moved - moved, timers.looked - looked

    few, many = work(1000), work(20_000)
    assert few[1] == many[1] == 500
    assert many[0] <= 2 * few[0] + 1000


def test_timers_that_are_moved_again_and_again_do_not_pile_up(tmp_path: Path) -> None:
    """Forward and back: what is left over is dropped when it comes up."""
    operator = made(spec_of(timers="until", timers_clock=Clock.EVENT), tmp_path)
    timers = operator._timers
    assert timers is not None
    for number in range(200):
        # The timer is the row's time and a hundred: it wanders back and forth, and the watermark follows.
        epoch(operator, number, range(50), number * 10 + (number * 7919) % 90, number * 10 - 5)
    assert len(timers.deadlines) <= 50 * 25, "entries pile up"
    assert timers.looked <= 200 * 50
    operator.close()


# Answers that are refused --------------------------------------------------------------------------------------------


def table(**columns: Any) -> pa.Table:
    types = {"k": pa.int64(), "n": pa.int64(), "until": STAMP}
    return pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})


STATE = {"k": [1], "n": [1], "until": [None]}
OUTPUT = {"k": [1], "n": [1]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: 7, "gave a int, and must give a pair of tables"),
        (lambda: (table(**OUTPUT),), "gave a tuple, and must give a pair"),
        (lambda: (None, table(**STATE)), "its output is a NoneType, and must be a pyarrow.Table of k int64, n int64"),
        (lambda: (table(**OUTPUT), None), "its state is a NoneType"),
        (
            lambda: (table(k=[1]), table(**STATE)),
            "its output is a table of k int64, and was declared to be one of k int64, n",
        ),
        (lambda: (table(**OUTPUT), table(k=[1], n=[1])), "its state is a table of k int64, n int64, and was declared"),
        (lambda: (pa.table({"k": ["x"], "n": [1]}), table(**STATE)), "its output is a table of k string"),
        (lambda: (table(**OUTPUT), table(k=[5], n=[1], until=[None])), r"has keys that it was not given: \{'k': 5\}"),
        (
            lambda: (table(**OUTPUT), table(k=[1, 1], n=[1, 2], until=[None, None])),
            r"has keys more than once: \{'k': 1\}",
        ),
        (lambda: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_a_wrong_answer_names_operator_and_epoch_and_is_undone(tmp_path: Path, answer: Any, message: str) -> None:
    def function(rows: pa.Table, state: pa.Table) -> Any:
        return counted(rows, state) if 2 not in rows["k"].to_pylist() else answer()

    operator = made(spec_of(function), tmp_path)
    epoch(operator, 0, [1, 1, 3])
    with pytest.raises(UserFunctionError, match=rf"operator p, epoch 1: function function(.|\n)*{message}"):
        epoch(operator, 1, [1, 2])
    operator.undo(1)  # as the server does
    assert sorted(row["n"] for row in epoch(operator, 1, [1, 3])) == [2, 3]
    operator.close()


def test_a_function_may_answer_in_other_types_that_fit_and_with_more_columns(tmp_path: Path) -> None:
    def function(rows: pa.Table, state: pa.Table) -> Any:
        output, kept = counted(rows, state)
        small = kept.set_column(1, "n", kept["n"].cast(pa.int16())).append_column("more", kept["n"])
        return output.to_batches()[0], small.select(["until", "more", "n", "k"])

    operator = made(spec_of(function), tmp_path)
    epoch(operator, 0, [1, 2])
    assert epoch(operator, 1, [2]) == [{"k": 2, "n": 2}]
    operator.close()


def test_rows_older_than_the_watermark_are_refused_where_they_have_an_event_time(tmp_path: Path) -> None:
    def function(rows: pa.Table, state: pa.Table) -> Any:
        return rows.select(["k", "ts"]).set_column(
            1, "at", pc.subtract(rows["ts"], pa.scalar(50, pa.duration("us")))
        ), state

    spec = spec_of(function, outputs=(Field("k", BIGINT), Field("at", TIMESTAMP)), time_name="at")
    operator = made(spec, tmp_path)
    columns = {"k": pa.array([1]), "ts": pa.array([1000], STAMP), "s": pa.array(["x"])}
    frame = ProcessIngest(spec, 900).frame([pa.RecordBatch.from_pydict(columns)])
    operator.apply(0, [frame])
    assert len(operator.advance(0, 950, 1000)) == 1
    operator.apply(1, [frame])
    with pytest.raises(UserFunctionError, match=r"event time .*000950 in 'at', before the watermark .*000951"):
        operator.advance(1, 951, 1000)
    operator.undo(1)
    operator.close()
