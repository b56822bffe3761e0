"""Strings of records: what does not fit is refused, and never cut off."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tailrace.state.rows import columns
from tailrace.types import DataType

STRING = DataType("string")


def test_a_value_that_is_too_long_for_a_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length has four bytes in a record: of a longer one the rest would be taken for other values."""
    monkeypatch.setattr(columns, "STRING_BYTES_MAX", 5)
    words, heap = columns.string_heap(pa.array(["12345", "1234"]), None, 0)
    assert columns.decode(words[:1], None, heap, STRING).to_pylist() == ["12345"]
    with pytest.raises(OverflowError, match="a value of 6 bytes"):
        columns.string_heap(pa.array(["1", "123456"]), None, 0)


def test_a_batch_of_more_strings_than_its_offsets_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    words, heap = columns.string_heap(pa.array(["123", "456"]), None, 0)
    monkeypatch.setattr(columns, "STRING_BYTES_MAX", 5)
    assert columns.decode(words, None, heap, STRING, large=True).to_pylist() == ["123", "456"]
    assert columns.decode(words, np.array([True, False]), heap, STRING).to_pylist() == ["123", None]
    with pytest.raises(OverflowError, match="6 bytes in one batch"):
        columns.decode(words, None, heap, STRING)
