"""Incremental aggregates over sessions, on the read-modify-write store.

Invariants
- State is as in ``open_sessions``: a record of accumulators for each key and pane, the first two of them the smallest
  and the largest event time. A session's row is made by merging its records once more.
- Append: a session is emitted, and its records go, in the first epoch whose watermark reaches its end. Update: each
  session that the epoch changed is emitted, with the bounds it has now: one that grew or took in others has a new start
  or end, and nothing is said about the sessions it took in.
- What is emitted depends only on state and watermarks, never on timing: a replayed epoch emits the same rows.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.errors import SumOverflowError
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import OUTPUT_ROWS_MAX
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.session.open_sessions import OpenSessions, Sessions
from tailrace.operators.store_operator import HintedRecords
from tailrace.state.hash_table.table import Table
from tailrace.state.metrics import Metrics
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.tuning import DEFAULT_TUNING, Tuning


class SessionAggregate(HintedRecords):
    def __init__(
        self,
        spec: AggregateSpec,
        shards: Iterable[int],
        threads: int = 2,
        *,
        memory_bytes: int | None = None,
        folder: str | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        assert spec.session_gap is not None
        self.spec = spec
        self._gap = spec.session_gap
        self._layout = spec.layout()
        self._open = OpenSessions(
            self._layout,
            spec.session_gap,
            shards,
            threads,
            shard_count=spec.shards,
            memory_bytes=memory_bytes,
            folder=folder,
            tuning=tuning,
        )
        self._store = self._open.store

    @property
    def shards(self) -> frozenset[int]:
        return self._open.store.shards

    @property
    def horizon(self) -> int:
        """Records go one by one: no pane is known to be gone everywhere."""
        return self._open.store.horizon

    @property
    def rows(self) -> int:
        return self._open.store.rows

    @property
    def nbytes(self) -> int:
        return self._open.nbytes

    @property
    def disk_bytes(self) -> int:
        return self._open.disk_bytes

    def metrics(self) -> Metrics:
        return self._open.store.metrics()

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return sum(len(rows) for _, _, rows in self._open.store.changed())

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Merge the frames of the winning attempts, in partition order."""
        try:
            self._open.merge(epoch, [frame.parts() for frame in frames])
        except SumOverflowError as error:
            raise self._overflow(epoch, error) from error

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit the sessions that changed, or that end by ``watermark``; drop those that do."""
        self._check_newest(epoch)
        try:
            changed = self._open.changed() if self.spec.emit_changed else ()
            emitted = [batch for found in changed for batch in self._finish(found)]
            if self.spec.watermarked and watermark > MIN_MICROS:
                for ended in self._open.ended(watermark):
                    if not self.spec.emit_changed:
                        emitted += self._finish(ended)
                    self._open.remove(ended)
        except SumOverflowError as error:
            raise self._overflow(epoch, error) from error
        return emitted

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        return self._open.store.delta()

    def undo(self, epoch: int) -> None:
        self._open.undo(epoch)

    def forget(self, epoch: int) -> None:
        self._open.forget(epoch)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        self._open.restore(shard, batches, horizon)

    def drop_shard(self, shard: int) -> None:
        self._open.drop_shard(shard)

    def close(self) -> None:
        self._open.close()

    def _check_newest(self, epoch: int) -> None:
        newest = self._open.store.newest_epoch
        if newest != epoch:
            raise ValueError(f"epoch {epoch} is not the one last applied ({newest})")

    def _overflow(self, epoch: int, error: SumOverflowError) -> SumOverflowError:
        sums = ", ".join(out.name for out in self.spec.outputs if out.type.is_integer or out.type.is_decimal)
        return SumOverflowError(
            f"operator {self.spec.name}, epoch {epoch}: {error} (one of: {sums}). Nothing of the epoch was kept. "
            "Cast the column to decimal before the sum, or set spark.sql.ansi.enabled=false to let sums wrap."
        )

    # Emission --------------------------------------------------------------------------------------------------------

    def _finish(self, found: Iterable[Sessions]) -> list[pa.RecordBatch]:
        rows = concat_rows([self._merged(sessions) for sessions in found if len(sessions)], self._layout)
        ends = rows.words[:, self._layout.accumulators[1].word] + self._gap
        out = []
        # Cut before Arrow is made of it: the strings of one batch must stay below 2 GiB.
        for at in range(0, len(rows), OUTPUT_ROWS_MAX):
            to = at + OUTPUT_ROWS_MAX
            out.append(finish(Rows(rows.words[at:to], rows.heap), self.spec, self._layout, ends[at:to]))
        return out

    def _merged(self, sessions: Sessions) -> Rows:
        """One record for each session, its pane now the session's start: merged from the oldest pane on."""
        rows = sessions.rows[::-1].copy()
        partials = sessions.table.copy(rows, np.repeat(sessions.starts, sessions.sizes)[::-1].copy())
        if len(rows) == len(sessions):
            return partials
        merged = Table(self._layout, rows_expected=len(partials))
        merged.begin(len(partials))
        merged.merge(partials.words, partials.heap, 0, len(partials))
        return merged.copy(merged.changed_rows())
