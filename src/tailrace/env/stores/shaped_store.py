"""A store that answers as slowly as a far one: for tests and benches, in front of any other.

``shaped:latency_ms=50,mb_per_s=20,errors=0.1,seed=7:<address>``. Every request waits for the latency and for its bytes
at the bandwidth, which requests under way share. ``errors`` is the share of requests that fail and are sent again after
a growing pause, as a store's client does; what a seed makes fail, fails again in another run of the same requests.

Safe from any thread.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tailrace.env.clock import SYSTEM, Clock
from tailrace.env.stores.object_store import ObjectStore, StoredObject, locate
from tailrace.errors import CheckpointError

SCHEME = "shaped:"
_RETRIES_MAX = 8
_PAUSE_S = 0.05
_SLICE_BYTES = 256 << 10
_ADDRESS = re.compile(r"shaped:((?:[a-z_]+=[0-9.]+,?)*):(.+)", re.DOTALL)
_NAMES = ("latency_ms", "mb_per_s", "errors", "seed")
_Answer = TypeVar("_Answer")


class ShapedStore:
    def __init__(
        self,
        inner: ObjectStore,
        latency_s: float = 0.0,
        bytes_per_s: float = 0.0,
        errors: float = 0.0,
        seed: int = 0,
        clock: Clock = SYSTEM,
    ) -> None:
        self._inner = inner
        self._latency_s = latency_s
        self._bytes_per_s = bytes_per_s  # 0: without a limit
        self._errors = errors
        self._random = random.Random(seed)
        self._guard = threading.Lock()
        self._line = threading.Lock()  # held by whose bytes are on the line
        self._clock = clock
        self.requests = 0

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self._inner.uri}"

    def put(self, name: str, parts: Iterable[Any]) -> int:
        held = [bytes(part) for part in parts]  # a request that fails is sent again
        return self._ask(name, lambda: self._inner.put(name, held), sum(map(len, held)))

    def put_if_absent(self, name: str, data: Any) -> bool:
        return self._ask(name, lambda: self._inner.put_if_absent(name, data), len(data))

    def get(self, name: str) -> bytes:
        data = self._ask(name, lambda: self._inner.get(name))
        self._carry(len(data))
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        data = self._ask(name, lambda: self._inner.get_range(name, start, length))
        self._carry(len(data))
        return data

    def list(self, prefix: str) -> list[StoredObject]:
        return self._ask(prefix, lambda: self._inner.list(prefix))

    def delete(self, names: Sequence[str]) -> None:
        if names:
            self._ask(names[0], lambda: self._inner.delete(names))

    def sweep(self, may: Callable[[], object]) -> None:
        self._inner.sweep(may)

    def _ask(self, name: str, work: Callable[[], _Answer], size: int = 0) -> _Answer:
        for sent in range(_RETRIES_MAX + 1):
            with self._guard:
                self.requests += 1
                fails = self._random.random() < self._errors
            self._clock.sleep(self._latency_s)
            self._carry(size)
            if not fails:
                return work()
            self._clock.sleep(_PAUSE_S * 2**sent)
        raise CheckpointError(
            f"{locate(self._inner, name)}: {_RETRIES_MAX + 1} requests in a row failed. "
            "Look after that store, then start the query again: it continues from the last durable epoch."
        )

    def _carry(self, size: int) -> None:
        if self._bytes_per_s:
            while size > 0:  # in slices: a small request does not wait for all of a large one
                with self._line:
                    self._clock.sleep(min(size, _SLICE_BYTES) / self._bytes_per_s)
                size -= _SLICE_BYTES


def shaped(address: str, open_inner: Callable[[str], ObjectStore]) -> ShapedStore:
    """The store at an address of the form above."""
    found = _ADDRESS.fullmatch(address)
    given = dict(pair.split("=") for pair in found[1].split(",") if pair) if found else {}
    if found is None or (unknown := sorted(given.keys() - set(_NAMES))):
        named = f" ({', '.join(unknown)} is not known)" if found else ""
        raise CheckpointError(
            f"{address} is no shaped store{named}: write for example shaped:latency_ms=50,mb_per_s=20:/path, with "
            f"{', '.join(_NAMES)}."
        )
    return ShapedStore(
        open_inner(found[2]),
        float(given.get("latency_ms", 0)) / 1e3,
        float(given.get("mb_per_s", 0)) * 1e6,
        float(given.get("errors", 0)),
        int(given.get("seed", 0)),
    )
