"""One behaviour suite for every connector: whatever accesses come, gets find what was written before them.

The right answers are those of a dictionary of byte strings, worked out here. Every store must open: a server or a
library that the system lacks is fetched.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tailrace.lab.gadget.replay.prepared import Prepared, WrongAnswerError, prepare
from tailrace.lab.gadget.stores.contract import Answers, Settings, Store, Values
from tailrace.lab.gadget.stores.registry import STORES
from tailrace.lab.gadget.traces.trace import Operation, Trace

ALONE = ("redis",)
"""A process of its own for each store that is opened: few examples must do."""

IN_A_JVM = ("spark-memory", "spark-rocksdb")
EVERY = [pytest.param(name, marks=pytest.mark.long) if name in IN_A_JVM else name for name in STORES]
EMBEDDED = [name for name in STORES if name not in (*ALONE, *IN_A_JVM)]

_accesses = st.lists(
    st.tuples(st.sampled_from(list(Operation)), st.integers(0, 7), st.sampled_from([0, 1, 7, 10, 20, 300])),
    max_size=60,
)


def trace_of(accesses: list[tuple[Operation, int, int]]) -> Trace:
    numbers: dict[int, int] = {}
    keys = [numbers.setdefault(key, len(numbers)) for _, key, _ in accesses]
    writes = [operation in (Operation.PUT, Operation.MERGE) for operation, _, _ in accesses]
    return Trace(
        np.array([operation for operation, _, _ in accesses], np.uint8),
        np.array(keys, np.int64),
        np.array([size if wrote else 0 for wrote, (_, _, size) in zip(writes, accesses)], np.int32),
        np.arange(len(accesses), dtype=np.int64) // 5,
    )


def right_answers(prepared: Prepared) -> list[bytes | None]:
    held: dict[int, bytes] = {}
    found = []
    for operation, key, value in zip(prepared.trace.operations, prepared.trace.keys.tolist(), prepared.values):
        if operation == Operation.GET:
            found.append(held.get(key))
        elif operation == Operation.PUT:
            held[key] = value
        elif operation == Operation.MERGE:
            held[key] = held.get(key, b"") + value
        else:
            held.pop(key, None)
    return found


def listed(answers: list[Answers]) -> list[bytes | None]:
    found: list[bytes | None] = []
    for part in answers:
        if isinstance(part, Values):
            ends = np.cumsum(np.maximum(part.sizes, 0))
            data = part.data.tobytes()
            found += [None if n < 0 else data[end - n : end] for n, end in zip(part.sizes.tolist(), ends.tolist())]
        else:
            found += part
    return found


def opened(name: str, folder: Path, prepared: Prepared, memory_bytes: int = 4 << 20) -> Store:
    folder.mkdir(parents=True, exist_ok=True)
    return STORES[name](Settings(folder, memory_bytes, 16, prepared.key_bytes, prepared.panes))


def one_by_one(store: Store, prepared: Prepared) -> list[bytes | None]:
    keys = [prepared.names[key] for key in prepared.keys.tolist()]
    found = []
    for operation, key, value in zip(prepared.trace.operations, keys, prepared.values):
        if operation == Operation.GET:
            found.append(store.get(key))
        elif operation == Operation.PUT:
            store.put(key, value)
        elif operation == Operation.MERGE:
            store.merge(key, value)
        else:
            store.delete(key)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_gets_find_what_was_written(name: str, tmp_path: Path) -> None:
    count = 0

    @seed(6)
    @settings(
        max_examples={"redis": 2, "wiredtiger": 5, "rocksdb": 12, "lethe-like": 4}.get(name, 20),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(accesses=_accesses, size=st.integers(1, 40), scalar=st.booleans())
    def check(accesses: list[tuple[Operation, int, int]], size: int, scalar: bool) -> None:
        nonlocal count
        count += 1
        prepared = prepare(trace_of(accesses))
        with opened(name, tmp_path / str(count), prepared) as store:
            if scalar:
                found = one_by_one(store, prepared)
            else:
                found = listed([store.run(batch) for batch in prepared.batches(size)])
        assert found == right_answers(prepared)

    check()


@pytest.mark.parametrize("name", EVERY)
def test_many_accesses_to_few_keys(name: str, tmp_path: Path) -> None:
    """So that every access meets every other one, in the same micro-batch and in the one after."""
    for number in range(1 if name in ALONE else 3):
        random = np.random.default_rng(number)
        accesses = [
            (Operation(int(operation)), int(key), int(size))
            for operation, key, size in zip(
                random.integers(0, 4, 400), random.integers(0, 6, 400), random.choice([0, 1, 10, 300], 400)
            )
        ]
        prepared = prepare(trace_of(accesses))
        with opened(name, tmp_path / str(number), prepared) as store:
            found = listed([store.run(batch) for batch in prepared.batches((7, 31, 150)[number])])
        assert found == right_answers(prepared), f"seed {number}"


@pytest.mark.parametrize("name", EMBEDDED)
def test_state_beyond_memory_is_found_again(name: str, tmp_path: Path) -> None:
    """Three times as many bytes as the store may hold in memory; every key is read after all are written."""
    keys, size = 12_000, 250
    random = np.random.default_rng(3)
    order = random.permutation(keys)
    written = [(Operation.PUT if key % 2 else Operation.MERGE, int(key), size) for key in order]
    touched = [(Operation.MERGE, int(key), 50) for key in order[: keys // 4]]
    read = [(Operation.GET, int(key), 0) for key in random.permutation(keys)]
    prepared = prepare(trace_of(written + touched + read))
    with opened(name, tmp_path, prepared, memory_bytes=1 << 20) as store:
        answers = [store.run(batch) for batch in prepared.batches(2_000)]
    prepared.check(name, answers)


def test_scalar_calls_and_micro_batches_may_take_turns(tmp_path: Path) -> None:
    accesses = [(Operation(i % 3), i % 5, 20) for i in range(40)]
    prepared = prepare(trace_of(accesses))
    for name in EMBEDDED:
        with opened(name, tmp_path / name, prepared) as store:
            store.run(prepared.batch(0, 40))
            key = prepared.names[4]
            before = store.get(key)
            store.merge(key, b"more")
            assert before is not None and store.get(key) == before + b"more", name


@given(accesses=_accesses)
@settings(max_examples=60, deadline=None)
def test_expected_answers_are_those_of_a_dictionary(accesses: list[tuple[Operation, int, int]]) -> None:
    prepared = prepare(trace_of(accesses))
    assert listed([prepared.expected]) == right_answers(prepared)


def test_a_store_cannot_win_by_wrong_answers() -> None:
    prepared = prepare(trace_of([(Operation.PUT, 0, 10), (Operation.GET, 0, 0), (Operation.GET, 1, 0)]))
    right = right_answers(prepared)
    prepared.check("right", [right])
    wrong: dict[str, list[bytes | None]] = {
        "answered 0 gets, but 2 were asked": [],
        "access 1, a get of state key 0, found nothing instead of 10 bytes": [None, None],
        "access 1, a get of state key 0, found 10 bytes, but not those": [b"0123456789", None],
        "access 2, a get of state key 1, found 0 bytes instead of nothing": [right[0], b""],
    }
    for message, answers in wrong.items():
        with pytest.raises(WrongAnswerError, match=message):
            prepared.check("wrong", [answers])
