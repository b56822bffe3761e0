"""Operators that get hints before rows come: spilled state is in memory by then, and answers are the same.

Hints are made as tasks make them, of the columns of rows, so that both sides must mean the same records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from tailrace.api.options import parse_options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import count_window, session_window, window
from tailrace.ids import MIN_MICROS
from tailrace.operators.base import Hinted, Operator
from tailrace.operators.ingest.hint_extractor import HintExtractor, hinted_keys
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.spec import OperatorSpec
from tailrace.plan.hints import hint_specs
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.state.cache.frequency_sketch import SketchSize
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.tuning import SpillTuning, Tuning

NEVER_HOT = SketchSize(threshold=254, interval=1 << 40)
KEYS, EPOCHS = 6_000, 9
FIRST = 4
"""The epoch that gets hints: by then some state is spilled."""
MEMORY_BYTES = 300_000
SECOND = 1_000_000
NAMES = ("ts", "auction", "price")
TYPES = {field.name: field.type for field in SCHEMA if field.name in NAMES}
bids = Stream("a DataFrame", tuple(field for field in SCHEMA if field.name in NAMES), RecordingRuntime())
timed = bids.withWatermark("ts", "1 hour")
KINDS: dict[str, Any] = {
    "rolling": bids.groupBy("auction").agg(tr.sum("price")),
    "tumbling": timed.groupBy(window("ts", "1 minute"), "auction").agg(tr.sum("price")),
    "sliding": timed.groupBy(window("ts", "1 minute", "20 seconds", "7 seconds"), "auction").agg(tr.sum("price")),
    "sessions": timed.groupBy(session_window("ts", "40 seconds"), "auction").agg(tr.sum("price")),
    "by count": bids.groupBy(count_window(5), "auction").agg(tr.sum("price")),
    "by count, overlapping": bids.groupBy(count_window(6, 2), "auction").agg(tr.sum("price")),
    "best": bids.groupBy("auction").topN(2, "price"),
    "best of windows": timed.groupBy(window("ts", "1 minute"), "auction").topN(2, "price"),
}


SURE = {"rolling", "tumbling", "by count", "best", "best of windows"}
"""Kinds whose rows touch one record each: to put together sessions, and windows of several panes, others are read."""


def _plan(kind: str) -> PhysicalPlan:
    relation = KINDS[kind].relation
    return plan_relation(relation, OutputMode.UPDATE, parse_options({"shards": "8"}))


def _rows(seed: int, epoch: int) -> pa.RecordBatch:
    """All keys in the first epochs, then some of them again, at times around those."""
    draw = random.Random(seed + epoch)
    keys = list(range(KEYS)) if epoch < 2 else draw.sample(range(KEYS), 80)
    times = [1000 * SECOND + draw.randrange(90 * SECOND) for _ in keys]
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("auction", pa.int64()), ("price", pa.int32())])
    return pa.RecordBatch.from_pydict({"ts": times, "auction": keys, "price": range(len(keys))}, schema)


@contextmanager
def _operator(spec: OperatorSpec, folder: Path, policy: str = "timestamp") -> Iterator[Operator]:
    tuning = Tuning(spilled=SpillTuning(policy=policy, hint_worth_s=0.0))
    folder.mkdir()
    made = operator_of(spec, range(spec.shards), memory_bytes=MEMORY_BYTES, folder=str(folder), tuning=tuning)
    try:
        yield made
    finally:
        made.close()


def _apply(operator: Operator, spec: OperatorSpec, rows: pa.RecordBatch, epoch: int) -> list[str]:
    frame = ingest_of(spec, MIN_MICROS, False, TYPES, epoch).frame([rows])
    operator.apply(epoch, [frame])
    emitted = operator.advance(epoch, MIN_MICROS, MIN_MICROS)
    said = sorted(repr(row) for batch in emitted for row in batch.to_pylist())
    operator.delta(epoch)
    if epoch:
        operator.forget(epoch - 1)
    for store in _stores(operator):  # what is still being written is in memory, and no hint fetches it
        store.spilled.wait_for_writes()
    return said


def _drain(operator: Operator) -> None:
    """Every hinted record is fetched that there is room for."""
    for store in _stores(operator):
        store.spilled.reads.drain()


def _stores(operator: Operator) -> list[ReadModifyWriteStore]:
    found = [
        store
        for part in vars(operator).values()
        for store in (part, *getattr(part, "__dict__", {}).values())
        if isinstance(store, ReadModifyWriteStore)
    ]
    assert found
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_hinted_records_is_there(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    plan = _plan(kind)
    spec, (hints,) = plan.stages[0].operator, hint_specs(plan)
    assert hints is not None
    extractor = HintExtractor(hints, NEVER_HOT)
    ranges = [(0, spec.shards)]
    found = 0.0
    with _operator(spec, tmp_path / "hinted") as operator, _operator(spec, tmp_path / "plain") as plain:
        assert isinstance(operator, Hinted)
        for epoch in range(EPOCHS):
            rows = _rows(seed, epoch)
            before = operator.metrics()
            if epoch >= FIRST:
                assert operator.wants_hints()
                (sent,) = extractor.hints(dict(zip(rows.schema.names, rows.columns, strict=True)), epoch, ranges)
                assert sent is not None
                operator.hint_keys(hinted_keys(sent.batch, sent.time, spec.keys), epoch)
                _drain(operator)
            assert _apply(operator, spec, rows, epoch) == _apply(plain, spec, rows, epoch)
            after = operator.metrics()
            if epoch >= FIRST:
                fetched = after["hintsFetched"] - before["hintsFetched"]
                misses = after["spilledMisses"] - before["spilledMisses"]
                found += fetched
                if kind in SURE:
                    assert misses == 0, "all that the rows touched was foretold"
                assert after["hintsWasted"] == 0
                assert after["hintsPending"] == 0, "nothing else was"
    assert found > 100, "some of it was cold"


@pytest.mark.parametrize("kind", KINDS)
def test_staged_rows_give_hints_too(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    spec = _plan(kind).stages[0].operator
    with _operator(spec, tmp_path / "hinted") as operator:
        assert isinstance(operator, Hinted)
        for epoch in range(EPOCHS):
            rows = _rows(seed, epoch)
            before = operator.metrics()
            if epoch >= FIRST:
                operator.hint_frame(ingest_of(spec, MIN_MICROS, False, TYPES, epoch).frame([rows]), epoch)
                _drain(operator)
            _apply(operator, spec, rows, epoch)
            after = operator.metrics()
            if epoch >= FIRST and kind in SURE:
                assert after["spilledMisses"] == before["spilledMisses"]
        assert after["hintsFetched"] > 100 and after["hintsWasted"] == after["hintsPending"] == 0
