"""Python work depends on the number of batches, columns and shards, never on rows or keys: calls are counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.call_counts import calls
from tailrace.ids import Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.resources import Resources
from tailrace.operators.session.aggregate import SessionAggregate
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.operators.warm_up import warm_up
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.custom_window import CustomWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field, array

STRING = DataType("string")
WINDOWS = {
    "none": None,
    "tumbling": TimeWindowSpec(Micros(100), Micros(100), Micros(0)),
    "sliding": TimeWindowSpec(Micros(100), Micros(50), Micros(0)),
}


def one_epoch(rows: int, window: TimeWindowSpec | SessionWindowSpec | None, emit_changed: bool) -> Counter[str]:
    """The calls of the second epoch over the same keys: tables have their size already."""
    spec = AggregateSpec(
        name="calls",
        keys=(Field("k", STRING), Field("j", BIGINT)),
        accumulators=(
            Accumulator(Merge.MIN, AccumulatorInput.VALUE, "ts", TIMESTAMP),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "ts", TIMESTAMP),
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "k", STRING),
            Accumulator(Merge.LAST, AccumulatorInput.TIMED, "j", BIGINT),
        ),
        outputs=(Output("n", "count", (2,), BIGINT), Output("m", "max", (3,), STRING)),
        window=window,
        window_name="window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=emit_changed,
        watermarked=window is not None,
        ansi=True,
        shards=8,
    )
    types = {"k": STRING, "j": BIGINT, "ts": TIMESTAMP}
    number = np.arange(rows)
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array(number.astype(str)),
            "j": pa.array(number),
            "ts": pa.array(number % 400, pa.timestamp("us", tz="UTC")),
        }
    )
    made = SessionAggregate if isinstance(window, SessionWindowSpec) else WindowAggregate
    operator = made(spec, range(8), Resources(threads=1))

    def epoch(at: int) -> None:
        ingest = PartialIngest(spec, -(2**63), True, types)
        operator.apply(at, [ingest.frame([batch])])
        operator.advance(at, 0, 0 if at < 2 else 300)
        operator.delta(at)

    epoch(0)
    epoch(1)
    return calls(lambda: epoch(2))


@pytest.mark.parametrize("emit_changed", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_ten_times_the_rows_need_no_more_calls(window: str, emit_changed: bool) -> None:
    if WINDOWS[window] is None and not emit_changed:
        emit_changed = True
    warm_up()
    few, many = (one_epoch(rows, WINDOWS[window], emit_changed) for rows in (3_000, 30_000))
    assert few == many, f"calls that grow with the rows: {many - few}"


@pytest.mark.parametrize("emit_changed", [True, False])
def test_ten_times_the_sessions_need_no_more_calls(emit_changed: bool) -> None:
    """A third of the sessions ends in the epoch that is counted, and their records are removed."""
    warm_up()
    few, many = (one_epoch(rows, SessionWindowSpec(Micros(200)), emit_changed) for rows in (3_000, 30_000))
    assert few == many, f"calls that grow with the rows: {many - few}"


K, J, TS = Field("k", STRING), Field("j", BIGINT), Field("ts", TIMESTAMP)
TYPES = {"k": STRING, "j": BIGINT, "ts": TIMESTAMP}


def deduplicate(keys: tuple[Field, ...], within: bool) -> DeduplicateSpec:
    return DeduplicateSpec(
        name="calls",
        keys=keys,
        columns=(K, J, TS),
        time_column=TS,
        watermarked=True,
        within=within,
        delay=Micros(100),
        handed_over=False,
        shards=8,
    )


def top_n(window: TimeWindowSpec | None, emit_changed: bool) -> TopNSpec:
    return TopNSpec(
        name="calls",
        keys=(K,),
        rows=(J, TS),
        shown=("j",),
        order=(Order("j", ascending=False),),
        n=3,
        rank="rank",
        window=window,
        window_name="window",
        window_position=0,
        time_column=TS,
        emit_changed=emit_changed,
        watermarked=window is not None,
        shards=8,
    )


def in_hundreds(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    starts = (times.astype(np.int64) // 100 * 100).astype("datetime64[us]")
    return starts, starts + np.timedelta64(100, "us")


def aggregate(function: str, emit_changed: bool = False, **given: Any) -> AggregateSpec:
    outputs = (Output("n", "count", (0,), BIGINT), Output("j", "last", (1,), BIGINT))
    if function != "last":
        outputs = (outputs[0], Output("j", function, (), array(BIGINT), ("j",)))
    settings: dict[str, Any] = {
        "name": "calls",
        "keys": (K,),
        "accumulators": (
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            Accumulator(Merge.LAST, AccumulatorInput.TIMED, "j", BIGINT),
        ),
        "outputs": outputs,
        "window": None,
        "window_name": "window",
        "window_position": 0,
        "time_column": TS,
        "emit_changed": emit_changed,
        "watermarked": isinstance(given.get("window"), CustomWindowSpec),
        "ansi": True,
        "shards": 8,
        "rows": (J, TS),
    }
    return AggregateSpec(**(settings | given))


CUSTOM = CustomWindowSpec(packed(in_hundreds))


def one_epoch_of(spec: OperatorSpec, rows: int, folder: Path) -> Counter[str]:
    """The calls of a third epoch: a third of its keys is new, others come twice, and some of the state goes."""
    number = np.arange(rows)
    operator = operator_of(spec, range(8), memory_bytes=1 << 30, folder=str(folder))

    def epoch(at: int) -> None:
        times = pa.array(number % 90 + 100 * at, pa.timestamp("us", tz="UTC"))
        keys = (number // 2 * 2 + at % 2 * rows // 3).astype(str)
        batch = pa.RecordBatch.from_pydict({"k": pa.array(keys), "j": pa.array(number + at), "ts": times})
        ingest = ingest_of(spec, 100 * at - 101, True, TYPES)
        operator.apply(at, [ingest.frame([batch])])
        operator.advance(at, 100 * at - 101, 100 * at - 1)
        operator.delta(at)

    for at in range(3):
        epoch(at)
    counted = calls(lambda: epoch(3))
    operator.close()
    return counted


@pytest.mark.parametrize(
    "spec",
    [
        deduplicate((K,), within=True),
        deduplicate((K, TS), within=False),
        deduplicate((K,), within=False),
        top_n(None, emit_changed=True),
        top_n(WINDOWS["tumbling"], emit_changed=False),
        top_n(WINDOWS["sliding"], emit_changed=True),
        aggregate("last", window=CUSTOM),
        aggregate("collect_list", window=CUSTOM),
        aggregate("last", window=CountWindowSpec(2)),
        aggregate("last", window=CountWindowSpec(5, 2)),
        aggregate("collect_list", window=CountWindowSpec(2)),
        aggregate("collect_list", emit_changed=True),
        aggregate("collect_list", window=WINDOWS["sliding"], watermarked=True, store="AUR"),
        aggregate("collect_list", window=WINDOWS["sliding"], watermarked=True, store="AUR", emit_changed=True),
    ],
    ids=[
        *("within", "time among keys", "for ever", "all time", "tumbling", "sliding"),
        *("custom records", "custom lists", "counted records", "counted panes", "counted lists", "lists for ever"),
        *("sliding lists", "sliding lists, update"),
    ],
)
def test_ten_times_the_keys_need_hardly_more_calls(spec: OperatorSpec, tmp_path: Path) -> None:
    """Tables grow by doubling, and clear away strings, some in the epoch that is counted: a few calls a shard."""
    warm_up()
    few, many = (one_epoch_of(spec, rows, tmp_path) for rows in (1_200, 12_000))
    assert (many - few).total() < 40 * 8, f"calls that grow with the rows: {many - few}"
