"""Run every kernel of aggregations once (see ``operators.warm_up``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs, Output
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import WindowAggregate, compact_sections
from tailrace.operators.ingest.frame import split
from tailrace.operators.resources import Resources
from tailrace.operators.rows.intervals import warm_up_intervals
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, Merge
from tailrace.state.read_modify_write.store import warm_up_spilled_records
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

_ROWS = 300
"""More than a fresh table holds, so that growing is compiled too."""


def _spec(emit_changed: bool) -> AggregateSpec:
    text, wide = DataType("string"), DataType("decimal(30,2)")
    return AggregateSpec(
        name="warm-up",
        keys=(Field("k", text),),
        accumulators=(
            Accumulator(Merge.ADD, AccumulatorInput.VALUE, "d", wide),
            Accumulator(Merge.ADD, AccumulatorInput.PRESENT, "d", BIGINT),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "s", text),
            *DESCRIPTORS["count_distinct"].accumulators(Inputs(("s",), (text,))),
        ),
        outputs=(
            Output("mean", "avg", (0, 1), DataType("decimal(34,6)")),
            Output("max", "max", (2,), text),
            Output("different", "count_distinct", (3,), BIGINT, ("s",)),
        ),
        window=TimeWindowSpec(Micros(4), Micros(2), Micros(0)),
        window_name="window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=emit_changed,
        watermarked=True,
        ansi=True,
        shards=2,
    )


def warm_up_aggregate() -> None:
    warm_up_intervals()
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array([str(i) for i in range(_ROWS)]),
            "s": pa.array(["z" * (i + 1) for i in range(_ROWS)]),
            "d": pa.array([1] * _ROWS, pa.int64()).cast(pa.decimal128(22, 2)),
            "ts": pa.array([i % 9 for i in range(_ROWS)], pa.timestamp("us", tz="UTC")),
        }
    )
    types = {"d": DataType("decimal(22,2)"), "s": DataType("string"), "k": DataType("string"), "ts": TIMESTAMP}
    for emit_changed in (True, False):
        spec = _spec(emit_changed)
        frame = PartialIngest(spec, MIN_MICROS, True, types).frame([batch])
        frame.checksum()
        frame.check(spec.layout(), spec.shards)
        warm_up_spilled_records(spec.layout())
        first, _ = split(frame, spec.layout(), [(0, 1), (1, 2)])
        with temporary_folder() as folder:
            # Without any memory, so that records go to disk and come back.
            operator = WindowAggregate(spec, [0], Resources(0, folder, threads=1))
            sections: list[pa.RecordBatch] = []
            for epoch in range(3):
                operator.apply(epoch, [first])
                operator.advance(epoch, 2 * epoch - 2, 2 * epoch)
                sections += operator.delta(epoch).values()
            operator.undo(2)
            operator.forget(1)
            operator.hint_frame(first, 2)
            operator.restore(0, [compact_sections(spec, sections, 0)], 0)
            operator.apply(3, [first])
            operator.advance(3, 4, 6)
            operator.close()
        table = Table(spec.layout())
        table.begin(first.n)
        table.merge(first.rows, first.heap, 0, first.n)
        _, word, *_ = (place.word for place in spec.layout().accumulators)
        table.locate(Rows(first.rows, first.heap))
        table.with_hashes(np.ascontiguousarray(first.rows[:, HASH]))
        table.sessions(table.changed_rows(), 2, word, word, ended=True)
        table.remove(table.changed_rows())
        table.compact()
