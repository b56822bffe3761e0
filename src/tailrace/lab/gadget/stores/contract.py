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
from tailrace.lab.gadget.traces.trace import Operation

MEMORY_BYTES = 256 << 20


class StoreUnavailableError(TailraceError):
    """A connector's store is not on this machine: the user gets it as the message says, or goes on without."""


def words_of(names: Sequence[bytes], key_bytes: int = 1) -> np.ndarray:
    """Keys in words, as `Batch.key_words` has them: as many as the longest needs, or ``key_bytes``."""
    words = -(-max(map(len, names), default=1) // 8)
    words = max(words, -(-key_bytes // 8))
    if not names:
        return np.empty((0, words), np.int64)
    return np.array(names, f"S{8 * words}").view(np.int64).reshape(len(names), words)


def words_of_one(name: bytes, words: int) -> np.ndarray:
    """One key in a row, for a single call."""
    if len(name) > 8 * words:
        return fitted(words_of([name]), words)
    return np.frombuffer(bytearray(name.ljust(8 * words, b"\0")), np.int64).reshape(1, words)


def fitted(key_words: np.ndarray, words: int) -> np.ndarray:
    """Keys for a store that was opened for so many words each."""
    short = words - key_words.shape[1]
    if short < 0 and key_words[:, words:].any():
        raise TailraceError(f"a state key has more than {8 * words} bytes: open the store for longer ones (key_bytes)")
    return np.ascontiguousarray(np.pad(key_words, ((0, 0), (0, short))) if short > 0 else key_words[:, :words])


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
    key_bytes: int = 16
    """Of the longest key."""
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
    key_words: np.ndarray
    """int64[state keys, words]: the same bytes as ``names``, filled up with zeros, for stores that take columns."""

    def __len__(self) -> int:
        return len(self.operations)


class Store(ABC):
    name: ClassVar[str]
    batch_note: ClassVar[str]
    """How a micro-batch is done."""
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
