"""Kernels are compiled once: whatever data comes, no kernel meets a second kind of array."""

from __future__ import annotations

import pyarrow as pa

from tailrace.env.kernels.compile import KERNELS
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.operators.warm_up import warm_up
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, DataType, Field


def test_warming_up_compiles_every_kernel_once() -> None:
    warm_up()
    unknown = [kernel.__name__ for kernel in KERNELS if len(kernel.signatures) != 1]
    assert not unknown, f"not compiled exactly once: {unknown}"


def test_frames_off_the_wire_need_no_second_compilation() -> None:
    warm_up()
    before = {kernel.__name__: len(kernel.signatures) for kernel in KERNELS}
    spec = AggregateSpec(
        name="other",
        keys=(Field("k", BIGINT),),
        accumulators=(Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),),
        outputs=(Output("n", "count", (0,), BIGINT),),
        window=None,
        window_name="",
        window_position=0,
        time_column=None,
        emit_changed=True,
        watermarked=False,
        ansi=False,
        shards=1,
    )
    batch = pa.RecordBatch.from_pydict({"k": pa.array([7])})
    frame = PartialIngest(spec, 0, False, {"k": DataType("bigint")}).frame([batch])
    # An odd start makes every buffer unaligned, as those off a socket can be.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, frame.to_batch().schema) as writer:
        writer.write_batch(frame.to_batch())
    shifted = pa.py_buffer(b"x" + sink.getvalue().to_pybytes()).slice(1)
    received = Frame.from_batch(next(iter(pa.ipc.open_stream(shifted))), spec.layout().words)
    assert received.checksum() == frame.checksum()
    operator = WindowAggregate(spec, [0], Resources())
    operator.apply(0, [received])
    assert operator.advance(0, 0, 0)[0].to_pylist() == [{"k": 7, "n": 1}]
    operator.delta(0)
    assert {kernel.__name__: len(kernel.signatures) for kernel in KERNELS} == before
