"""A frame that keeps arrivals has the order in which rows came, also after it was split, sent and read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.operators.ingest.frame import Frame, arrival_order, by_shard, split
from tailrace.state.layout import HASH, Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("key", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
SHARDS = 8


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), st.integers(1, SHARDS - 1))
def test_rows_are_put_back_into_the_order_of_their_arrival(hashes: list[int], cut: int) -> None:
    words = np.zeros((len(hashes), LAYOUT.words), np.int64)
    words[:, HASH] = hashes
    frame = by_shard(Rows(words, np.empty(0, np.uint8)), SHARDS, keep_arrivals=True)
    for part in split(frame, LAYOUT, [(0, cut), (cut, SHARDS)]):
        sent = Frame.from_batch(part.to_batch(), LAYOUT.words)
        assert (sent.n, sent.nbytes, sent.checksum()) == (part.n, part.nbytes, part.checksum())
        expected = [
            each for each in hashes if (each % SHARDS < cut) == (part.n > 0 and int(part.rows[0, 0]) % SHARDS < cut)
        ]
        assert sent.rows[arrival_order(sent), HASH].tolist() == (expected if part.n else [])


def test_without_arrivals_rows_stay_as_they_are() -> None:
    words = np.zeros((4, LAYOUT.words), np.int64)
    words[:, HASH] = [3, 2, 1, 0]
    frame = by_shard(Rows(words, np.empty(0, np.uint8)), SHARDS)
    assert len(frame.arrivals) == 0 and frame.rows[arrival_order(frame), HASH].tolist() == [0, 1, 2, 3]
    kept = by_shard(Rows(words, np.empty(0, np.uint8)), SHARDS, keep_arrivals=True)
    assert kept.checksum() != frame.checksum() and kept.nbytes == frame.nbytes + 32
