"""``prefetch=async-io`` where rows keep their order: reads begin before the rows that need them are looked up."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.dedup import operator as dedup
from tailrace.operators.dedup.describe import deduplicate_lines
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.process import operator as process
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import BIGINT, TIMESTAMP, Field

KEYS = 20_000
K, TS = Field("k", BIGINT), Field("ts", TIMESTAMP)


def counted(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """How often each key has come: it has one row in each call."""
    assert rows["k"].equals(state["k"])
    count = pa.compute.add(pa.compute.fill_null(state["n"], 0), 1)
    made = pa.table({"k": state["k"], "n": count})
    return made, made


PROCESS = ProcessSpec(
    name="p",
    keys=(K,),
    rows=(TS,),
    state=(Field("n", BIGINT),),
    outputs=(K, Field("n", BIGINT)),
    time_column=TS,
    watermarked=False,
    shards=4,
    function=base64.b64encode(cloudpickle.dumps(counted)).decode(),
)
FOREVER = DeduplicateSpec("d", (K,), (K, TS), TS, False, False, Micros(0), False, 4)
KEY_TIME = DeduplicateSpec("d", (K, TS), (K, TS), TS, True, False, Micros(10**15), False, 4)
WITHIN = DeduplicateSpec("d", (K,), (K, TS), TS, True, True, Micros(10**15), False, 4)
SINCE = DeduplicateSpec("d", (K,), (K, TS), TS, False, False, Micros(0), False, 4, Ttl(Micros(1), Clock.PROCESSING))


def frame(spec: Any, keys: np.ndarray) -> Frame:
    batch = pa.RecordBatch.from_pydict({"k": keys, "ts": pa.array(np.full(len(keys), 7), pa.timestamp("us", "UTC"))})
    return ingest_of(spec, MIN_MICROS, False, {"k": BIGINT, "ts": TIMESTAMP}).frame([batch])


def epochs_of(spec: Any, folder: Path, prefetch: str) -> tuple[list[Any], dict[str, float]]:
    """The rows of an epoch whose keys are on disk, nearly all of them, in order; and what was counted meanwhile."""
    tuning = Tuning(spilled=SpillTuning(prefetch=prefetch))
    operator: Any = operator_of(spec, range(4), memory_bytes=300_000, folder=str(folder), tuning=tuning)
    emitted: list[Any] = []
    try:
        for epoch, keys in enumerate([np.arange(KEYS), np.arange(KEYS), np.arange(0, 2 * KEYS, 5)]):
            if epoch == 2:
                operator.forget(1)
                operator._store.spilled.wait_for_writes()
            before = dict(operator.metrics())
            operator.apply(epoch, [frame(spec, keys)])
            made = operator.advance(epoch, MIN_MICROS, MIN_MICROS)
            emitted = [row for batch in made for row in zip(*(column.to_pylist() for column in batch.columns))]
        after = operator.metrics()
        assert before["spilledRecords"] > KEYS // 2
        return emitted, {name: after[name] - before.get(name, 0) for name in after}
    finally:
        operator.close()


@pytest.mark.parametrize("spec", [PROCESS, FOREVER, KEY_TIME], ids=["process", "forever", "key_time"])
def test_reads_begin_before_rows_are_looked_up_and_their_order_stays(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CALL_ROWS_MAX", 1000)
    monkeypatch.setattr(dedup, "PIECE_ROWS", 1000)
    plain, reads = epochs_of(spec, tmp_path, "off")
    ahead, asked = epochs_of(spec, tmp_path, "async-io")
    assert ahead == plain and len(plain) == (2 * KEYS // 5 if spec is PROCESS else KEYS // 5)
    assert reads["spilledMisses"] > 1000
    assert asked["hintsReceived"] >= reads["spilledMisses"]
    assert asked["spilledHits"] + asked["spilledMisses"] == reads["spilledMisses"], "none is read twice"


@pytest.mark.parametrize(
    ("spec", "memory", "said"),
    [
        (FOREVER, Memory.FOREVER, lambda text: "prefetch" not in text),
        (KEY_TIME, Memory.KEY_TIME, lambda text: "prefetch=on has no effect here" in text),
        (WITHIN, Memory.WITHIN, lambda text: "prefetch has no effect here" in text),
        (SINCE, Memory.SINCE, lambda text: "prefetch has no effect here" in text),
    ],
)
def test_explain_says_where_nothing_can_be_read_ahead(
    spec: DeduplicateSpec, memory: Memory, said: Callable[[str], bool]
) -> None:
    assert spec.memory is memory
    assert said("\n".join(deduplicate_lines(spec)))
