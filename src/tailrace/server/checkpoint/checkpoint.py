"""A server's side of the checkpoint: saves its deltas, uploads them, reads its shards, compacts in the background.

Where the state store is far, objects are saved on this machine's disk first (``env.stores.local_copy``): an epoch is
*saved* before it is uploaded, compacting and loading read the copies, and a server that follows one which has died here
can upload what that one had saved. Where the store is a disk itself, what is saved is in the store.

Copies are kept of what the newest two durable manifests list, and of what is newer.

Threading: ``save``, ``read`` and ``compact`` are called by one thread at a time (the engine's commit lock), ``upload``
by any. ``due`` may be asked beside them. Compaction has a thread of its own, which touches only the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.compaction.compaction import Compactor, CompactSections
from tailrace.commit.compaction.shard_snapshot import DEFAULT_TUNING, ShardSnapshot, SnapshotRule, SnapshotScheduler
from tailrace.commit.manifest import Compaction, Manifest
from tailrace.commit.objects import ObjectRef, ShardSections, read_sections, write_object
from tailrace.env.stores.local_copy import CopiedStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CorruptionError
from tailrace.ids import Attempt
from tailrace.server.checkpoint.deltas import Sealed


class StoreCheckpoint:
    def __init__(
        self,
        store: ObjectStore,
        run: str,
        server: str,
        compact_sections: CompactSections,
        throttle: Callable[[], None] = lambda: None,
        shard_snapshot: SnapshotRule = DEFAULT_TUNING,
        folder: str | None = None,
    ) -> None:
        """``throttle``: see ``Compactor``. ``folder``: on the scratch disk, for parts of large shards."""
        self._store = store
        self._copied = store if isinstance(store, CopiedStore) else None
        self._run = run
        self._server = server
        self._compactor = Compactor(store, compact_sections, run=run, server=server, throttle=throttle, folder=folder)
        self._folder = folder
        self._shard_snapshots = SnapshotScheduler(shard_snapshot)
        self._guard = threading.Lock()
        self._uploaded: set[str] = set()
        self._listed: list[set[str]] = []  # objects of the newest two durable manifests

    @property
    def far(self) -> bool:
        """Whether what is saved still has to be uploaded."""
        return self._copied is not None

    def save(self, at: Attempt, sealed: Sealed) -> ObjectRef:
        """Write the delta, synced on return: on this machine where the store is far, else into the store."""
        return write_object(
            self._store if self._copied is None else self._copied.copies,
            run=self._run,
            try_=at.try_,
            server=self._server,
            first_epoch=at.epoch,
            last_epoch=at.epoch,
            shards=ranges.of_shards(sealed.shards),
            sections=sealed.sections,
            horizons=sealed.horizons,
        )

    def upload(self, names: Sequence[str]) -> list[str]:
        """Bring what was saved here into the store, whoever saved it. Returns the names that are there now.

        A name without a copy is left out: some other machine has it, or nobody any more.
        """
        if self._copied is None:
            return list(names)
        done: list[str] = []
        for name in names:
            with self._guard:
                known = name in self._uploaded
            if not known:
                try:
                    self._copied.upload(name)
                except FileNotFoundError:
                    continue
                with self._guard:
                    self._uploaded.add(name)
            done.append(name)
        return done

    def read(
        self, manifest: Manifest, operator: str, shards: Iterable[int], *, pieces: bool
    ) -> Iterator[ShardSections]:
        """Shard, its sections oldest first and its horizon: one shard of an operator after the other.

        ``pieces``: a large shard comes in several, each with some of its keys; else once.
        """
        refs, left = manifest.objects, sorted(set(shards))
        try:
            for found in self._read(manifest, operator, tuple(left), pieces):
                yield found
                # Of a shard that comes in pieces all is read and checked before the first of them.
                left = [shard for shard in left if shard > found[0]]
        except CorruptionError:
            if self._copied is None or not self._copied.drop(ref.name for ref in refs):
                raise
            yield from self._read(manifest, operator, left, pieces)

    def _read(self, manifest: Manifest, operator: str, shards: Sequence[int], pieces: bool) -> Iterator[ShardSections]:
        return read_sections(
            self._store, manifest.objects, operator, shards, manifest.horizons, pieces=pieces, folder=self._folder
        )

    def keep(self, manifest: Manifest) -> None:
        """A new assignment from its objects: copies that other runs have left of anything else can go."""
        if self._copied is not None:
            self._copied.drop_others((ref.name for ref in manifest.objects), sparing=f"-{self._run}-")

    def due(self, shards: Sequence[int], changed_bytes: int, state_bytes: int) -> tuple[int, ...] | None:
        """The shards to take a snapshot of with an epoch that changes so much; None where merging is cheaper."""
        return self._shard_snapshots.due(shards, changed_bytes, state_bytes)

    def compact(self, manifest: Manifest, shards: Iterable[int], snapshot: ShardSnapshot | None = None) -> None:
        """``manifest``: the newest durable one. ``snapshot``: what was taken with its epoch."""
        if self._copied is not None:
            names = {ref.name for ref in manifest.objects}
            if isinstance(self._compactor.failure, CorruptionError):
                self._copied.drop(names)  # the store's may be whole
                self._compactor.failure = None
            self._let_go(names)
        shards = tuple(shards)
        self._shard_snapshots.see(manifest.living, shards)
        self._compactor.submit(manifest, shards, snapshot)

    def _let_go(self, listed: set[str]) -> None:
        assert self._copied is not None
        before: set[str] = set().union(*self._listed)
        self._listed = [*self._listed[-1:], listed]
        over = before.difference(*self._listed)
        self._copied.drop(sorted(over))
        with self._guard:
            self._uploaded -= over

    def compactions(self) -> list[Compaction]:
        return self._compactor.finished()

    def compacting(self) -> tuple[float, float] | None:
        """When the newest compaction was made: given out once."""
        took, self._compactor.took = self._compactor.took, None
        return took

    def close(self) -> None:
        self._compactor.close()
