"""Rows as JSON objects: what a JSON parser reads is what Arrow has, for any text and number."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import AnalysisError
from tailrace.sinks.json_texts import check_json, json_objects

ROW = st.tuples(
    st.none() | st.text(max_size=12),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | st.lists(st.none() | st.text(max_size=4), max_size=3),
)
SCHEMA = pa.schema(
    [('a "name"', pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_()), ("l", pa.list_(pa.string()))]
)

WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])


def wanted(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@given(st.lists(ROW, min_size=1, max_size=8), st.integers(0, 3))
def test_any_values_are_read_back(rows: list[tuple[object, ...]], skipped: int) -> None:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows), SCHEMA)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)[skipped:]
    struct = pa.RecordBatch.from_arrays([batch.to_struct_array()], names=["s"])
    for row, text, nested in zip(rows[skipped:], json_objects(batch).to_pylist(), json_objects(struct).to_pylist()):
        assert json.loads(text) == {name: wanted(value) for name, value in zip(SCHEMA.names, row)}
        assert json.loads(nested) == {"s": json.loads(text)}


def test_times_and_decimals() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    table = pa.table(
        {
            "at": pa.array([at, None], pa.timestamp("us", "UTC")),
            "local": pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
            "day": pa.array([date(2026, 1, 2), None]),
            "amount": pa.array([Decimal("-1.50"), None], pa.decimal128(38, 2)),
            "window": pa.array(
                [{"start": at, "end": None}, None],
                pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))]),
            ),
        }
    )
    first, second = (json.loads(text) for text in json_objects(table.to_batches()[0]).to_pylist())
    assert first == {
        "at": "2026-01-02T03:04:05.678901Z",
        "local": "2026-01-02T03:04:05.678901",
        "day": "2026-01-02",
        "amount": -1.5,
        "window": {"start": "2026-01-02T03:04:05.678901Z", "end": None},
    }
    assert set(second.values()) == {None}


def test_what_has_no_form_is_refused_by_its_name() -> None:
    with pytest.raises(AnalysisError, match="'raw' is binary"):
        check_json(pa.schema([("n", pa.int64()), ("raw", pa.binary())]))
