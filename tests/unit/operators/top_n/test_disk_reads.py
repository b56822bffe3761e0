"""What an epoch of a top-n reads from disk: the record of a key once, whether it is replaced or stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from support.operators.rolling_top_n import rolling_top
from tailrace.env.files import shaped_reads
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.registry import ingest_of
from tailrace.operators.resources import Resources
from tailrace.operators.top_n.operator import TopN
from tailrace.operators.top_n.spec import Order
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import BIGINT, DataType, Field

NO_WATERMARK = -(2**63)
KEYS = 4000
EVERYONE = np.arange(KEYS)
TYPES = {"k": BIGINT, "price": BIGINT, "note": DataType("string")}
SPEC = rolling_top((Field("price", BIGINT), Field("note", DataType("string"))), Order("price", False), n=2, shards=4)


def frame(keys: np.ndarray, prices: np.ndarray) -> Frame:
    notes = [f"{key} for {price} ".ljust(200, ".") for key, price in zip(keys, prices, strict=True)]
    batch = pa.RecordBatch.from_pydict({"k": keys, "price": prices, "note": notes})
    return ingest_of(SPEC, NO_WATERMARK, False, TYPES).frame([batch])


def shown(batches: list[pa.RecordBatch]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        assert row["note"].startswith(f"{row['k']} for {row['price']} ")
        found.setdefault(row["k"], []).append(row["price"])
    return found


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shaped_reads.VARIABLE, shaped_reads.shaped(1e-6))


def filled(folder: Path, tuning: SpillTuning) -> TopN:
    """Two rows of each key, most of them on disk."""
    top = TopN(SPEC, range(4), Resources(memory_bytes=600_000, folder=str(folder), tuning=Tuning(spilled=tuning)))
    for epoch in (1, 2):
        top.apply(epoch, [frame(EVERYONE, np.full(KEYS, 10 * epoch))])
    top.forget(2)
    top._store.spilled.wait_for_writes()
    assert top.metrics()["spilledRecords"] > KEYS // 2
    return top


@pytest.mark.parametrize("prefetch", ["off", "async-io", "on"])
def test_a_record_is_read_once(prefetch: str, tmp_path: Path, slow_disk: None) -> None:
    top = filled(tmp_path, SpillTuning(prefetch=prefetch))
    spilled = top.metrics()["spilledRecords"]
    # Even keys get a better row, odd ones one that is none of their two best.
    top.apply(3, [frame(EVERYONE, np.where(EVERYONE % 2, 5, 99))])
    reported = top.metrics()
    assert reported["spilledHits"] + reported["spilledMisses"] == spilled, (
        "what is ranked need not be read again to be replaced"
    )
    assert shown(top.advance(3, NO_WATERMARK, NO_WATERMARK)) == {key: [99, 20] for key in range(0, KEYS, 2)}

    top.undo(3)
    top.apply(3, [frame(EVERYONE[:50], np.full(50, 15))])
    assert shown(top.advance(3, NO_WATERMARK, NO_WATERMARK)) == {key: [20, 15] for key in range(50)}
    top.close()


def test_records_that_stay_on_disk_are_cached(tmp_path: Path, slow_disk: None) -> None:
    """Reads are slow and no hint names them: a record that was looked at is not read again for the next row."""
    top = filled(tmp_path, SpillTuning(policy="lru", prefetch="off"))
    some, worse = EVERYONE[:: KEYS // 50], np.full(50, 5)
    top.apply(3, [frame(some, worse)])
    missed = top.metrics()["spilledMisses"]
    assert missed > 0
    top.apply(4, [frame(some, worse)])
    reported = top.metrics()
    assert (reported["spilledMisses"], reported["spilledHits"]) == (missed, missed)
    top.close()
