"""Run every kernel of operators that drop duplicates or keep the best rows once (see ``warm_up``)."""

from __future__ import annotations

import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.dedup.operator import Deduplicate
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.ingest.registry import ingest_of
from tailrace.operators.top_n.best_spec import Order
from tailrace.operators.top_n.operator import TopN
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.types import TIMESTAMP, DataType, Field

_KEY, _TIME = Field("k", DataType("string")), Field("ts", TIMESTAMP)
_DEDUPLICATE = DeduplicateSpec(
    name="warm-up",
    keys=(_KEY,),
    columns=(_KEY, _TIME),
    time_column=_TIME,
    watermarked=True,
    within=True,
    delay=Micros(10),
    handed_over=False,
    shards=1,
)
_TOP_N = TopNSpec(
    name="warm-up",
    keys=(_KEY,),
    rows=(_TIME,),
    shown=("ts",),
    order=(Order("ts", ascending=False),),
    n=2,
    rank="rank",
    window=None,
    window_name="",
    window_position=0,
    time_column=_TIME,
    emit_changed=True,
    watermarked=False,
    shards=1,
)


def warm_up_keyed() -> None:
    times = pa.array(range(9), pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({"k": pa.array([str(i % 4) for i in range(9)]), "ts": times})
    with temporary_folder() as folder:
        # Without any memory, so that records go to disk and are looked for there.
        for operator in (
            Deduplicate(_DEDUPLICATE, [0], threads=1, memory_bytes=0, folder=folder),
            TopN(_TOP_N, [0], threads=1, memory_bytes=0, folder=folder),
        ):
            spec = _TOP_N if isinstance(operator, TopN) else _DEDUPLICATE
            for epoch in range(4):
                frame = ingest_of(spec, MIN_MICROS, True, {}).frame([batch])
                operator.apply(epoch, [frame])
                operator.advance(epoch, MIN_MICROS, MIN_MICROS)
                section = operator.delta(epoch)
            operator.restore(0, section.values(), MIN_MICROS)
            operator.close()
