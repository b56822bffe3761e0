"""Puts a server's engine together from its configuration.

Kept apart from the process because importing compiled kernels is slow, and from the engine because that one knows
operators only by what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from tailrace.env import memory as kept_memory
from tailrace.env import tasks
from tailrace.env.files.disk import process_id
from tailrace.env.files.scratch import remove_tree
from tailrace.env.stores.local_copy import CopiedStore, copies_of
from tailrace.env.stores.location import is_remote, open_store
from tailrace.env.transit_memory import TransitMemory
from tailrace.errors import StateServerError
from tailrace.operators.accesses.recorder import RecordedOperator, recording_metadata
from tailrace.operators.base import Operator
from tailrace.operators.ingest.frame import Frame, gathered
from tailrace.operators.registry import compact_sections, operator_with, spec_from_json
from tailrace.operators.resources import Resources
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.user_code.call_limit import set_limit
from tailrace.operators.warm_up import warm_up
from tailrace.server.checkpoint.checkpoint import StoreCheckpoint
from tailrace.server.epoch.access_log import AccessLog
from tailrace.server.epoch.background_throttle import BackgroundThrottle
from tailrace.server.epoch.engine import Engine
from tailrace.server.epoch.exchange import Exchange
from tailrace.server.epoch.staging import Staging
from tailrace.server.hints.queue import HintQueue
from tailrace.server.transport.server_config import ProcessConfig

__all__ = ["build_engine", "remove_copies", "warm_up"]

TRANSIT_SHARE = 4
"""Staged rows, outputs and deltas may together take one part in so many of the memory budget before they spill."""


def remove_copies(config: ProcessConfig) -> None:
    """Of the store's objects, in the temporary folder: in a place that the user has named they stay."""
    common = config.common
    store = open_store(common.store_uri, common.store_options)
    if common.copies and is_remote(store) and common.copies_location is None:
        remove_tree(str(copies_of(store, None).root))


def build_engine(config: ProcessConfig, warm_up_ms: float = 0.0) -> Engine:
    common = config.common
    set_limit(common.function_timeout_s)
    specs = {spec.name: spec for spec in map(spec_from_json, common.operators)}
    layouts = {name: spec.layout() for name, spec in specs.items()}

    def frame_of(operator: str, batch: pa.RecordBatch) -> Frame:
        if operator not in specs:
            raise StateServerError(f"no operator {operator[:64]!r} on this server")
        frame = Frame.from_batch(batch, layouts[operator].words)
        frame.check(layouts[operator], specs[operator].shards)
        return frame

    def gather(operator: str, frames: list[Any]) -> list[Any]:
        return gathered(frames, layouts[operator])

    def compact(operator: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
        return compact_sections(specs[operator], batches, horizon, complete=complete)

    def maker(spec: OperatorSpec) -> Callable[[], Operator]:
        def plain() -> Operator:
            return operator_with(spec, (), Resources(state_bytes, spill_folder, tuning, transit=transit))

        if common.record_folder is None:
            return plain
        log = AccessLog(common.record_folder, spec.name, config.server, {"run": common.run, **recording_metadata(spec)})
        return lambda: cast(Operator, RecordedOperator(plain(), spec, log))

    store = open_store(common.store_uri, common.store_options)
    if common.copies and is_remote(store):
        store = CopiedStore(store, copies_of(store, common.copies_location))
    spill_folder = common.scratch or config.directory
    hint_queue = HintQueue(tasks.reentrant_lock())
    spilled = replace(common.tuning.spilled, pause=hint_queue.catch_up)
    tuning = replace(common.tuning, spilled=spilled)
    throttle = BackgroundThrottle()
    upkeep = kept_memory.upkeep(common.memory_bytes)

    def between_pieces() -> None:
        """Of a compaction of the checkpoint."""
        upkeep()
        throttle.wait()

    transit = TransitMemory(common.memory_bytes // TRANSIT_SHARE)
    state_bytes = (common.memory_bytes - transit.bytes_max) // max(1, len(specs))
    return Engine(
        run=common.run,
        server=config.server,
        pid=process_id(),
        operators={name: maker(spec) for name, spec in specs.items()},
        staging=Staging(common.run, spill_folder, transit, frame_of, gather),
        checkpoint=StoreCheckpoint(store, common.run, config.server, compact, between_pieces, folder=spill_folder),
        exchange=Exchange(specs, common.access, common.record_folder is not None, spill_folder),
        memory_bytes=common.memory_bytes,
        warm_up_ms=warm_up_ms,
        throttle=throttle,
        hint_queue=hint_queue,
        upkeep=upkeep,
    )
