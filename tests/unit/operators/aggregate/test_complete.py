"""Output mode complete on every store: all groups in every epoch, whatever the watermark, against plain Python.

Sessions in this mode are with the other sessions: ``operators/session``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators import window_scenario as cases
from support.operators.window_scenario import CUSTOM, HOLISTIC, INCREMENTAL, Row, Wanted, play, spec_of
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.base import Operator
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.rows import row_index
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.read_modify_write import scan

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
STORES = st.sampled_from([("RMW", INCREMENTAL), ("AAR", HOLISTIC), ("AUR", INCREMENTAL), ("AUR", HOLISTIC)])
SLIDES = [(10, 10, 3), (12, 5, 3), (9, 1, 0)]


def of_all_time(epochs: list[list[Row]]) -> Wanted:
    wanted = cases.over_all_time(epochs)
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for epoch in range(len(epochs)):
        groups = groups | wanted.groups[epoch]
        wanted.groups[epoch] = groups
    return wanted


def standing(wanted: Wanted) -> Wanted:
    return Wanted(wanted.standing, wanted.late, wanted.closing, wanted.timeless)


@settings(max_examples=600 if LONG else 40, deadline=None, print_blob=True)
@given(
    cases.streams(nulls=True),
    st.sampled_from([None, "custom", *SLIDES]),
    STORES,
    st.sampled_from([1 << 12, 1 << 24]),
    st.integers(0, 1000),
)
def test_every_epoch_gives_all_groups(
    epochs: list[list[Row]],
    windows: str | tuple[int, int, int] | None,
    how: tuple[str, tuple[str, ...]],
    memory_bytes: int,
    seed: int,
) -> None:
    """With pieces of one record and of many, which decides nothing."""
    store, names = how
    given_ = {"store": store, "complete": True, "watermarked": False}
    if windows is None:
        spec = spec_of(names, **(given_ | {"store": "AUR" if store == "AAR" else store}))
        epochs = [[row for row in rows if row[1] is not None] for rows in epochs]
        wanted = of_all_time(epochs)
    elif isinstance(windows, tuple):
        spec = spec_of(names, window=TimeWindowSpec(*map(Micros, windows)), **given_)
        wanted = standing(cases.by_slide(epochs, *windows, update=True, delay=None))
    else:
        spec = spec_of(names, window=CUSTOM, **given_)
        wanted = standing(cases.by_time(epochs, cases.window_of, update=True, delay=None))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(scan, "PIECE_BYTES", 1 + seed % 700)
            patch.setattr(row_index, "READ_ROWS_MAX", 1 + seed % 7)

        def make(shards: Iterable[int]) -> Operator:
            return operator_of(spec, shards, memory_bytes=memory_bytes, folder=folder)

        play(spec, make, epochs, wanted, names, combine=seed % 3 == 0, seed=seed)


@pytest.mark.parametrize("store", ["RMW", "AUR"])
def test_no_batch_has_all_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    """What is read at once is a part of the state, in memory as on disk."""
    monkeypatch.setattr(scan, "PIECE_BYTES", 20_000)
    monkeypatch.setattr("tailrace.operators.aggregate.window_aggregate.OUTPUT_ROWS_MAX", 500)
    monkeypatch.setattr(row_index, "READ_ROWS_MAX", 500)
    spec = spec_of(INCREMENTAL, store=store, complete=True, watermarked=False)
    rows: list[Row] = [(f"key {number}", number, number, "text") for number in range(10_000)]
    for memory_bytes in (1 << 30, 1 << 16):
        folder = tmp_path / str(memory_bytes)
        folder.mkdir()
        operator = operator_of(spec, range(spec.shards), memory_bytes=memory_bytes, folder=str(folder))
        types = cases.TYPES
        operator.apply(0, [ingest_of(spec, MIN_MICROS, False, types).frame([cases.batch_of(rows)])])
        sizes = [len(batch) for batch in operator.advance(0, MIN_MICROS, MIN_MICROS)]
        assert sum(sizes) == 10_000 and max(sizes) < 2_000
        operator.close()
