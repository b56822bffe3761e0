"""Deltas that wait to be saved: by shard, whole, and within the memory that there is for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.env.files.scratch import temporary_folder
from tailrace.env.transit_memory import TransitMemory
from tailrace.state.sections.epoch_sections import EpochSections

PART_BYTES = 800


def part(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": np.full(100, number)})


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 20))
def test_sections_are_their_parts_in_order(shards: list[int], fitting: int) -> None:
    with temporary_folder() as folder:
        transit = TransitMemory(fitting * PART_BYTES)
        sections = EpochSections(((shard, part(number)) for number, shard in enumerate(shards)), transit, folder)
        assert {*sections} == {*shards} and len(sections) == len({*shards})
        assert (sections.rows, sections.nbytes) == (100 * len(shards), PART_BYTES * len(shards))
        assert transit.peak_bytes == min(fitting, len(shards)) * PART_BYTES
        for shard, section in sections.items():
            numbers = [number for number, own in enumerate(shards) if own == shard]
            assert section.column(0).to_pylist() == [number for number in numbers for _ in range(100)]
        assert os.listdir(folder) == [], "the file has no name"
        sections.release()
        assert transit.held_bytes == 0


def test_a_delta_that_fails_half_way_gives_its_memory_back() -> None:
    transit = TransitMemory(1 << 20)

    def failing() -> Iterator[tuple[int, pa.RecordBatch]]:
        yield 0, part(0)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        EpochSections(failing(), transit)
    assert transit.held_bytes == 0
