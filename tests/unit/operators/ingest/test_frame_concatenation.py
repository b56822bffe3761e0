"""Small frames put together hold the same rows, with the same strings, in the same order within each shard."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.operators.ingest import frame as module
from tailrace.operators.ingest.frame import Frame, by_shard, gathered
from tailrace.state.layout import HASH, VALID, Merge, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.types import BIGINT, DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.MAX, STRING), (Merge.MAX, STRING)], ansi=False)
SHARDS = 5
Row = tuple[int, str | None, str | None]


def frame_of(rows: list[Row], *, arrivals: bool = False) -> Frame:
    builder = RowsBuilder(len(rows), LAYOUT)
    keys, *texts = zip(*rows, strict=True) if rows else ((), (), ())
    builder.put(pa.array(keys, pa.int64()), BIGINT, LAYOUT.keys[0].word, LAYOUT.keys[0].bit)
    for place, text in zip(LAYOUT.accumulators, texts, strict=True):
        builder.put(pa.array(text, pa.string()), STRING, place.word, place.bit)
    made = builder.finish()
    made.words[:, HASH] = made.words[:, LAYOUT.keys[0].word]
    return by_shard(made, SHARDS, keep_arrivals=arrivals)


def rows_of(frame: Frame) -> list[list[Row]]:
    """By shard, as they lie there."""

    def text(words: np.ndarray, place: int) -> str | None:
        at = LAYOUT.accumulators[place]
        if not words[VALID] >> at.bit & 1:
            return None
        start = int(words[at.word])
        length = int(frame.heap[start : start + 4].view(np.uint32)[0])
        return frame.heap[start + 4 : start + 4 + length].tobytes().decode()

    found = []
    for shard in range(SHARDS):
        own = frame.rows[frame.bounds[shard] : frame.bounds[shard + 1]]
        found.append([(int(words[LAYOUT.keys[0].word]), text(words, 0), text(words, 1)) for words in own])
    return found


_TEXT = st.none() | st.text(max_size=6)
_ROWS = st.lists(st.tuples(st.integers(0, 30), _TEXT, _TEXT), max_size=8)


@given(st.lists(_ROWS, max_size=7), st.integers(0, 8), st.integers(1, 60))
def test_rows_of_a_shard_stay_as_they_were(parts: list[list[Row]], small: int, together: int) -> None:
    frames = [frame_of(rows) for rows in parts]
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(module, "_SMALL_ROWS", small)
        patches.setattr(module, "_TOGETHER_ROWS", together)
        found = gathered(frames, LAYOUT)
    expected = [[row for frame in frames for row in rows_of(frame)[shard]] for shard in range(SHARDS)]
    assert [[row for frame in found for row in rows_of(frame)[shard]] for shard in range(SHARDS)] == expected
    assert all(len(frame.bounds) == SHARDS + 1 for frame in found)
    assert all(frame.n <= max(small, together) or any(frame is one for one in frames) for frame in found)
    if small >= 8 and sum(map(len, parts)) <= together:
        assert len(found) <= 1


def test_frames_that_tell_their_arrivals_stay_alone() -> None:
    frames = [frame_of([(1, "a", None)]), frame_of([(2, "b", None)], arrivals=True), frame_of([(3, "c", "d")])]
    found = gathered(frames, LAYOUT)
    assert [frame.n for frame in found] == [1, 1, 1] and found[1] is frames[1]
    assert gathered([], LAYOUT) == [] and gathered([frame_of([])], LAYOUT) == []
