"""Where a query's state lies, and which of its epochs are kept. Reads only.

A query that runs meanwhile goes on, and cleans: an entry that is listed may be gone when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.plan_file import read_plan
from tailrace.env.stores.location import open_store
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError

STATE_FOLDER = "tailrace"
"""Where state lies in a checkpoint that has no location of its own for it."""


def found_state(location: str, options: Mapping[str, str] | None = None) -> tuple[ObjectStore, dict[str, Any]]:
    """The store of a query's state and the query's plan. ``location``: of its checkpoint, or of its state."""
    for place in (location, f"{location.rstrip('/')}/{STATE_FOLDER}"):
        store = open_store(place, options)
        plan = read_plan(store)
        if plan is not None:
            return store, plan
    raise CheckpointError(
        f"There is no state of a query at {location}, nor in a folder {STATE_FOLDER!r} below it. Give the query's "
        "checkpointLocation, or its stateLocation where it has one."
    )


def kept_epochs(store: ObjectStore) -> list[Manifest]:
    """The newest durable epoch and those before it that are kept, newest first."""
    log = CommitLog(store)
    history = log.read()
    found: list[Manifest] = []
    manifest = history.newest
    if manifest is None and history.damaged:
        raise history.damaged[0].error
    while manifest is not None:
        found.append(manifest)
        try:
            entry = log.entry(manifest.parent)
        except FileNotFoundError:
            break
        manifest = entry if isinstance(entry, Manifest) else None
    return found
