"""Stores of rows for operators: by pane, or by key and pane."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tailrace.operators.resources import Resources
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import RecordLayout

_RowStore = TypeVar("_RowStore", AppendAlignedStore, AppendUnalignedStore)


def pane_store(
    layout: RecordLayout, shards: Iterable[int], shard_count: int, resources: Resources
) -> AppendAlignedStore:
    """Rows by pane, which all keys leave at the same time. ``shard_count``: of the query."""
    return _store(AppendAlignedStore, layout, shards, shard_count, resources)


def list_store(
    layout: RecordLayout, shards: Iterable[int], shard_count: int, resources: Resources, undo_epochs: int = 2
) -> AppendUnalignedStore:
    """Rows in lists by key and pane, each read at a time of its own. ``shard_count``: of the query."""
    return _store(AppendUnalignedStore, layout, shards, shard_count, resources, undo_epochs)


def _store(
    kind: type[_RowStore],
    layout: RecordLayout,
    shards: Iterable[int],
    shard_count: int,
    resources: Resources,
    undo_epochs: int = 2,
) -> _RowStore:
    memory_bytes, folder = resources.room
    return kind(
        layout,
        shards,
        shard_count=shard_count,
        memory_bytes=memory_bytes,
        folder=folder,
        threads=resources.threads,
        undo_epochs=undo_epochs,
        tuning=resources.tuning,
    )
