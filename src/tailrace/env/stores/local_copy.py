"""A far store with a copy of its objects on this machine's disk: written there first, read from there where possible.

An object is *saved* when its copy is synced, and in the store when its *upload* has returned. A copy under its name is
whole (``env.stores.local_store``), and an object never changes, so that it does not matter which of the two is read.
Copies only ever help: whoever finds one missing, or damaged and therefore dropped, reads the store.

Only what is written here has a copy, and only putting, ``upload`` and reading know of it; the log and listings are the
store's. Safe from any thread, and from several processes on one folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tailrace.env import clock
from tailrace.env.files import scratch
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore, StoredObject

PIECE_BYTES = 8 << 20
"""An upload holds about one piece of the copy in memory."""

_PREFIX = "copy-"
_FOLDER = "objects/"
_LOOKED = "looked"
_ABANDONED_S = 7 * 86_400.0


class CopiedStore:
    def __init__(self, store: ObjectStore, copies: LocalStore) -> None:
        self.copies = copies
        """What is put here alone is saved, and not uploaded."""
        self._store = store

    @property
    def uri(self) -> str:
        return self._store.uri

    def saved(self, name: str) -> bool:
        return self.copies.has(name)

    def upload(self, name: str) -> int:
        """Put the object that was saved; ``FileNotFoundError`` where there is no copy."""
        self.copies.get_range(name, 0, 1)  # else a store would be sent an empty object before the error
        return self._store.put(name, self._pieces(name))

    def drop(self, names: Iterable[str]) -> list[str]:
        """Keep no copy of these. Returns those that there was one of."""
        found = [name for name in names if self.saved(name)]
        self.copies.delete(found)
        return found

    def drop_others(self, kept: Iterable[str], sparing: str) -> None:
        """Keep copies of ``kept``, and of what has ``sparing`` in its name."""
        wanted = set(kept)
        found = [each.name for each in self.copies.list(_FOLDER)]
        self.copies.delete([name for name in found if name not in wanted and sparing not in name])

    def put(self, name: str, parts: Iterable[Any]) -> int:
        self.copies.put(name, parts)
        return self.upload(name)

    def put_if_absent(self, name: str, data: Any) -> bool:
        return self._store.put_if_absent(name, data)

    def get(self, name: str) -> bytes:
        try:
            return self.copies.get(name)
        except FileNotFoundError:
            return self._store.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        try:
            return self.copies.get_range(name, start, length)
        except FileNotFoundError:
            return self._store.get_range(name, start, length)

    def list(self, prefix: str) -> list[StoredObject]:
        return self._store.list(prefix)

    def delete(self, names: Sequence[str]) -> None:
        self._store.delete(names)
        self.drop(names)

    def sweep(self, may: Callable[[], object]) -> None:
        self._store.sweep(may)

    def _pieces(self, name: str) -> Iterator[bytes]:
        at = 0
        while piece := self.copies.get_range(name, at, PIECE_BYTES):
            yield piece
            at += len(piece)


def copies_of(store: ObjectStore, location: str | None, *, sweep: bool = True) -> LocalStore:
    """Where copies of this store's objects lie: below ``location``, or in this user's temporary folder.

    ``sweep``: what other queries have left there long ago is removed.

    Two queries never meet there, because two queries never share a state location.
    """
    name = _PREFIX + hashlib.sha256(store.uri.encode()).hexdigest()[:16]
    if location is not None:
        return LocalStore(Path(location).expanduser().absolute() / f"tailrace-{name}")
    base = scratch.private_base(0)
    if sweep:
        _remove_abandoned(base)
    return LocalStore(Path(base) / name)


def _remove_abandoned(base: str) -> None:
    """Copies of queries that ended without a word and were not started again for a week."""
    for name in scratch.folders(base):
        path = os.path.join(base, name)
        if name.startswith(_PREFIX) and _idle_s(path) > _ABANDONED_S:
            scratch.remove_tree(path)


def _idle_s(path: str) -> float:
    """For how long nothing has changed in a folder of copies, as far as looks at it have seen that.

    Each look writes down what it has seen, and counts the time since the look before by the monotonic clock: a wall
    clock that jumps would make the copies of all running queries a week old at once. After a start of the machine that
    clock begins anew, and what it shows is what has surely passed.
    """
    note, changed, now = os.path.join(path, _LOOKED), scratch.changed_at(os.path.join(path, _FOLDER)), clock.monotonic()
    try:
        before = json.loads(scratch.read_whole(note) or "{}")
    except ValueError:
        before = {}
    idle_s = 0.0
    if before.get("changed") == changed:
        looked = float(before["at"])
        idle_s = float(before["idle_s"]) + (now - looked if now >= looked else now)
    try:
        scratch.write_whole(note, json.dumps({"changed": changed, "at": now, "idle_s": idle_s}))
    except OSError:  # it has just been removed, or the disk is full: the next look counts
        return 0.0
    return idle_s
