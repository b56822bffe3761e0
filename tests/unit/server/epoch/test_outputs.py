"""Outputs that are read before, while and after they are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.env.transit_memory import TransitMemory
from tailrace.errors import StateServerError
from tailrace.ids import Attempt
from tailrace.operators.output import EpochOutput
from tailrace.operators.resources import Resources
from tailrace.server.epoch.outputs import Outputs

NAME = "aggregate"
LATER = 30.0


def batches(*numbers: int) -> EpochOutput:
    return EpochOutput((pa.RecordBatch.from_pydict({"n": [number]}) for number in numbers), Resources())


def numbers(found: Sequence[pa.RecordBatch]) -> list[int]:
    return [number for batch in found for number in batch.column(0).to_pylist()]


@pytest.fixture
def outputs() -> Iterator[Outputs]:
    made = Outputs()
    made.begin(Attempt(0, 0))
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def reading(pool: ThreadPoolExecutor, outputs: Outputs, at: Attempt) -> Future[Sequence[pa.RecordBatch]]:
    """A reader that waits."""
    reader = pool.submit(outputs.read, NAME, at)
    with pytest.raises(NotYet):
        reader.result(0.05)
    return reader


@pytest.mark.parametrize("at", [Attempt(0, 0), Attempt(0, 1), Attempt(1, 0)], ids=["under way", "next try", "next"])
def test_a_reader_that_comes_first_waits(outputs: Outputs, pool: ThreadPoolExecutor, at: Attempt) -> None:
    reader = reading(pool, outputs, at)
    outputs.begin(at)
    outputs.put("another", at, batches(7))
    with pytest.raises(NotYet):
        reader.result(0.05)
    outputs.put(NAME, at, batches(1, 2))
    assert numbers(reader.result(LATER)) == [1, 2]
    assert numbers(outputs.read(NAME, at)) == [1, 2], "any number of times"


def test_a_reader_of_a_try_that_fails_gets_the_error(outputs: Outputs, pool: ThreadPoolExecutor) -> None:
    reader = reading(pool, outputs, Attempt(0, 0))
    outputs.fail(Attempt(0, 0), "the sum is too large")
    with pytest.raises(StateServerError, match="will not come: the sum is too large"):
        reader.result(LATER)
    outputs.begin(Attempt(0, 1))
    reader = reading(pool, outputs, Attempt(0, 1))
    outputs.fail(Attempt(0, 0), "a call that came late")
    with pytest.raises(NotYet):
        reader.result(0.05)
    outputs.put(NAME, Attempt(0, 1), batches(3))
    assert numbers(reader.result(LATER)) == [3]


def test_a_reader_of_a_try_that_is_over_gets_an_error(outputs: Outputs, pool: ThreadPoolExecutor) -> None:
    reader = reading(pool, outputs, Attempt(0, 0))
    outputs.begin(Attempt(0, 1))
    with pytest.raises(StateServerError, match="is gone"):
        reader.result(LATER)


def test_a_reader_gets_an_error_when_the_server_ends(outputs: Outputs, pool: ThreadPoolExecutor) -> None:
    reader = reading(pool, outputs, Attempt(5, 0))
    outputs.close()
    with pytest.raises(StateServerError, match="the server ends"):
        reader.result(LATER)


def test_the_one_before_is_held_until_the_next_is_made(outputs: Outputs) -> None:
    outputs.put(NAME, Attempt(0, 0), batches(1))
    outputs.begin(Attempt(1, 0))
    assert numbers(outputs.read(NAME, Attempt(0, 0))) == [1]
    outputs.drop(NAME)
    with pytest.raises(StateServerError, match="is gone"):
        outputs.read(NAME, Attempt(0, 0))


@given(st.integers(0, 40), st.integers(1, 12))
def test_parts_are_the_whole_in_order(count: int, parts: int) -> None:
    outputs = Outputs()
    outputs.put(NAME, Attempt(0, 0), batches(*range(count)))
    cut = [numbers(outputs.read(NAME, Attempt(0, 0), part, parts)) for part in range(parts)]
    assert [number for part in cut for number in part] == list(range(count))
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_an_output_counts_until_the_next_one_or_until_it_is_dropped(tmp_path: Path) -> None:
    transit = TransitMemory(1 << 20)
    resources = Resources(folder=str(tmp_path), transit=transit)
    outputs = Outputs()
    for epoch, count in enumerate((5, 3)):
        made = EpochOutput(batches(*range(count)), resources)
        outputs.put(NAME, Attempt(epoch, 0), made)
        assert transit.held_bytes == made.nbytes == 8 * count
    kept = outputs.read(NAME, Attempt(1, 0))
    outputs.drop(NAME)
    assert transit.held_bytes == 0
    assert numbers(kept) == [0, 1, 2], "who reads it already may go on"
