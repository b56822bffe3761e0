"""Run every kernel of windows by count that overlap once (see ``warm_up``)."""

from __future__ import annotations

import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest.rows import RowIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.count_window.sliding import CountPanes
from tailrace.operators.resources import Resources
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, DataType, Field

_TEXT = DataType("string")
_SPEC = AggregateSpec(
    name="warm-up",
    keys=(Field("k", _TEXT),),
    accumulators=(
        Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
        Accumulator(Merge.MAX, AccumulatorInput.VALUE, "s", _TEXT),
    ),
    outputs=(Output("max", "max", (1,), _TEXT),),
    window=CountWindowSpec(7, 2),
    window_name="window",
    window_position=0,
    time_column=None,
    emit_changed=False,
    watermarked=False,
    ansi=True,
    shards=1,
    rows=(Field("s", _TEXT),),
)


def warm_up_count() -> None:
    texts = pa.array([str(i) for i in range(30)])
    batch = pa.RecordBatch.from_pydict({"k": pa.array(["k"] * len(texts)), "s": texts})
    with temporary_folder() as folder:
        operator = CountPanes(_SPEC, [0], Resources(0, folder, threads=1))
        for epoch in range(2):
            operator.apply(epoch, [RowIngest(_SPEC, MIN_MICROS).frame([batch])])
            operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        operator.close()
