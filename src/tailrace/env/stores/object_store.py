"""What an object store is to Tailrace: whole objects under names, published at once or not at all.

Names are relative, with ``/`` between parts (``log/00000000000000000007.json``). A name that is missing raises
``FileNotFoundError``; anything else that the store cannot do raises ``CheckpointError`` with the place and what to do.
Implementations are safe from any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")


@dataclass(frozen=True)
class StoredObject:
    name: str
    bytes: int


class ObjectStore(Protocol):
    @property
    def uri(self) -> str:
        """Where this is, as a person would write it; names in messages are given below it."""
        ...

    def put(self, name: str, parts: Iterable[Any]) -> int:
        """Write the parts' bytes as one object, in place of any other of that name. Durable on return; returns bytes.

        The parts may come from a generator: a store holds a bounded number of them at a time.
        """
        ...

    def put_if_absent(self, name: str, data: Any) -> bool:
        """Write the object unless the name is taken. Exactly one of several racers gets True.

        Durable on return, also where another has written it.
        """
        ...

    def get(self, name: str) -> bytes: ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``start``: fewer where the object ends before."""
        ...

    def list(self, prefix: str) -> list[StoredObject]:
        """Every object whose name starts with ``prefix``, which is empty or ends with ``/``; sorted by name.

        What is listed lasts, also where its writer was killed before its put had ended.
        """
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete, in any order, in as few requests as the store has for it. A name that is missing is fine."""
        ...

    def sweep(self, may: Callable[[], object]) -> None:
        """Remove what crashed writers left under temporary names. Only while nobody else of this run writes.

        ``may`` is called between listing and removing, and raises where what was listed may be another run's.
        """
        ...


def check_name(name: str) -> str:
    """Refuse a name that one store would keep and another would not (a programming error, not the user's)."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"not an object name: {name!r}")
    return name


def check_prefix(prefix: str) -> str:
    if prefix and not (prefix.endswith("/") and _NAME.fullmatch(prefix[:-1])):
        raise ValueError(f"not a prefix of object names: {prefix!r}")
    return prefix


def locate(store: ObjectStore, name: str) -> str:
    """An object's full address, for messages."""
    return f"{store.uri.rstrip('/')}/{name}"
