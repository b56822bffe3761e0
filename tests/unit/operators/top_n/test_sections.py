"""The best rows of a key are more than one row of a section: where a large section is cut, they stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.operators.rolling_top_n import rolling_top
from tailrace.commit.compaction.compaction import compact_objects
from tailrace.commit.objects import ObjectRef, read_sections, write_object
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.log import format as fmt
from tailrace.operators import registry as catalogue
from tailrace.operators.registry import ingest_of
from tailrace.operators.resources import Resources
from tailrace.operators.top_n.operator import TopN
from tailrace.operators.top_n.spec import Order
from tailrace.types import BIGINT, Field

NO_WATERMARK = -(2**63)
RUN = "0123456789abcdef"
KEYS, N = 200, 7
SPEC = rolling_top((Field("v", BIGINT),), Order("v", True), N, shards=1)


def run(top: TopN, epoch: int, keys: np.ndarray, numbers: range) -> dict[int, pa.RecordBatch]:
    """So many rows more of each key, better than all before. The epoch's delta."""
    batch = pa.RecordBatch.from_pydict({"k": np.repeat(keys, len(numbers)), "v": np.tile(np.array(numbers), len(keys))})
    ingest = ingest_of(SPEC, NO_WATERMARK, False, {"k": BIGINT, "v": BIGINT})
    top.apply(epoch, [ingest.frame([batch])])
    top.advance(epoch, NO_WATERMARK, NO_WATERMARK)
    return top.delta(epoch)


def written(store: CloudStore, epoch: int, delta: dict[int, pa.RecordBatch]) -> ObjectRef:
    return write_object(
        store,
        run=RUN,
        try_=0,
        server=0,
        first_epoch=epoch,
        last_epoch=epoch,
        shards=[(0, 1)],
        sections={"t": delta},
        horizons={"t": NO_WATERMARK},
    )


def values(batches: list[pa.RecordBatch]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        found.setdefault(row["k0"], []).append(row["a0"])
    return found


def loaded(store: CloudStore, refs: list[ObjectRef], folder: Any) -> dict[int, list[int]]:
    """The rows of a server that begins with these objects, and gets one more of each key."""
    top = TopN(SPEC, [0], Resources(memory_bytes=1 << 28, folder=str(folder)))
    for shard, batches, horizon in read_sections(store, refs, "t", [0]):
        top.restore(shard, batches, horizon)
    found = values(list(run(top, 3, np.arange(KEYS), range(-1, 0)).values()))
    top.close()
    return found


@pytest.mark.parametrize("compacted", [False, True])
def test_rows_of_a_key_stay_together(compacted: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "SECTION_BATCH_BYTES", 1_000)
    store = CloudStore(f"memory://{short_id()}", {})
    top = TopN(SPEC, [0], Resources(memory_bytes=1 << 28, folder=str(tmp_path)))
    everyone = np.arange(KEYS)
    refs = [
        written(store, 1, run(top, 1, everyone, range(100, 100 + N))),
        written(store, 2, run(top, 2, everyone[::3], range(N))),
    ]
    top.close()
    if compacted:

        def compact(_: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
            return catalogue.compact_sections(SPEC, batches, horizon, complete=complete)

        refs = [compact_objects(store, refs, [0], compact, run=RUN, server=0).ref]
    wanted = {key: [-1, *(range(N - 1) if key % 3 == 0 else range(100, 99 + N))] for key in range(KEYS)}
    assert loaded(store, refs, tmp_path) == wanted
