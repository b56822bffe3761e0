"""Lists of bytes by key: what is appended in the store's order and what is not are the same to who takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailrace.lab.gadget.stores.contract import words_of
from tailrace.testing.bench.byte_stores import LENGTH_BYTES, ByteLists


def _framed(values: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(bytes(LENGTH_BYTES) + value for value in values), np.uint8).copy()


@pytest.mark.parametrize("memory_bytes", (1 << 20, 1 << 12))
def test_appended_in_the_order_of_the_store_or_not(tmp_path: Path, memory_bytes: int) -> None:
    rng = np.random.default_rng(7)
    lists = ByteLists(str(tmp_path), memory_bytes, key_words=2)
    keys = words_of([b"%0*d" % (1 + number % 16, number) for number in range(60)])
    held: dict[int, bytes] = {}
    for epoch in range(60):
        names = rng.choice(50, int(rng.integers(1, 40)), replace=False).astype(np.int64)
        if epoch % 2:
            names = names[ByteLists.order(names, keys)]
        values = [rng.bytes(int(rng.integers(0, 60))) for _ in names]
        lists.append(names, keys, np.array([len(value) for value in values]), _framed(values))
        for name, value in zip(names.tolist(), values):
            held[name] = held.get(name, b"") + value
        wanted = rng.choice(60, 5, replace=False).astype(np.int64)
        found = lists.take(wanted, keys)
        for name, size, start in zip(wanted.tolist(), found.sizes.tolist(), found.starts.tolist()):
            right = held.pop(name, None)
            assert (None if size < 0 else found.data[start : start + size].tobytes()) == right
    assert held
    lists.close()
