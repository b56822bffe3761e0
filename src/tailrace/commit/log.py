"""The commit log: numbered entries, each put only if its number is free.

An entry is ``durable`` (an epoch's manifest) or ``fence`` (a run has started). Invariants:

- Who loses a put reads what won. A run that finds another run's fence at or after its own stops: ``FencedError``.
- The entry after a run's last one is always the next run's fence. Fences are never deleted, so a run that was fenced,
  however long it slept, can never find its next number free again: it can publish nothing.
- Durable entries may be deleted; a later start finds its way by the ``parent`` numbers inside them.

One thread at a time, but for ``check_newest`` where that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.commit.manifest import Manifest
from tailrace.env.clock import monotonic, now, timestamp_text
from tailrace.env.files.disk import host_name, process_id
from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError, FencedError
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry
from tailrace.log.typed_json import MalformedError, typed

DURABLE = "durable"
FENCE = "fence"


@dataclass(frozen=True)
class Fence:
    """Run ``run`` has started: entries of other runs after this one do not happen."""

    run: str
    number: int
    host: str
    pid: int
    at: str


@dataclass(frozen=True)
class Damaged:
    """An entry that fails its checksum. What it was is unknown."""

    number: int
    error: CorruptionError


Entry = Manifest | Fence | Damaged


@dataclass(frozen=True)
class History:
    """The newest part of the log: ``entries`` newest first, down to the newest durable one (included)."""

    numbers: tuple[int, ...]  # all that exist, ascending
    entries: tuple[Entry, ...]

    @property
    def newest(self) -> Manifest | None:
        """The newest durable manifest that can be read."""
        return next((each for each in self.entries if isinstance(each, Manifest)), None)

    def without(self, fence: int) -> History:
        """The same before the run with this fence has begun."""
        return History(
            tuple(number for number in self.numbers if number != fence),
            tuple(each for each in self.entries if each.number != fence),
        )

    @property
    def damaged(self) -> tuple[Damaged, ...]:
        """Entries newer than ``newest`` that cannot be read."""
        return tuple(each for each in self.entries if isinstance(each, Damaged))


class CommitLog:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._next: int | None = None  # where the next entry of our run goes, once we have fenced
        self._passed: list[Manifest] = []
        self._newest_at = 0.0  # by the monotonic clock: then this run was the newest one

    def fence(self, run: str) -> int:
        """Append the run's fence after everything that is there. Returns its number."""
        body = {"run": run, "host": host_name(), "pid": process_id(), "at": timestamp_text(now())}
        data = encode_entry(FENCE, body)
        number = -1
        # A listing may be behind: where entries above ours show up, ours would fence nothing.
        while (newest := max(self.numbers(), default=-1)) > number or number < 0:
            number = newest + 1
            while not self._put(number, data):
                number += 1
        self._next = number + 1
        return number

    def append_durable(self, run: str, manifest: Manifest) -> Manifest:
        """Append the manifest: the epoch is durable on return. Raises ``FencedError`` where a newer run has started."""
        if self._next is None:
            raise RuntimeError("a run appends only after its fence")
        data = encode_entry(DURABLE, manifest.to_json())
        began = monotonic()
        while not self._put(self._next, data):
            # Taken. By an earlier try of ours whose put was answered too late, or by the fence of a newer run.
            entry = self.entry(self._next)
            if isinstance(entry, Damaged):
                raise entry.error
            if entry.run != run or isinstance(entry, Fence):
                raise FencedError(self._fenced(run, entry))
            self._passed.append(entry)
            self._next += 1
        self._next += 1
        self._newest_at = began
        return replace(manifest, number=self._next - 1)

    def passed_over(self) -> list[Manifest]:
        """Entries of earlier tries of this run that were found since the last call: durable, and superseded."""
        passed, self._passed = self._passed, []
        return passed

    def check_newest(self, run: str, *, appending: bool = False) -> None:
        """Raise ``FencedError`` where another run has fenced since. ``appending``: another thread may, meanwhile."""
        if self._next is None:
            raise RuntimeError("a run is the newest only after its fence")
        # The entry after our last one is the next run's fence, for ever. Our last one may be the one that is just being
        # put: then the fence is a number further on, and the newer run may have deleted ours by now.
        first, began = self._next, monotonic()
        for number in (first, first + 1) if appending else (first,):
            try:
                entry = self.entry(number)
            except FileNotFoundError:
                continue
            if isinstance(entry, Damaged):
                raise entry.error
            if entry.run != run:
                raise FencedError(self._fenced(run, entry))
        self._newest_at = began

    def first_run(self) -> str:
        """Whose fence is the first entry, which is never deleted."""
        entry = self.entry(min(self.numbers()))
        if isinstance(entry, Damaged):
            raise entry.error
        return entry.run

    def newest_for_s(self) -> float:
        """So long ago this run was known to be the newest one."""
        return monotonic() - self._newest_at

    def read(self) -> History:
        """Entries from the newest down to the newest durable one."""
        numbers = self.numbers()
        entries: list[Entry] = []
        for number in reversed(numbers):
            try:
                entries.append(self.entry(number))
            except FileNotFoundError:  # deleted by a run that is being fenced; it was old
                continue
            if isinstance(entries[-1], Manifest):
                break
        return History(tuple(numbers), tuple(entries))

    def numbers(self) -> list[int]:
        found = (filenames.entry_number(each.name) for each in self._store.list(filenames.LOG_PREFIX))
        return sorted(number for number in found if number is not None)

    def entry(self, number: int) -> Entry:
        """The entry, ``Damaged`` where it cannot be trusted; ``FileNotFoundError`` where there is none."""
        name = filenames.entry_name(number)
        where = locate(self._store, name)
        try:
            kind, body = decode_entry(self._store.get(name), where)
        except CorruptionError as error:
            return Damaged(number, error)
        return _entry(kind, body, number, where)

    def manifest(self, number: int) -> Manifest:
        """The durable entry of that number; ``CorruptionError`` names the file where it is missing or damaged."""
        where = locate(self._store, filenames.entry_name(number))
        try:
            entry = self.entry(number)
        except FileNotFoundError:
            raise CorruptionError(damaged(where, "it is missing")) from None
        if isinstance(entry, Damaged):
            raise entry.error
        if isinstance(entry, Fence):
            raise CorruptionError(damaged(where, f"it is the fence of run {entry.run} and should be a durable epoch"))
        return entry

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete durable entries, oldest first, so that what is left never has a gap in its middle."""
        for number in sorted(numbers):  # one by one: stores may delete what they are given together in any order
            self._store.delete([filenames.entry_name(number)])

    def _put(self, number: int, data: bytes) -> bool:
        name = filenames.entry_name(number)
        if self._store.put_if_absent(name, data):
            return True
        # A put may be answered with "taken" because of its own first attempt, retried by the store's client. Entries of
        # two tries, or of two runs, are never equal, so equal bytes mean that it was ours.
        try:
            return self._store.get(name) == data
        except FileNotFoundError:
            raise CorruptionError(
                damaged(locate(self._store, name), "it existed a moment ago and is gone; something else deletes there")
            ) from None

    def _fenced(self, run: str, entry: Manifest | Fence) -> str:
        who = f"on {entry.host} (process {entry.pid}) at {entry.at}" if isinstance(entry, Fence) else "since then"
        return (
            f"Run {run} has been replaced: run {entry.run} took over the state at {self._store.uri} {who}. "
            "This query stops and publishes nothing more; only one query may use a state location."
        )


def _entry(kind: str, body: dict[str, Any], number: int, where: str) -> Entry:
    try:
        if kind == DURABLE:
            return Manifest.from_json(body, number)
        if kind == FENCE:
            return typed(Fence, {**body, "number": number})
    except MalformedError as error:
        return Damaged(number, CorruptionError(damaged(where, str(error))))
    raise CorruptionError(damaged(where, f"it is of unknown kind {kind!r}"))
