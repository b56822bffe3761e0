"""Compaction of sections against a dictionary that applies them one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.state.layout import Merge, record_layout
from tailrace.state.sections.compaction import compact_lists, compact_records
from tailrace.state.sections.sections import section_schema
from tailrace.types import BIGINT, DataType, Field

LAYOUT = record_layout(
    (Field("k", DataType("string")),), [(Merge.ROW, BIGINT), (Merge.ROW, DataType("string"))], ansi=False
)
KEYS = ["", "a", "bee", None]
Row = tuple[Any, int, Any, Any]


def section(rows: list[Row], hashes: int) -> pa.RecordBatch:
    names = section_schema(LAYOUT).names
    made = [dict(zip(names, (KEYS.index(row[0]) % hashes, row[1], row[0], *row[2:]), strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(made, schema=section_schema(LAYOUT))


def rows_of(batch: pa.RecordBatch) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in batch.to_pylist():
        found.setdefault((row["k0"], row["__pane"]), []).append((row["a0"], row["a1"]))
    return found


values = st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from([None, "", "x" * 40]))
lists = st.dictionaries(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([0, 10])), st.lists(values, max_size=3), max_size=6
)
"""An empty one is a tombstone."""


@given(st.lists(lists, max_size=5), st.sampled_from([0, 5]), st.booleans(), st.booleans(), st.sampled_from([1, 4]))
def test_the_newest_rows_of_each_key_stay(
    epochs: list[dict[Any, list[Any]]], horizon: int, removes: bool, bury: bool, hashes: int
) -> None:
    batches, model = [], {}
    for epoch in epochs:
        entries: list[Row] = []
        for key, given_rows in epoch.items():
            # Without a value a row is a tombstone, where there are some.
            rows = [row for row in given_rows if not removes or row != (None, None)]
            if not rows and not removes:
                continue
            model[key] = rows or [(None, None)]
            # A key that is there again may stand beside its own tombstone.
            entries += [(*key, *row) for row in ([(None, None), *rows] if removes else rows)]
        batches.append(section(entries, hashes))
    gone = [(None, None)]
    wanted = {key: rows for key, rows in model.items() if key[1] >= horizon and not (removes and bury and rows == gone)}
    assert rows_of(compact_lists(LAYOUT, batches, horizon, removes=removes, bury=bury)) == wanted


@pytest.mark.parametrize("bury", [False, True])
@given(st.lists(lists, max_size=5), st.sampled_from([0, 5]), st.sampled_from([1, 4]))
def test_the_newest_record_of_each_key_stays(
    bury: bool, epochs: list[dict[Any, list[Any]]], horizon: int, hashes: int
) -> None:
    """A record that is there again comes behind its tombstone, which may stay there where nothing was compacted."""
    batches, model, gone = [], {}, (None, None)
    for epoch in epochs:
        records = {key: ([gone] if len(rows) > 1 else []) + rows[-1:] for key, rows in epoch.items() if rows}
        batches.append(section([(*key, *row) for key, rows in records.items() for row in rows], hashes))
        model.update({key: rows[-1:] for key, rows in records.items()})
    wanted = {key: rows for key, rows in model.items() if key[1] >= horizon and not (bury and rows == [gone])}
    found = rows_of(compact_records(LAYOUT, batches, horizon, bury=bury))
    if len(batches) == 1 and not bury:
        assert all(row == gone for rows in found.values() for row in rows[:-1])
        found = {key: rows[-1:] for key, rows in found.items()}
    assert found == wanted
