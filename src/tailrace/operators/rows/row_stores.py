"""Stores of rows for operators: by pane, or by key and pane."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.operators.resources import Resources
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import RecordLayout


def pane_store(
    layout: RecordLayout, shards: Iterable[int], shard_count: int, resources: Resources
) -> AppendAlignedStore:
    """Rows by pane, which all keys leave at the same time. ``shard_count``: of the query."""
    memory_bytes, folder = resources.room
    return AppendAlignedStore(
        layout,
        shards,
        shard_count=shard_count,
        memory_bytes=memory_bytes,
        folder=folder,
        threads=resources.threads,
        tuning=resources.tuning,
    )


def list_store(
    layout: RecordLayout, shards: Iterable[int], shard_count: int, resources: Resources, undo_epochs: int = 2
) -> AppendUnalignedStore:
    """Rows in lists by key and pane, each read at a time of its own. ``shard_count``: of the query."""
    memory_bytes, folder = resources.room
    return AppendUnalignedStore(
        layout,
        shards,
        shard_count=shard_count,
        memory_bytes=memory_bytes,
        folder=folder,
        threads=resources.threads,
        undo_epochs=undo_epochs,
        tuning=resources.tuning,
    )
