"""From one operator to the next: a server ingests what an operator puts out and stages it with the owners of its keys.

The same staging, receipts and barrier as for rows from Spark: the sender is the server, by its number in the placement,
and the driver names what it sent as committed attempts to every receiver. A repeated exchange of the same try is
refused by staging, so a failed one costs the epoch its try.

Rows go in an order that depends on their keys alone (those of a user's function as it gave them), and servers own
ascending shards: so doubles are added in the same order whatever the placement, and whatever lies in memory or on disk.

Threads: one exchange at a time per target, as the driver asks for it; nothing here holds the engine's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tailrace.operators.exchange import handed_over, in_fixed_order, output_types
from tailrace.operators.ingest.frame import split
from tailrace.operators.registry import ingest_of
from tailrace.operators.spec import OperatorSpec
from tailrace.server.transport.client import connect
from tailrace.server.transport.epoch_messages import Request
from tailrace.server.transport.server_config import Access
from tailrace.server.transport.stage_messages import Exchanged, StageKey


class Exchange:
    def __init__(
        self, specs: Mapping[str, OperatorSpec], access: Access, recorded: bool = False, folder: str | None = None
    ) -> None:
        """``recorded``: receivers record accesses, and want to know in which order rows came. ``folder``: for rows that
        wait until others are in their order."""
        self._specs = specs
        self._folder = folder
        self._recorded = recorded
        self._access = access

    def send(self, batches: Sequence[pa.RecordBatch], request: Request) -> Exchanged:
        """Stage the output of ``request.operator`` for ``request.target`` on the servers of ``request.routes``."""
        source, target = self._specs[request.operator], self._specs[request.target]
        # Not combined: partials of a part of the rows would depend on which server holds which shards.
        ingest = ingest_of(target, request.late_before, False, output_types(source), request.epoch)
        ingest.keep_arrivals = self._recorded
        key = StageKey(self._access.run, target.name, request.epoch, request.try_, request.number, request.number)
        writers = [connect(address, self._access).stage(key) for address, _, _ in request.routes]
        ranges = [(low, high) for _, low, high in request.routes]
        layout = target.layout()
        try:
            for batch in in_fixed_order(batches, source, self._folder):
                frames = split(ingest.frame([handed_over(batch, target)]), layout, ranges)
                for writer, frame in zip(writers, frames, strict=True):
                    if frame.n:
                        writer.write(frame)
            staged = tuple(writer.finish() for writer in writers)
        finally:
            for writer in writers:
                writer.abort()
        counts = ingest.counts
        return Exchanged(request.number, counts.rows, counts.late_rows, staged)
