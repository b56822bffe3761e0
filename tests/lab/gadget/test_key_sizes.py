"""State keys have the sizes that a trace says, for every store and in both modes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tailrace.errors import TailraceError
from tailrace.lab.gadget.generate import generate, key_sizes, trace_of
from tailrace.lab.gadget.replay.prepared import prepare
from tailrace.lab.gadget.replay.replay import How, online, opened, throughput
from tailrace.lab.gadget.stores.contract import Batch, Settings, Store, Values, fitted, words_of, words_of_one
from tailrace.lab.gadget.stores.plain import DictionaryStore
from tailrace.lab.gadget.stores.registry import STORES
from tailrace.lab.gadget.traces.trace import joined

UNEVEN = {
    "operator_key_size_distrib_type": "uniform",
    "operator_key_size_distrib_params_a": "3",
    "operator_key_size_distrib_params_b": "40",
}


def test_keys_are_as_long_as_the_trace_says() -> None:
    trace = trace_of("tumbling-incremental", "borg", 2_000, **UNEVEN)
    prepared = prepare(trace)
    sizes = key_sizes(trace)
    assert len(set(sizes.tolist())) > 20
    for number, (name, size) in enumerate(zip(prepared.names, sizes.tolist())):
        assert int(name) == number and len(name) == max(size, len(str(number)))
    assert len(set(prepared.names)) == trace.distinct_keys
    assert prepared.key_bytes == max(map(len, prepared.names))
    octets = prepared.key_words.view(np.uint8).reshape(len(prepared.names), -1)
    assert [bytes(row).rstrip(b"\0") for row in octets] == prepared.names
    short = prepare(replace(trace, metadata={"key_bytes": "7"}))
    assert {len(name) for name in short.names} == {7}


@pytest.mark.parametrize("name", ("rocksdb", "hash-log", "tailrace-rmw", "tailrace-aar", "tailrace-aur"))
def test_stores_take_keys_of_any_size(name: str, tmp_path: Path) -> None:
    for workload in ("session-holistic", "interval-join"):
        prepared = prepare(trace_of(workload, "borg", 400, **UNEVEN))
        for how in (How(), How(150), How(100, memory_bytes=1 << 16)):
            with opened(STORES[name], prepared, how, tmp_path) as store:
                assert throughput(store, prepared, how).accesses == len(prepared)


class _Noting(DictionaryStore):
    name = "noting"
    seen: ClassVar[set[bytes]] = set()

    def put(self, key: bytes, value: bytes) -> None:
        self.seen.add(key)
        super().put(key, value)


def test_keys_keep_their_sizes_from_piece_to_piece(tmp_path: Path) -> None:
    _Noting.seen.clear()
    pieces = list(generate("aggregation", "borg", 3_000, **UNEVEN))
    parts = [piece for complete in pieces for piece in _halves(complete)]
    with opened(_Noting, prepare(joined([])), How(), tmp_path) as store:
        online(store, parts, How())
    assert _Noting.seen == set(prepare(joined(pieces)).names)


def _halves(trace):  # type: ignore[no-untyped-def]
    middle = len(trace) // 2
    for part in (slice(0, middle), slice(middle, None)):
        columns = (trace.operations[part], trace.keys[part], trace.value_sizes[part], trace.times[part])
        yield replace(trace, operations=columns[0], keys=columns[1], value_sizes=columns[2], times=columns[3])


def test_keys_in_words() -> None:
    names = [b"7", b"00000000012", b""]
    words = words_of(names)
    assert words.shape == (3, 2) and words_of([], 20).shape == (0, 3)
    assert fitted(words, 3).shape == (3, 3) and (fitted(words, 3)[:, :2] == words).all()
    with pytest.raises(TailraceError, match="more than 8 bytes"):
        fitted(words, 1)
    assert fitted(words[:1], 1).tolist() == [[ord("7")]]
    for number, name in enumerate(names):
        assert words_of_one(name, 2).tolist() == words[number : number + 1].tolist()
    with pytest.raises(TailraceError, match="more than 8 bytes"):
        words_of_one(names[1], 1)


def test_keys_that_are_too_long_are_named(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match="keys of 800 bytes are too long"):
        STORES["tailrace-rmw"](Settings(tmp_path, key_bytes=800))
    with pytest.raises(TailraceError, match="LMDB has keys of at most 511 bytes, and some here have 800"):
        STORES["lmdb"](Settings(tmp_path, key_bytes=800))
    with pytest.raises(TailraceError, match="key_bytes = '1000000000000'"):
        _ = prepare(replace(trace_of("aggregation", "borg", 50), metadata={"key_bytes": "1000000000000"})).names


def test_a_trace_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of("aggregation", "borg", 3_000)
    fits = prepare(trace)
    monkeypatch.setattr("tailrace.lab.gadget.replay.prepared._COPIES", 1 << 40)  # so that next to nothing fits
    with pytest.raises(TailraceError, match=r"the state keys of this trace have .*: take fewer accesses, or smaller"):
        _ = fits.names
    with pytest.raises(TailraceError, match="the values of this trace have"):
        prepare(trace)


def test_batches_are_combined_by_the_bytes_of_keys(tmp_path: Path) -> None:
    """Two numbers that stand for one key: stores know keys, not the harness's numbers."""
    words = words_of([b"5", b"6", b"5"])
    batch = Batch(
        np.array([1, 1, 0], np.uint8), np.array([0, 1, 2]), np.array([2, 2, 0]), np.array([0, 2, 4]),
        np.frombuffer(b"aabb", np.uint8).copy(), [b"5", b"6", b"5"], [b"aa", b"bb", b""], words,
    )  # fmt: skip
    for name in ("rocksdb", "hash-log", "tailrace-rmw", "tailrace-aur"):
        folder = tmp_path / name
        folder.mkdir()
        store: Store = STORES[name](Settings(folder))
        with store:
            found = store.run(batch)
        assert isinstance(found, Values) and found.data.tobytes() == b"aa", name
