"""A table behind Python's interface of databases that knows every key and answers after a while.

State servers import this module by its name: so it knows nothing else of the lab.
"""

from __future__ import annotations

import time
from pathlib import Path


class SlowTable:
    """A connection and its own cursor; one caller at a time. ``latency_file``: how many milliseconds an answer takes,
    looked up for each, so that it may change while a query runs. Without a file it takes none."""

    description = (("key",), ("value",))

    def __init__(self, latency_file: str) -> None:
        self._latency_file = latency_file
        self._asked: list[int] = []

    def cursor(self) -> SlowTable:
        return self

    def execute(self, sql: str, keys: list[int]) -> None:
        if self._latency_file:
            time.sleep(float(Path(self._latency_file).read_text()) / 1e3)
        self._asked = keys

    def fetchall(self) -> list[tuple[int, int]]:
        return [(key, value_of(key)) for key in self._asked]

    def close(self) -> None:
        self._asked = []


def value_of(key: int) -> int:
    return 3 * key + 1
