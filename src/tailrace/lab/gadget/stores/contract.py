"""What a connector is: a key-value store as a streaming operator uses it, one access or one micro-batch at a time.

Scalar: ``get``, ``put``, ``merge``, ``delete``, each one call of the store's own. ``merge`` appends bytes to the value,
or makes it. A get hands out a copy of the whole value, ``None`` where there is none; removing what is not there is
no error. Batch: ``run`` does the accesses of a micro-batch as if one after the other and answers its gets in order,
through whatever the store has for many keys at once (``batch_note`` says what that is).

Invariants: a store begins empty, in a folder of its own, and keeps within ``Settings.memory_bytes`` what it lets one
set (``memory`` says how). Nothing of it is left open after ``close``; the folder is its owner's to remove. A store need
not survive a crash: no write is synced, and logs ahead of writing are off where a store has them.

Threads: one at a time, unless ``concurrent`` says that calls may come from several at once.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.trace import Operation

MEMORY_BYTES = 256 << 20
BUILT = "`scripts/gadget_stores.sh` builds it, which takes a C compiler"


class StoreUnavailableError(TailraceError):
    """A connector's store is not on this machine: the user gets it as the message says, or goes on without."""


def package(name: str, how: str) -> Any:
    """A package that only one connector needs: imported when the store is opened. ``how``: what gets it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise StoreUnavailableError(f"the package {name} is not installed: {how}") from error


@dataclass(frozen=True)
class Settings:
    """What every store is opened with."""

    folder: Path
    """Empty, and there."""
    memory_bytes: int = MEMORY_BYTES
    value_bytes: int = 16
    """Of most values; an operator knows how large its aggregate is."""
    panes: np.ndarray | None = None
    """int64, by state key: the number of the window that it belongs to, in the order in which windows end. An operator
    knows it, since a window is a part of the state key; None where there are no windows."""


@dataclass(frozen=True)
class Values:
    """Byte strings one after the other; a size of -1 is one that is not there."""

    sizes: np.ndarray
    """int64"""
    data: np.ndarray
    """uint8"""


Answers = Values | list[bytes | None]
"""What the gets of a micro-batch found, in their order; in columns, or as the store's own library gives it."""


@dataclass(frozen=True)
class Batch:
    """Accesses of a micro-batch, made ready before time is taken, in every form that a store may want."""

    operations: np.ndarray
    """uint8, see `Operation`"""
    keys: np.ndarray
    """int64"""
    sizes: np.ndarray
    """int64: bytes of what is written, 0 for get and delete"""
    starts: np.ndarray
    """int64: where they begin in ``data``"""
    data: np.ndarray
    """uint8, of the whole trace"""
    names: Sequence[bytes]
    """State key to its bytes, for all of the trace."""
    values: Sequence[bytes]
    """What each access writes."""

    def __len__(self) -> int:
        return len(self.operations)


class Store(ABC):
    name: ClassVar[str]
    batch_note: ClassVar[str]
    """How a micro-batch is done."""
    by_number: ClassVar[bool] = False
    """Scalar calls take state keys as integers, not as bytes."""
    concurrent: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, settings: Settings) -> None: ...

    @property
    @abstractmethod
    def memory(self) -> dict[str, int]:
        """What the memory is made of, in bytes; empty where it cannot be set."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def merge(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def delete(self, key: bytes) -> None: ...

    def run(self, batch: Batch) -> Answers:
        """One call after the other, for stores that have nothing better."""
        get, put, merge, delete = self.get, self.put, self.merge, self.delete
        found: list[bytes | None] = []
        names = batch.names
        for operation, key, value in zip(batch.operations.tolist(), batch.keys.tolist(), batch.values):
            if operation == Operation.GET:
                found.append(get(names[key]))
            elif operation == Operation.PUT:
                put(names[key], value)
            elif operation == Operation.MERGE:
                merge(names[key], value)
            else:
                delete(names[key])
        return found

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
