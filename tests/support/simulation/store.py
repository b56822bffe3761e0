"""An object store far away: requests are slow, get lost before or after they have worked, are sent twice, come late.

What a request does happens at one moment. That may be long after its sender has died: a request that is on its way
arrives all the same, and one that was sent again may arrive a second time, much later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, TypeVar

from support.simulation.disk import SimDisk
from support.simulation.scheduler import Killed, Scheduler
from tailrace.env.stores.object_store import StoredObject
from tailrace.errors import CheckpointError

_Answer = TypeVar("_Answer")
LATE_S = 40.0


class SimStore:
    """``odd``: how often a request does not just work. ``errors``: how often such a one fails."""

    uri = "sim://store"

    def __init__(self, scheduler: Scheduler, odd: float, errors: float, changed: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._odd = odd
        self._errors = errors
        self._changed = changed
        self.objects: MutableMapping[str, bytes] = {}
        self.down_until = 0.0
        self.delayed: set[str] = set()  # prefixes of names: the next request for such a one is slow

    def put(self, name: str, parts: Iterable[Any]) -> int:
        data = b"".join(bytes(part) for part in parts)

        def put() -> int:
            self.objects[name] = data
            self._changed(name)
            return len(data)

        return self._ask("put", name, put)

    def put_if_absent(self, name: str, data: Any) -> bool:
        def put() -> bool:
            if name in self.objects:
                return False
            self.objects[name] = bytes(data)
            self._changed(name)
            return True

        return self._ask("put if absent", name, put)

    def get(self, name: str) -> bytes:
        return self._ask("get", name, lambda: self._get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._ask("get", name, lambda: self._get(name)[start : start + length])

    def list(self, prefix: str) -> list[StoredObject]:
        def found() -> list[StoredObject]:
            return [
                StoredObject(name, len(self.objects[name])) for name in sorted(self.objects) if name.startswith(prefix)
            ]

        return self._ask("list", prefix, found)

    def delete(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            if self.objects.pop(name, None) is not None:
                self._changed(name)

        for name in names:
            self._ask("delete", name, lambda name=name: delete(name))

    def sweep(self, may: Callable[[], object]) -> None:
        may()

    def _get(self, name: str) -> bytes:
        try:
            return self.objects[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def _ask(self, what: str, name: str, work: Callable[[], _Answer]) -> _Answer:
        scheduler, draw = self._scheduler, self._scheduler.random
        changes = what not in ("get", "list")
        scheduler.point(f"{what} {name}")
        if late := [prefix for prefix in self.delayed if name.startswith(prefix)]:
            self.delayed.remove(late[0])
            scheduler.sleep(5.0)
        if scheduler.now < self.down_until:
            scheduler.sleep(draw.random())
            raise CheckpointError(f"injected: {what} {name} was not answered")
        if draw.random() >= self._odd:
            return work()
        if draw.random() < self._errors:
            if draw.random() < 0.5:
                raise CheckpointError(f"injected: {what} {name} has not worked")
            work()
            raise CheckpointError(f"injected: {what} {name} has worked")
        match draw.randrange(4):
            case 0:  # slow
                try:
                    scheduler.sleep(draw.choice((0.05, 0.5, 3.0)))
                except Killed:
                    if changes and draw.random() < 0.7:
                        self._later(what, name, work)  # it was on its way
                    raise
                return work()
            case 1:  # answered late
                answer = work()
                scheduler.sleep(draw.choice((0.05, 0.5, 3.0)))
                return answer
            case 2 if changes:  # the answer was lost, and it was sent again
                work()
                scheduler.sleep(0.1)
                return work()
            case _ if changes:  # got stuck, and was sent again: the first one arrives much later
                self._later(what, name, work)
        return work()

    def _later(self, what: str, name: str, work: Callable[[], object]) -> None:
        def arrives() -> None:
            self._scheduler.say("store", "", f"late {what} {name}")
            work()

        self._scheduler.later(self._scheduler.random.random() * LATE_S, arrives)


class DiskObjects(MutableMapping[str, bytes]):
    """Objects that Spark sees as files: both write there, and what is there lasts."""

    def __init__(self, disk: SimDisk, root: str) -> None:
        self._disk = disk
        self._root = root

    def __getitem__(self, name: str) -> bytes:
        data = self._disk.data(*self._place(name))
        if data is None:
            raise KeyError(name)
        return data

    def __setitem__(self, name: str, data: bytes) -> None:
        self._disk.put_durably(*self._place(name), data)

    def __delitem__(self, name: str) -> None:
        self._disk.put_durably(*self._place(name), None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._disk.names_below(self._root))

    def __len__(self) -> int:
        return len(self._disk.names_below(self._root))

    def _place(self, name: str) -> tuple[str, str]:
        folder, _, file = f"{self._root}/{name}".rpartition("/")
        return folder, file
