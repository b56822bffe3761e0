"""Outputs that are larger than the memory for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.env.files import scratch
from tailrace.env.files.scratch import temporary_folder
from tailrace.env.transit_memory import TransitMemory
from tailrace.operators.output import EpochOutput
from tailrace.operators.resources import Resources

ROWS = 1_000


def batch(number: int, rows: int = ROWS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": np.full(rows, number), "text": [f"é{number}"] * rows})


def made(count: int) -> Iterator[pa.RecordBatch]:
    """One at a time, as operators make them."""
    for number in range(count):
        yield batch(number)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 5))
def test_what_lies_on_disk_is_read_as_what_lies_in_memory(count: int, fitting: int, parts: int) -> None:
    with temporary_folder() as folder:
        transit = TransitMemory(fitting * batch(0).nbytes)
        output = EpochOutput(made(count), Resources(folder=folder, transit=transit))
        assert (len(output), output.rows) == (count, count * ROWS)
        assert output.nbytes == sum(each.nbytes for each in made(count))
        assert transit.held_bytes == transit.peak_bytes <= transit.bytes_max
        for _ in range(2):
            cut = [each for number in range(parts) for each in output.part(number, parts)]
            assert cut == list(made(count))
        assert os.listdir(folder) == [], "the file has no name"
        output.release()
        output.release()
        assert transit.held_bytes == 0
        assert list(output[1:]) == list(made(count))[1:]


def test_an_output_of_many_times_its_memory_takes_no_more_than_that(tmp_path: Path) -> None:
    """12.8 MB out of a budget of 2 MiB: what Arrow holds is counted while it is made and while it is read."""
    transit, before, peak = TransitMemory(1 << 19), pa.total_allocated_bytes(), 0

    def watched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for each in batches:
            peak = max(peak, pa.total_allocated_bytes() - before)
            yield each

    rows = 1 << 16
    large = (pa.RecordBatch.from_pydict({"n": pa.array(np.arange(rows)).cast(pa.int32())}) for _ in range(50))
    output = EpochOutput(watched(large), Resources(folder=str(tmp_path), transit=transit))
    assert output.nbytes > 12.8e6
    assert sum(each.num_rows for each in watched(iter(output))) == 50 * rows
    assert peak < (1 << 19) + 3 * rows * 8, "and a batch or two on its way"


def test_a_full_disk_leaves_an_output_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(scratch.os, "pwrite", full)
    output = EpochOutput(made(3), Resources(folder=str(tmp_path), transit=TransitMemory(0)))
    assert list(output) == list(made(3))


def test_an_output_that_fails_half_way_gives_its_memory_back(tmp_path: Path) -> None:
    transit = TransitMemory(1 << 20)

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        EpochOutput(failing(), Resources(folder=str(tmp_path), transit=transit))
    assert transit.held_bytes == 0
