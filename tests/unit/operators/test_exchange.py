"""The order in which an output goes on to the next operator: fixed by keys alone, also where it is too much at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.servers.state_servers import SPEC
from tailrace.env.files.scratch import temporary_folder
from tailrace.env.transit_memory import TransitMemory
from tailrace.operators import exchange
from tailrace.operators.exchange import in_fixed_order
from tailrace.operators.output import EpochOutput, output_schema
from tailrace.operators.resources import Resources


def output(keys: list[int]) -> pa.RecordBatch:
    numbers = np.array(keys, np.int64)
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array(numbers + 1), pa.array(numbers * 2)], output_schema(SPEC).names
    )


@given(st.lists(st.lists(st.integers(-50, 50), max_size=20), max_size=6), st.randoms(use_true_random=False))
def test_rows_come_in_one_order_however_they_lay_and_however_many_are_sorted_at_once(
    parts: list[list[int]], random: object
) -> None:
    keys = sorted({key for part in parts for key in part})
    whole = [row for batch in in_fixed_order([output(keys)], SPEC) for row in batch.to_pylist()]
    assert sorted(row["k"] for row in whole) == keys
    random.shuffle(keys)  # type: ignore[attr-defined]
    cut = np.array_split(np.array(keys, np.int64), 4)
    with temporary_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_SORTED_ROWS_MAX", 3)
        resources = Resources(folder=folder, transit=TransitMemory(200))
        spilled = EpochOutput((output(part.tolist()) for part in cut), resources)
        assert [row for batch in in_fixed_order(spilled, SPEC, folder) for row in batch.to_pylist()] == whole


def test_no_more_than_some_shards_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_SORTED_ROWS_MAX", 10_000)
    with temporary_folder() as folder:
        resources = Resources(folder=folder, transit=TransitMemory(0))
        made = EpochOutput((output(list(range(at, at + 1_000))) for at in range(0, 80_000, 1_000)), resources)
        before, peak, rows = pa.total_allocated_bytes(), 0, 0
        for batch in in_fixed_order(made, SPEC, folder):
            peak, rows = max(peak, pa.total_allocated_bytes() - before), rows + len(batch)
    assert rows == 80_000
    assert peak < made.nbytes / 2
