"""Which operator runs a join, and how its sections fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators import join_sections
from tailrace.operators.join_rows import JoinRows
from tailrace.operators.join_spec import JoinKind, JoinSpec
from tailrace.operators.window_join import WindowJoin
from tailrace.state import append_aligned


def join_operator(
    spec: JoinSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, threads: int = 2
) -> JoinRows | WindowJoin:
    make = WindowJoin if spec.kind is JoinKind.WINDOW else JoinRows
    return make(spec, shards, memory_bytes=memory_bytes, folder=folder, threads=threads)


def fold_sections(spec: JoinSpec, batches: Sequence[pa.RecordBatch], horizon: int) -> pa.RecordBatch:
    """One section that stands for several, oldest first."""
    fold = append_aligned.fold_sections if spec.kind is JoinKind.WINDOW else join_sections.fold
    return fold(spec.kept_layout(), batches, horizon)
