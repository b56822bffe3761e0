"""Epochs of an operator that looks up the keys of its rows, on next to nothing: they compile its kernels.

Given no memory, the operator's records go to disk and are looked for there.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.contract import Ingest
from tailrace.operators.kind import MakeOperator
from tailrace.operators.resources import Resources
from tailrace.operators.spec import OperatorSpec
from tailrace.types import TIMESTAMP, DataType, Field

KEY, TIME = Field("k", DataType("string")), Field("ts", TIMESTAMP)


_Spec = TypeVar("_Spec", bound=OperatorSpec)


def run_epochs(make: MakeOperator[_Spec], spec: _Spec, ingest: Ingest) -> None:
    """Of an operator of one shard, over the columns ``KEY`` and ``TIME``."""
    times = pa.array(range(9), pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({KEY.name: pa.array([str(i % 4) for i in range(9)]), TIME.name: times})
    with temporary_folder() as folder:
        operator = make(spec, [0], Resources(0, folder, threads=1))
        for epoch in range(4):
            operator.apply(epoch, [ingest.frame([batch])])
            operator.advance(epoch, MIN_MICROS, MIN_MICROS)
            section = operator.delta(epoch)
        operator.restore(0, section.values(), MIN_MICROS)
        operator.close()
