"""What ``tailrace.state.open`` gives: a query's checkpoint, as it was at one of its kept epochs.

Threads: any.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.commit.manifest import EMPTY, Manifest
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError
from tailrace.operators.registry import description_of, spec_from_json, state_view_of
from tailrace.operators.spec import OperatorSpec
from tailrace.state_table.changes import StateChanges
from tailrace.state_table.location import found_savepoint, found_state, kept_epochs
from tailrace.state_table.operator_state import Damage, OperatorState

SHOWN_MAX = 8

METADATA = pa.schema(
    {
        "epoch": pa.int64(),
        "operator": pa.string(),
        "title": pa.string(),
        "keys": pa.list_(pa.string()),
        "columns": pa.list_(pa.string()),
        "shards": pa.int32(),
        "objects": pa.int32(),
        "bytes": pa.int64(),
    }
)
"""Of ``SavedState.metadata``. Objects and bytes are those of the epoch, which its operators share."""


class SavedState:
    """A checkpoint at one epoch. ``tailrace.state.open`` makes it; nothing is locked, and nothing is written."""

    def __init__(
        self,
        location: str,
        store: ObjectStore,
        plan: Mapping[str, Any],
        kept: Collection[Manifest],
        manifest: Manifest,
        damage: list[Damage] | None,
    ) -> None:
        self.location = location
        self.store = store
        self._plan = plan
        self._kept = tuple(kept)
        self.manifest = manifest
        self._damage = damage
        self._specs = {spec.name: spec for spec in map(_spec, plan["operators"])}

    @property
    def epoch(self) -> int:
        """Which one this is; -1 where no epoch is durable yet."""
        return self.manifest.epoch

    @property
    def epochs(self) -> tuple[int, ...]:
        """Those that are kept, ascending."""
        return tuple(sorted(manifest.epoch for manifest in self._kept))

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of the operators that keep state, in the order of the query."""
        return tuple(name for name, spec in self._specs.items() if state_view_of(spec) is not None)

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What was left out so far, where damage is passed over."""
        return tuple(self._damage or ())

    @property
    def names(self) -> Mapping[str, str]:
        """The user's names of columns that a plain query numbers."""
        names: dict[str, str] = self._plan.get("names", {})
        return names

    def spec(self, name: str) -> OperatorSpec:
        if name not in self.operators:
            known = ", ".join(self.operators) or "none that keeps state"
            raise CheckpointError(f"The query at {self.location} has no operator {name!r} with state: it has {known}.")
        return self._specs[name]

    def title(self, name: str) -> str:
        """What the operator is."""
        spec = self.spec(name)
        return description_of(spec).title(spec)

    def __getitem__(self, operator: str) -> OperatorState:
        """The state of an operator at this epoch."""
        told = None if self._damage is None else self._note
        return OperatorState(self.store, self.manifest, self.spec(operator), self.names, told)

    def __iter__(self) -> Iterator[str]:
        return iter(self.operators)

    def at(self, epoch: int) -> SavedState:
        """The same at another epoch that is kept."""
        found = [manifest for manifest in self._kept if manifest.epoch == epoch]
        if not found:
            raise CheckpointError(
                f"Epoch {epoch} is not kept at {self.location}: kept are {_listed(self.epochs)}. Older ones were "
                "cleaned (option retain says how many stay)."
            )
        return SavedState(self.location, self.store, self._plan, self._kept, found[0], self._damage)

    def changes(self, operator: str, since: int, *, records: bool = False) -> StateChanges:
        """What became of an operator's rows between another epoch that is kept and this one."""
        states = (state[operator] for state in (self.at(since), self))
        before, after = (state.as_records() if records else state for state in states)
        return StateChanges(before, after)

    def metadata(self) -> pa.Table:
        """What there is: a row for each operator and epoch that is kept."""
        rows = [
            {
                "epoch": state.epoch,
                "operator": name,
                "title": state.title(name),
                "keys": list(state[name].keys),
                "columns": [f"{field.name}: {field.type}" for field in state[name].schema],
                "shards": state[name].shards,
                "objects": len(state.manifest.living),
                "bytes": state[name].bytes,
            }
            for state in map(self.at, reversed(self.epochs))
            for name in self.operators
        ]
        return pa.Table.from_pylist(rows, METADATA)

    def _note(self, damage: Damage) -> None:
        """Of one object once."""
        assert self._damage is not None
        shards = set(damage.shards)
        for known in [each for each in self._damage if each.object == damage.object]:
            self._damage.remove(known)
            shards.update(known.shards)
        self._damage.append(replace(damage, shards=tuple(sorted(shards))))


def open_state(
    location: str,
    *,
    epoch: int | None = None,
    savepoint: str | None = None,
    skip_damaged: bool = False,
    options: Mapping[str, str] | None = None,
) -> SavedState:
    """What a query has kept, read without the query and without Spark. Changes nothing; the query may be running.

    ``location``: the query's ``checkpointLocation``, or its ``stateLocation``: a path, ``s3://``, ``gs://``, ``az://``
    or ``hdfs://``. ``epoch``: one that is kept; the newest durable one where it is not given. ``savepoint``: the name
    of one that lies there. ``skip_damaged``: shards that need a damaged object are left out, and listed in ``damage``.
    ``options``: of the object store.
    """
    if savepoint is not None:
        store, saved = found_savepoint(location, savepoint, options)
        state = SavedState(location, store, saved.plan, [saved.manifest], saved.manifest, [] if skip_damaged else None)
        return state if epoch is None else state.at(epoch)
    store, plan = found_state(location, options)
    kept = kept_epochs(store)
    state = SavedState(location, store, plan, kept, kept[0] if kept else EMPTY, [] if skip_damaged else None)
    return state if epoch is None else state.at(epoch)


def _spec(plain: Mapping[str, Any]) -> OperatorSpec:
    return spec_from_json(json.dumps(plain))


def _listed(epochs: Collection[int]) -> str:
    shown = [str(epoch) for epoch in epochs]
    if len(shown) > SHOWN_MAX:
        shown = [*shown[: SHOWN_MAX // 2], "...", *shown[-SHOWN_MAX // 2 :]]
    return ", ".join(shown) or "none"
