"""Shard snapshots out of memory: they hold what all sections so far amount to.

The recovery suite takes snapshots of shards at random, for all kinds of queries; here: which stores
give them, and that each is complete.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from support.crash.recovery import frames_of, set_times
from support.crash.recovery_kinds import KINDS, SHARDS, script_of, spec_of
from tailrace.operators.base import Operator, ShardSnapshotSource
from tailrace.operators.registry import compact_sections, operator_of

EPOCHS = 6
SNAPSHOTTED = {
    "windows",
    "windows, changes",
    "windows, complete",
    "rolling",
    "rolling with ttl",
    "windows by count",
    "windows by count that overlap",
    "windows by count that overlap and go",
    "windows by count with ttl",
    "a user's windows",
    "duplicates",
    "duplicates within",
    "duplicates for a time",
    "processor with timers",
    "processor whose state expires",
}
"""Kinds whose sections are records of one store and nothing else."""


def _gives(operator: Operator) -> bool:
    return isinstance(operator, ShardSnapshotSource) and operator.in_memory


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_snapshot_is_what_all_sections_amount_to(tmp_path: Path, kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    spec = spec_of(kind)
    script = script_of(spec, seed, EPOCHS)
    operator = operator_of(spec, range(SHARDS), memory_bytes=10**9, folder=str(tmp_path))
    sections: dict[int, list[pa.RecordBatch]] = {shard: [] for shard in range(SHARDS)}
    for epoch in range(EPOCHS):
        set_times(operator, script, epoch)
        operator.apply(epoch, frames_of(spec, script, epoch))
        operator.advance(epoch, script.marks[epoch], script.marks[epoch + 1])
        for shard, batch in operator.delta(epoch).items():
            sections[shard].append(batch)
        if not isinstance(operator, ShardSnapshotSource) or not operator.in_memory:
            assert kind not in SNAPSHOTTED
            continue
        assert kind in SNAPSHOTTED
        chosen = sorted(random.Random(seed + epoch).sample(range(SHARDS), 5))
        whole = operator.whole(chosen)
        assert set(whole) <= set(chosen)
        for shard in chosen:
            compacted = (
                compact_sections(spec, sections[shard], operator.horizon, complete=True) if sections[shard] else None
            )
            assert _rows(whole, shard) == ([] if compacted is None else sorted(map(repr, compacted.to_pylist())))
    operator.close()


def _rows(sections: Mapping[int, pa.RecordBatch], shard: int) -> list[str]:
    return sorted(map(repr, sections[shard].to_pylist())) if shard in sections else []


def test_an_operator_with_records_on_disk_gives_none(tmp_path: Path) -> None:
    spec = spec_of("rolling")
    operator = operator_of(spec, range(SHARDS), memory_bytes=0, folder=str(tmp_path))
    script = script_of(spec, 5, 3)
    for epoch in range(3):
        operator.apply(epoch, frames_of(spec, script, epoch))
        operator.advance(epoch, script.marks[epoch], script.marks[epoch + 1])
        operator.forget(epoch)
    assert operator.disk_bytes and not _gives(operator)
    operator.close()
