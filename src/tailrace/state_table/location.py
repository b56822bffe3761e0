"""Where a query's state lies, and which of its epochs are kept. Reads only.

A query that runs meanwhile goes on, and cleans: an entry that is listed may be gone when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.plan_file import read_plan
from tailrace.commit.savepoints.savepoint import Savepoint, kept_manifests, savepoint_files, savepoints
from tailrace.env.stores.location import open_store
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError

STATE_FOLDER = "tailrace"
"""Where state lies in a checkpoint that has no location of its own for it."""


def found_state(location: str, options: Mapping[str, str] | None = None) -> tuple[ObjectStore, dict[str, Any]]:
    """The store of a query's state and the query's plan. ``location``: of its checkpoint, or of its state."""
    for place in (location, f"{location.rstrip('/')}/{STATE_FOLDER}"):
        store = open_store(place, options)
        if read_plan(store) is None:
            continue
        newest = CommitLog(store).read().newest
        plan = read_plan(store, "" if newest is None else newest.plan)
        if plan is not None:
            return store, plan
    raise CheckpointError(
        f"There is no state of a query at {location}, nor in a folder {STATE_FOLDER!r} below it. Give the query's "
        "checkpointLocation, or its stateLocation where it has one."
    )


def savepoints_at(location: str, options: Mapping[str, str] | None = None) -> tuple[ObjectStore, list[Savepoint]]:
    """All savepoints, and the store that they lie in. ``location``: of a checkpoint, of its state, or of copies."""
    stores = [open_store(place, options) for place in (location, f"{location.rstrip('/')}/{STATE_FOLDER}")]
    store = next((each for each in stores if savepoint_files(each)), stores[0])
    return store, savepoints(store)


def found_savepoint(
    location: str, name: str, options: Mapping[str, str] | None = None
) -> tuple[ObjectStore, Savepoint]:
    """One of them."""
    store, found = savepoints_at(location, options)
    for each in found:
        if each.name == name:
            return store, each
    known = ", ".join(each.name for each in found) or "none"
    raise CheckpointError(f"There is no savepoint {name!r} at {location}: there is {known}.")


def kept_epochs(store: ObjectStore) -> list[Manifest]:
    """The newest durable epoch and those before it that are kept, newest first."""
    return kept_manifests(CommitLog(store))
