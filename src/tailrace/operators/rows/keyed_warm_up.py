"""Epochs of an operator that looks up the keys of its rows, on next to nothing: they compile its kernels.

Given no memory, the operator's records go to disk and are looked for there.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.base import Operator
from tailrace.operators.ingest.contract import Ingest
from tailrace.types import TIMESTAMP, DataType, Field

KEY, TIME = Field("k", DataType("string")), Field("ts", TIMESTAMP)


def run_epochs(operator: Operator, ingest: Ingest) -> None:
    times = pa.array(range(9), pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({KEY.name: pa.array([str(i % 4) for i in range(9)]), TIME.name: times})
    for epoch in range(4):
        operator.apply(epoch, [ingest.frame([batch])])
        operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        section = operator.delta(epoch)
    operator.restore(0, section.values(), MIN_MICROS)
    operator.close()
