"""The lab's events are the same for every engine and every run, and its oracle is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.lab.workloads.events import Bids, KeyedEvents, keyed_answer, write_batch

EVENTS = KeyedEvents(keys=1_000, rows=300, seed=7)


def test_the_same_seed_gives_the_same_rows_in_any_order() -> None:
    again = KeyedEvents(keys=1_000, rows=300, seed=7)
    assert again.batch(3).equals(EVENTS.batch(3))
    assert not EVENTS.batch(3).equals(EVENTS.batch(4))
    assert not EVENTS.batch(3).equals(KeyedEvents(keys=1_000, rows=300, seed=8).batch(3))


def test_prefill_names_every_key_once() -> None:
    tables = [EVENTS.prefill(number) for number in range(EVENTS.prefill_batches)]
    assert [table.num_rows for table in tables] == [300, 300, 300, 100]
    keys = pa.concat_tables(tables)["key"].to_numpy()
    assert np.array_equal(np.sort(keys), np.arange(1_000))
    assert np.array_equal(np.sort(EVENTS.every_key()["key"].to_numpy()), np.arange(1_000))


def test_a_file_is_complete_and_has_a_row_group_a_core(tmp_path: Path) -> None:
    path = write_batch(EVENTS.batch(0), tmp_path / "feed", "000000", pieces=2)
    assert [entry.name for entry in path.parent.iterdir()] == ["000000.parquet"]
    assert pq.ParquetFile(path).num_row_groups == 2
    assert pq.read_table(path).equals(EVENTS.batch(0))


def test_the_answer_is_what_plain_python_computes(tmp_path: Path) -> None:
    small = KeyedEvents(keys=20, rows=50, seed=1)
    files = [write_batch(small.batch(number), tmp_path, str(number), 1) for number in range(3)]
    totals: dict[int, tuple[int, int, int]] = {}
    for path in files:
        for row in pq.read_table(path).to_pylist():
            total, n, top = totals.get(row["key"], (0, 0, 0))
            totals[row["key"]] = (total + row["value"], n + 1, max(top, row["value"]))
    found = {row["key"]: (row["total"], row["n"], row["top"]) for row in keyed_answer(files).to_pylist()}
    assert found == totals


def test_bids_are_in_time_or_hopeless() -> None:
    bids = Bids(rows=20_000, auctions=50, seconds_a_batch=2, jitter_s=4, late_share=0.01, seed=1)
    largest = 0
    for number in range(6):
        table = bids.batch(number)
        times = table["ts"].cast(pa.int64()).to_numpy()
        behind_s = (max(largest, times.max()) - times) / 1e6
        late = behind_s > bids.late_by_s / 2
        assert int(late.sum()) == bids.late_rows(table)
        assert bool(late.any()) == (number >= 3)
        # Everything else is within the ten seconds that the demo allows, whichever batch a rule counts from.
        assert behind_s[~late].max() < 10
        largest = max(largest, int(times.max()))
        assert pc.max(table["auction"]).as_py() < 50
