"""What a process asks of its machine, with a place where a test puts something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

_Used = TypeVar("_Used")


class Replaceable(Generic[_Used]):
    """Reading ``current`` is safe from any thread; ``use`` is for tests that run nothing else meanwhile."""

    def __init__(self, system: _Used) -> None:
        self.current = system

    @contextmanager
    def use(self, other: _Used) -> Iterator[None]:
        before, self.current = self.current, other
        try:
            yield
        finally:
            self.current = before
