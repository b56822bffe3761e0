"""Dropping duplicates on a state server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.dedup.ingest import DedupIngest
from tailrace.operators.dedup.operator import Deduplicate
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.operators.state_view import EXPIRES, Columns, StateView, timestamps
from tailrace.state.sections import compaction


def _compact(
    spec: DeduplicateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon)


def _warm_up() -> None:
    spec = DeduplicateSpec(
        name="warm-up",
        keys=(KEY,),
        columns=(KEY, TIME),
        time_column=TIME,
        watermarked=True,
        within=True,
        delay=Micros(10),
        handed_over=False,
        shards=1,
    )
    run_epochs(Deduplicate, spec, DedupIngest(spec, MIN_MICROS, combine=True))


def _rows(spec: DeduplicateSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    """The keys that are remembered, each with when it is forgotten."""
    timed, first = spec.memory in (Memory.WITHIN, Memory.SINCE), 2 + len(spec.keys)
    if timed:  # a key that is forgotten may share a pane with others
        section = section.filter(pc.greater_equal(section.column(first).cast(pa.int64()), horizon))
    shown = Columns()
    shown.fields(spec.keys, section.columns[2:])
    if spec.memory is Memory.WITHIN:
        shown.own(EXPIRES, timestamps(section.column(first)))
    elif spec.memory is Memory.SINCE:
        shown.expiry(spec.ttl, section.column(first))
    yield shown.batch()


VIEW = StateView(_rows, identity=lambda spec, records: len(spec.keys))
RUNTIME = OperatorRuntime(Deduplicate, _compact, VIEW, _warm_up)
