"""Puts a server's engine together from its configuration. The only place that knows the real operators.

Kept apart from the process because importing compiled kernels is slow, and from the engine because that one knows
operators only by what they do.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tailrace.env.disk import process_id
from tailrace.env.objects import open_store
from tailrace.operators.frame import Frame
from tailrace.operators.session_aggregate import SessionAggregate
from tailrace.operators.session_rows import SessionRows
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.warm_up import warm_up
from tailrace.operators.window_aggregate import WindowAggregate
from tailrace.operators.window_rows import WindowRows
from tailrace.server.checkpoint import StoreCheckpoint
from tailrace.server.engine import Engine
from tailrace.server.protocol import ProcessConfig
from tailrace.server.relay import Relay
from tailrace.server.seat import Operator
from tailrace.server.staging import Staging
from tailrace.state import append_aligned, append_unaligned, read_modify_write

__all__ = ["build_engine", "warm_up"]

STAGING_SHARE = 4
"""Staged rows may take one part in so many of the memory budget before they spill."""


def build_engine(config: ProcessConfig, warm_up_ms: float = 0.0) -> Engine:
    common = config.common
    specs = {spec.name: spec for spec in map(OperatorSpec.from_json, common.operators)}
    words = {name: spec.layout().words for name, spec in specs.items()}

    def frame_of(operator: str, batch: pa.RecordBatch) -> Frame:
        return Frame.from_batch(batch, words[operator])

    def fold_sections(operator: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
        spec = specs[operator]
        layout, sessions = spec.layout(), spec.session_gap is not None
        if not spec.keeps_rows:
            return read_modify_write.fold_sections(layout, batches, horizon, bury=sessions and complete)
        if sessions:
            return append_unaligned.fold_sections(layout, batches, horizon, complete=complete)
        return append_aligned.fold_sections(layout, batches, horizon)

    store = open_store(common.store_uri, common.store_options)
    spill_folder = common.scratch or config.directory
    state_bytes = (common.memory_bytes - common.memory_bytes // STAGING_SHARE) // max(1, len(specs))
    return Engine(
        run=common.run,
        server=config.server,
        pid=process_id(),
        operators={name: _maker(spec, state_bytes, spill_folder) for name, spec in specs.items()},
        staging=Staging(common.run, spill_folder, common.memory_bytes // STAGING_SHARE, frame_of),
        checkpoint=StoreCheckpoint(store, common.run, config.server, fold_sections),
        relay=Relay(specs, common.access),
        memory_bytes=common.memory_bytes,
        warm_up_ms=warm_up_ms,
    )


def _maker(spec: OperatorSpec, memory_bytes: int, folder: str) -> Callable[[], Operator]:
    if spec.session_gap is not None:
        if spec.keeps_rows:
            return lambda: SessionRows(spec, (), memory_bytes=memory_bytes, folder=folder)
        return lambda: SessionAggregate(spec, ())
    if spec.keeps_rows:
        return lambda: WindowRows(spec, (), memory_bytes=memory_bytes, folder=folder)
    return lambda: WindowAggregate(spec, (), memory_bytes=memory_bytes, folder=folder)
