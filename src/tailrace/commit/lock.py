"""The query's lock: one query per state location, on this machine.

Two layers: a table in this process, so that a second query of the same session gets an error, and ``flock`` on a file,
so that a second process gets one. The system releases ``flock`` with its process, however that ends. For a local state
location the file is ``<location>/lock``; for an object store it lies in the machine's temporary folder, named by a hash
of the address. Machines cannot see each other's locks on an object store: there, the fence of the commit log stops the
older query.

Safe from any thread.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

from tailrace.env.clock import now, timestamp_text
from tailrace.env.files.disk import FileLock, host_name, process_id
from tailrace.env.files.scratch import private_base
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError, LockedError

_HELD: dict[str, dict[str, str | int]] = {}
_GUARD = threading.Lock()


class QueryLock:
    """Held from construction to ``release``."""

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._uri = store.uri
        self._held = False
        self._key = str(Path(self._uri).resolve()) if isinstance(store, LocalStore) else self._uri
        holder: dict[str, str | int] = {
            "run": run,
            "pid": process_id(),
            "host": host_name(),
            "since": timestamp_text(now()),
        }
        with _GUARD:
            if self._key in _HELD:
                raise LockedError(self._refusal(_HELD[self._key]))
            try:
                self._lock = FileLock(_lock_path(store), temporary=not isinstance(store, LocalStore))
                note = self._lock.acquire(json.dumps(holder).encode())
            except OSError as error:
                raise CheckpointError(
                    f"Cannot lock the state location {self._uri}: {error}. Make it writable for this user, or choose "
                    "another with the option stateLocation."
                ) from error
            if note is not None:
                raise LockedError(self._refusal(_parsed(note)))
            _HELD[self._key] = holder
            self._held = True

    def release(self) -> None:
        with _GUARD:
            if self._held:
                self._held = False
                del _HELD[self._key]
                self._lock.release()

    def _refusal(self, holder: dict[str, str | int]) -> str:
        if holder.get("pid") == process_id():
            who, what = (
                f"another query of this same process (run {holder['run']}, since {holder['since']})",
                "query.stop()",
            )
        elif "pid" in holder:
            who = f"process {holder['pid']} on {holder['host']} (run {holder['run']}, since {holder['since']})"
            what = f"its query.stop(), or end process {holder['pid']}"
        else:
            who, what = "another process", "its query.stop(), or end that process"
        return (
            f"The state location {self._uri} is in use by {who}. Stop that query first ({what}), "
            "or give this one a checkpoint location of its own."
        )


def _lock_path(store: ObjectStore) -> Path:
    if isinstance(store, LocalStore):
        store.make_root()
        return store.root / "lock"
    digest = hashlib.sha256(store.uri.encode()).hexdigest()[:32]
    return Path(private_base(0)) / f"{digest}.lock"


def _parsed(note: bytes) -> dict[str, str | int]:
    try:
        holder = json.loads(note)
    except ValueError:  # the holder has the lock and has not yet written its note
        return {}
    return holder if isinstance(holder, dict) else {}
