"""A store that answers slowly and fails now and then, with a clock that only counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.env.clock import SystemClock
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.location import open_store
from tailrace.env.stores.shaped_store import ShapedStore
from tailrace.errors import CheckpointError


class Counting(SystemClock):
    def __init__(self) -> None:
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_latency_and_bandwidth(tmp_path: Path) -> None:
    clock = Counting()
    store = ShapedStore(LocalStore(tmp_path), latency_s=0.5, bytes_per_s=1_000, clock=clock)
    assert store.put("a/b", [b"x" * 600, b"y" * 400]) == 1_000
    assert clock.slept == pytest.approx(0.5 + 1.0)
    assert store.get_range("a/b", 500, 200) == b"x" * 100 + b"y" * 100
    assert clock.slept == pytest.approx(1.5 + 0.5 + 0.2)
    assert store.put_if_absent("a/b", b"z") is False and store.get("a/b")[:1] == b"x"
    assert [each.name for each in store.list("a/")] == ["a/b"]
    store.delete(["a/b"])
    assert LocalStore(tmp_path).list("a/") == []


def test_failed_requests_are_sent_again_and_a_seed_says_which(tmp_path: Path) -> None:
    counts = []
    for _ in range(2):
        store = ShapedStore(LocalStore(tmp_path), errors=0.3, seed=7, clock=Counting())
        for number in range(50):
            store.put(f"a/{number}", [b"x"])
        counts.append(store.requests)
    assert counts[0] == counts[1] > 55
    with pytest.raises(CheckpointError, match="requests in a row failed"):
        ShapedStore(LocalStore(tmp_path), errors=1.0, clock=Counting()).get("a/0")


def test_addresses(tmp_path: Path) -> None:
    store = open_store(f"shaped:latency_ms=0,errors=0.0,seed=3:{tmp_path}")
    assert isinstance(store, ShapedStore) and store.uri == f"shaped:{tmp_path}"
    for wrong in (f"shaped:speed=1:{tmp_path}", "shaped:nothing", f"shaped:latency_ms=fast:{tmp_path}"):
        with pytest.raises(CheckpointError, match="no shaped store"):
            open_store(wrong)
