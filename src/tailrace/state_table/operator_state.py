"""One operator's state at one epoch, as Arrow: shard by shard, in bounded memory.

What is read is what a restart would read (``commit.objects``), and what it amounts to is said by the code that compacts
checkpoints; the operator's kind then shows it in its user's words (``operators.state_view``).

Invariants
- A shard, or of a large one some of its keys, is in memory at a time, and nothing else but what is read ahead.
- Every byte is checked before it is used. Where damage is to be passed over, a shard is read whole or not at all.
- Reading again gives the same rows in the same order, as long as the epoch is kept.

Threads: an object may be used by any; each reading by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import NO_ENTRY, Manifest
from tailrace.commit.objects import READ_AHEAD_BYTES, ObjectRef, ShardSections, open_object, sections_by_shard
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log.reader import ObjectReader
from tailrace.operators.registry import compact_sections, state_view_of
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.state_view import StateView
from tailrace.state_table.keys import KeyFilter, Keys

SHARD = "_shard"
_READ_AHEAD_TOTAL_BYTES = 32 << 20


@dataclass(frozen=True)
class Damage:
    """An object that cannot be used, and the shards that were left out for it."""

    object: str
    shards: tuple[int, ...]
    error: str


@dataclass
class OpenedObjects:
    """Objects of an epoch, oldest first, from which shards are read. ``lost``: those that need an object left out."""

    objects: list[tuple[ObjectRef, ObjectReader]]
    lost: set[int] = field(default_factory=set)


@dataclass(eq=False, repr=False)
class OperatorState:
    """``names``: of columns whose names in the plan are not the user's own. ``records``: as they are kept.

    ``on_damage`` is called with what was left out; None: damage is an error.
    """

    _store: ObjectStore
    _manifest: Manifest
    spec: OperatorSpec
    _names: Mapping[str, str]
    _on_damage: Callable[[Damage], None] | None = None
    _records: bool = False

    @cached_property
    def _view(self) -> StateView[Any]:
        view = state_view_of(self.spec)
        assert view is not None, f"{self.spec.name} keeps no state"
        return view

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def epoch(self) -> int:
        return self._manifest.epoch

    @property
    def shards(self) -> int:
        """How many there are."""
        return self.spec.shards

    @property
    def bytes(self) -> int:
        """Of the objects of its epoch; other operators of the query have their part of them."""
        return sum(ref.bytes for ref in self._manifest.living)

    def source_of(self, shard: int) -> tuple[object, ...]:
        """All that a shard's rows are made of: where it is equal at two epochs, so are they."""
        refs = (ref for ref in self._manifest.living if ranges.contains(ref.shards, shard))
        return (self._manifest.horizons.get(self.name), *sorted(ref.name for ref in refs))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that a row's shard follows from."""
        shown = dict(zip(self._plain_schema.names, self._users_names(self._plain_schema.names), strict=True))
        return tuple(shown[key.name] for key in self.spec.keys)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that distinguish any two rows; none where rows may be equal."""
        return tuple(self.schema.names[: self._view.identity(self.spec, self._records)])

    @cached_property
    def schema(self) -> pa.Schema:
        empty = compact_sections(self.spec, [], 0, complete=True)
        return next(self._shown(0, empty, 0)).schema

    @cached_property
    def _plain_schema(self) -> pa.Schema:
        """With the names of the plan."""
        empty = compact_sections(self.spec, [], 0, complete=True)
        return next(self._view.rows(self.spec, empty, 0, records=self._records)).schema

    def as_records(self) -> OperatorState:
        """The same state as it is kept: values that aggregates are made of, panes in place of windows."""
        return OperatorState(self._store, self._manifest, self.spec, self._names, self._on_damage, True)

    def batches(self, keys: Keys | None = None, shards: Collection[int] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, or those of some keys, of some shards. Batches without rows are left out."""
        wanted = None if keys is None else KeyFilter(self.spec, keys, self.keys)
        chosen = range(self.shards) if shards is None else sorted(set(shards))
        if wanted is not None:
            chosen = [shard for shard in wanted.shards if shard in set(chosen)]
        for shard, batches, horizon in self.sections(chosen):
            if wanted is not None:
                batches = [wanted.of(batch) for batch in batches]
            for shown in self.shown(shard, batches, horizon):
                if len(shown):
                    yield shown

    def shown(self, shard: int, batches: list[pa.RecordBatch], horizon: int) -> Iterator[pa.RecordBatch]:
        """What sections, oldest first, of all or of some keys of a shard amount to."""
        if not batches:
            return
        yield from self._shown(shard, compact_sections(self.spec, batches, horizon, complete=True), horizon)

    def _shown(self, shard: int, section: pa.RecordBatch, horizon: int) -> Iterator[pa.RecordBatch]:
        for batch in self._view.rows(self.spec, section, horizon, records=self._records):
            names = self._users_names(batch.schema.names)
            own = SHARD
            while own in names:
                own = f"_{own}"
            arrays = [*batch.columns, pa.repeat(pa.scalar(shard, pa.int32()), len(batch))]
            yield pa.RecordBatch.from_arrays(arrays, names=[*names, own])

    def _users_names(self, names: list[str]) -> list[str]:
        """Those of two columns that the user calls alike stay different."""
        users = [self._names.get(name, name) for name in names]
        return [user if users.count(user) == 1 else name for name, user in zip(names, users, strict=True)]

    def table(self, keys: Keys | None = None, shards: Collection[int] | None = None) -> pa.Table:
        """All of it at once, in memory."""
        return pa.Table.from_batches(self.batches(keys, shards), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A new reading, for whoever takes Arrow streams: DuckDB, Polars, pandas."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    # Sections -------------------------------------------------------------------------------------------------------

    def sections(self, shards: Collection[int]) -> Iterator[ShardSections]:
        """The sections of these shards, a large shard in pieces. See ``commit.objects.read_sections``."""
        opened = self.opened(shards)
        for shard in shards:
            yield from self.sections_of(opened, shard)

    def opened(self, shards: Collection[int]) -> OpenedObjects:
        """The objects that these shards are read from."""
        refs = [ref for ref in self._manifest.living if any(ranges.contains(ref.shards, shard) for shard in shards)]
        refs.sort(key=lambda ref: (ref.first_epoch, ref.last_epoch))
        ahead = min(READ_AHEAD_BYTES, _READ_AHEAD_TOTAL_BYTES // max(1, len(refs))) if len(shards) > 1 else 0
        opened = OpenedObjects([])
        for ref in refs:
            try:
                opened.objects.append((ref, open_object(self._store, ref, ahead)))
            except CorruptionError as error:
                own = [shard for shard in shards if ranges.contains(ref.shards, shard)]
                self._damaged(error, ref.name, own)
                opened.lost.update(own)
        return opened

    def sections_of(
        self, opened: OpenedObjects, shard: int, beside: OpenedObjects | None = None
    ) -> Iterator[ShardSections]:
        """A shard's sections. ``beside``: another epoch's objects, whose shard is to be cut into the same pieces."""
        if shard in opened.lost:
            return
        objects, others = opened.objects, () if beside is None else beside.objects
        horizons = self._manifest.horizons
        try:
            yield from sections_by_shard(objects, self.name, [shard], horizons, pieces=True, beside=others)
        except CorruptionError as error:
            self._damaged(error, _object_in(str(error), self._manifest.objects), [shard])
            opened.lost.add(shard)

    def _damaged(self, error: CorruptionError, name: str, shards: list[int]) -> None:
        number = self._manifest.number
        try:
            if number != NO_ENTRY:  # a savepoint's
                CommitLog(self._store).entry(number)
        except FileNotFoundError:
            raise CheckpointError(
                f"Epoch {self.epoch} was cleaned at {self._store.uri} while operator {self.name} was read: the query "
                "runs, and keeps its newest epochs only. Read the newest one, or let the query keep more of them "
                "(option retain)."
            ) from error
        if self._on_damage is None:
            raise error
        self._on_damage(Damage(name, tuple(shards), str(error)))


def _object_in(message: str, refs: Collection[ObjectRef]) -> str:
    """Which object an error names."""
    return next((ref.name for ref in refs if ref.name in message), "")
