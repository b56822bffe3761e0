"""Spark's own logs of a query as they lie in its checkpoint: one file an epoch, named by its number."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.env.store import ObjectStore

_NUMBER = re.compile(r"(?:^|/)(\d+)$")


def spark_epochs(store: ObjectStore, log: str) -> list[int]:
    """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
    return numbers_of(stored.name for stored in store.list(f"{log}/"))


def numbers_of(names: Iterable[str]) -> list[int]:
    """Of files or their paths; Hadoop's checksums and what is half-written are none."""
    return sorted(int(found.group(1)) for name in names if (found := _NUMBER.search(name)))
