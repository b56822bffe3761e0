"""A state that a test can check: records by (shard, key), written as sections and read back from a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import pyarrow as pa

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef, read_sections, write_object
from tailrace.env.stores.object_store import ObjectStore

Key = tuple[str, int]
"""A record's identity within its shard: key column and pane."""

State = dict[tuple[int, Key], int]
"""The values, by shard and key."""

RUN = "0123456789abcdef"
SCHEMA = pa.schema([("__hash", pa.int64()), ("__pane", pa.int64()), ("k0", pa.string()), ("a0", pa.int64())])


def section(records: Mapping[Key, int]) -> pa.RecordBatch:
    keys = sorted(records)
    return pa.record_batch(
        [
            pa.array([hash_of(key) for key, _ in keys], pa.int64()),
            pa.array([pane for _, pane in keys], pa.int64()),
            pa.array([key for key, _ in keys], pa.string()),
            pa.array([records[key] for key in keys], pa.int64()),
        ],
        schema=SCHEMA,
    )


def sections(changes: State, shards: Iterable[int]) -> dict[int, pa.RecordBatch]:
    """What a server of ``shards`` has to write for these changes."""
    mine = set(shards)
    by_shard: dict[int, dict[Key, int]] = {}
    for (shard, key), value in changes.items():
        if shard in mine:
            by_shard.setdefault(shard, {})[key] = value
    return {shard: section(records) for shard, records in by_shard.items()}


def write_delta(store: ObjectStore, epoch: int, changes: State, horizon: int = 0) -> ObjectRef:
    """What one server of eight shards stores for an epoch."""
    return write_object(
        store,
        run=RUN,
        try_=0,
        server=0,
        first_epoch=epoch,
        last_epoch=epoch,
        shards=[(0, 8)],
        sections={"op": sections(changes, range(8))},
        horizons={"op": horizon},
    )


def hash_of(key: str) -> int:
    return int.from_bytes(key.encode()[:7].ljust(7), "little")


def merged(batches: Iterable[pa.RecordBatch], horizon: int) -> dict[Key, int]:
    """The meaning of sections, oldest first: newest wins by key and pane; below the horizon is gone."""
    found: dict[Key, int] = {}
    for batch in batches:
        for row in batch.to_pylist():
            found[row["k0"], row["__pane"]] = row["a0"]
    return {key: value for key, value in found.items() if key[1] >= horizon}


def compact_newest(
    operator: str, batches: list[pa.RecordBatch], horizon: int, complete: bool = False
) -> pa.RecordBatch:
    return section(merged(batches, horizon))


def state_of(store: ObjectStore, manifest: Manifest, shards: int, servers: int, operator: str = "op") -> State:
    """All of a manifest's state, opened by some number of servers."""
    found: State = {}
    for owned in split(shards, servers):
        for shard, batches, horizon in read_sections(store, manifest.objects, operator, owned, manifest.horizons):
            for key, value in merged(batches, horizon).items():
                found[shard, key] = value
    return found


def objects_of(manifest: Manifest, shards: Iterable[int]) -> tuple[ObjectRef, ...]:
    """The objects that hold something of these shards."""
    wanted = ranges.of_shards(shards)
    return tuple(ref for ref in manifest.objects if ranges.common(ref.shards, wanted))


def split(shards: int, servers: int) -> list[range]:
    """Contiguous ranges of shards, one per server; some may be empty."""
    edges = [shards * each // servers for each in range(servers + 1)]
    return [range(start, end) for start, end in pairwise(edges)]
