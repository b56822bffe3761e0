"""Records read one by one are those that were written: strings short and long, close together and far apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.layout import VALID, Merge, record_layout
from tailrace.state.rows.arrange import take
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows
from tailrace.state.segments import row_buffer as row_buffer
from tailrace.state.segments.point_reads import PointRows, read_records
from tailrace.state.segments.row_buffer import RowBuffer
from tailrace.types import BIGINT, DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.MAX, STRING)] * 3, ansi=False)
_LENGTHS = st.none() | st.sampled_from([0, 1, 7, 300, 1_015, 1_016, 1_020, 1_024, 1_030, 3_000]) | st.integers(0, 2_000)


def rows_of(lengths: list[tuple[int | None, ...]]) -> Rows:
    builder = RowsBuilder(len(lengths), LAYOUT)
    builder.put(pa.array(range(len(lengths)), pa.int64()), BIGINT, LAYOUT.keys[0].word, LAYOUT.keys[0].bit)
    for column, place in enumerate(LAYOUT.accumulators):
        own = [
            None if each[column] is None else chr(97 + n % 26) * int(each[column] or 0)
            for n, each in enumerate(lengths)
        ]
        builder.put(pa.array(own, pa.string()), STRING, place.word, place.bit)
    return builder.finish()


def written(folder: Path, rows: Rows) -> tuple[ScratchFile, ScratchFile]:
    words, heap = ScratchFile(str(folder)), ScratchFile(str(folder))
    words.write(rows.words, 0)
    heap.write(rows.heap, 0)
    return words, heap


def texts(rows: Rows) -> list[list[bytes | None]]:
    found = []
    for words in rows.words:
        own: list[bytes | None] = []
        for word, bit in LAYOUT.bytes_words:
            start = int(words[word])
            length = int(rows.heap[start : start + 4].copy().view(np.uint32)[0]) if words[VALID] >> bit & 1 else 0
            own.append(rows.heap[start + 4 : start + 4 + length].tobytes() if words[VALID] >> bit & 1 else None)
        found.append(own)
    return found


@settings(max_examples=60)
@given(st.lists(st.tuples(_LENGTHS, _LENGTHS, _LENGTHS), min_size=1, max_size=30), st.data(), st.booleans())
def test_copies_are_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[tuple[int | None, ...]],
    data: st.DataObject,
    direct: bool,
) -> None:
    """The builder writes strings column by column: those of a row lie far apart."""
    rows = rows_of(lengths)
    if data.draw(st.booleans(), "row by row"):
        rows = take(rows, np.arange(len(lengths)), LAYOUT)
    files = written(tmp_path_factory.mktemp("rows"), rows)
    points = PointRows(LAYOUT, *files, direct=direct)
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), unique=True).map(sorted), "at")
    for at in (np.array(chosen, np.int64), np.arange(len(lengths))):  # the second time it knows how long strings are
        found, wanted = copied(points, at), take(rows, at, LAYOUT)
        assert texts(found) == texts(wanted)
        plain = [w for w in range(LAYOUT.words) if w not in LAYOUT.bytes_words[:, 0]]
        assert (found.words[:, plain] == wanted.words[:, plain]).all()
    points.close()
    for file in files:
        file.close()


def copied(points: PointRows, at: np.ndarray) -> Rows:
    room = RowBuffer(LAYOUT, len(at), points.heap_bytes(len(at)))
    read_records([(points, at)], room)
    return room.rows()


@pytest.mark.parametrize("direct", [(False, False, False), (False, True, False), (True, True, True)])
def test_parts_lie_behind_each_other(tmp_path: Path, direct: tuple[bool, ...]) -> None:
    """Of three files, one of which nothing is wanted, and of rows in memory; there is room for no string yet."""
    made = [rows_of([(length, None, 2)] * 20) for length in (5, 300, 3000, 0)]
    files = [written(tmp_path, rows) for rows in made[:3]]
    points = [PointRows(LAYOUT, *each, direct=own) for each, own in zip(files, direct, strict=True)]
    room, at = RowBuffer(LAYOUT, 40), [np.arange(3, 18), np.empty(0, np.int64), np.array([0, 1, 5, 19])]
    read_records(list(zip(points, at, strict=True)), room)
    room.add(take(made[3], np.arange(10), LAYOUT))
    wanted = [take(rows, own, LAYOUT) for rows, own in zip(made, [*at, np.arange(10)], strict=True)]
    found = room.rows()
    assert texts(found) == [text for rows in wanted for text in texts(rows)]
    key = LAYOUT.keys[0].word
    assert found.words[:, key].tolist() == [number for rows in wanted for number in rows.words[:, key].tolist()]
    for each in points:
        each.close()


def test_a_file_that_ends_too_early_is_reported(tmp_path: Path) -> None:
    rows = rows_of([(5, 5, 5)] * 10)
    words, heap = written(tmp_path, Rows(rows.words, rows.heap[:60]))
    points = PointRows(LAYOUT, words, heap, direct=False)
    with pytest.raises(OSError, match="cannot be read any more"):
        copied(points, np.arange(10))
    with pytest.raises(OSError, match="cannot be read any more"):
        copied(points, np.array([10]))
    points.close()


def test_one_long_string_does_not_make_room_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_buffer, "_HEAP_BYTES", 10_000)
    rows = rows_of([(100_000, None, None), *[(3, None, None)] * 500])
    points = PointRows(LAYOUT, *written(tmp_path, rows), direct=False)
    copied(points, np.array([0]))
    real, requested = np.empty, []

    def empty(shape: object, *more: object) -> np.ndarray:
        requested.append(shape)
        return real(shape, *more)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(np, "empty", empty)
    assert len(copied(points, np.arange(1, 501))) == 500
    assert max(each for each in requested if isinstance(each, int)) < 20_000
    points.close()
