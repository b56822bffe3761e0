"""What a task learns of its keys, by which it is decided whether tasks combine."""

from __future__ import annotations

import numpy as np
import pytest

from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.rows.keyed import sample
from tailrace.state.layout import HASH, Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, Field

LAYOUT = record_layout((Field("k", BIGINT),), [(Merge.ROW, BIGINT)], ansi=False)


def rows_of(keys: np.ndarray) -> Rows:
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, HASH] = keys * -7046029254386353131
    words[:, LAYOUT.keys[0].word] = keys
    return Rows(words, np.empty(0, np.uint8))


@pytest.mark.parametrize("kept", [1, 10])
@pytest.mark.parametrize("hot_key", [-1, -2, -3, -4])
def test_a_key_with_half_of_the_rows_is_seen(hot_key: int, kept: int) -> None:
    """Whichever it is: so tasks combine, or do not, in every run alike."""
    counts = IngestCounts()
    sample(rows_of(np.where(np.arange(8_000) % 2, hot_key, np.arange(8_000))), LAYOUT, counts, kept)
    assert (counts.sampled_rows, counts.sampled_keys) == (8_000, 4_000 + kept)


def test_of_very_many_rows_some_keys_are_looked_at() -> None:
    counts = IngestCounts()
    sample(rows_of(np.arange(200_000) % 20_000), LAYOUT, counts)
    assert 5_000 < counts.sampled_rows < 20_000
    assert counts.sampled_keys * 10 == counts.sampled_rows
