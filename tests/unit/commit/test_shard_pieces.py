"""Sections of a shard that are cut by key: nothing is lost or torn apart, and little of it is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.commit import shard_pieces
from tailrace.commit.shard_pieces import in_pieces
from tailrace.env.files.scratch import SpilledBatches

_SCHEMA = pa.schema([("__gone", pa.bool_()), ("__hash", pa.int64()), ("n", pa.int64())])
_sections = st.lists(st.lists(st.lists(st.integers(-9, 9), max_size=8), min_size=1, max_size=3), max_size=5)


def _numbered(sections: list[list[list[int]]]) -> list[tuple[int, pa.RecordBatch]]:
    """Sections of batches of hashes; each row knows its place."""
    out, place = [], 0
    for number, batches in enumerate(sections):
        for hashes in batches:
            rows = {"__gone": [False] * len(hashes), "__hash": hashes, "n": list(range(place, place + len(hashes)))}
            place += len(hashes)
            out.append((number, pa.RecordBatch.from_pydict(rows, schema=_SCHEMA)))
    return out


@given(_sections, st.integers(1, 30))
def test_pieces_are_all_rows_of_their_keys_in_order(sections: list[list[list[int]]], count: int) -> None:
    batches = _numbered(sections)
    pieces = list(in_pieces(iter(batches), 0, count * shard_pieces.PIECE_BYTES))
    assert len(pieces) == count
    where: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for number, piece in enumerate(pieces):
        rows = [(row["__hash"], row["n"]) for batch in piece for row in batch.to_pylist()]
        assert [place for _, place in rows] == sorted(place for _, place in rows)
        assert all(where.setdefault(hash_, number) == number for hash_, _ in rows), "a key in two pieces"
        found += rows
    assert sorted(place for _, place in found) == list(range(sum(len(batch) for _, batch in batches)))


def test_a_section_is_one_batch_of_a_piece() -> None:
    batches = _numbered([[[1, 2], [3]], [[1]], [[2], [2]]])
    for count in (1, 2):
        for piece in in_pieces(iter(batches), 0, count * shard_pieces.PIECE_BYTES):
            assert len(piece) <= 3
    (whole,) = in_pieces(iter(batches), 6, 100)
    assert [len(section) for section in whole] == [3, 1, 2]


def test_no_more_than_a_batch_and_a_piece_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_pieces, "PIECE_ROWS", 1_000)
    before = pa.total_allocated_bytes()
    peak = 0

    def sections() -> Iterator[tuple[int, pa.RecordBatch]]:
        for number in range(100):
            hashes = np.random.default_rng(number).integers(-(2**63), 2**63 - 1, 1_000)
            flags = pa.array(np.zeros(1_000, bool))
            yield number, pa.RecordBatch.from_arrays([flags, pa.array(hashes), pa.array(hashes)], schema=_SCHEMA)

    rows = 0
    for piece in in_pieces(sections(), 100_000, 0):
        assert 0 < sum(map(len, piece)) < 1_500
        rows += sum(map(len, piece))
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 100_000
    assert peak < 100_000


def test_the_files_go_when_the_reader_stops_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    close = SpilledBatches.close
    monkeypatch.setattr(SpilledBatches, "close", lambda self: (closed.append(self), close(self)))
    pieces = in_pieces(iter(_numbered([[list(range(50))]])), 0, 4 * shard_pieces.PIECE_BYTES)
    next(pieces)
    pieces.close()
    assert len(closed) == 4


def test_a_section_without_hashes_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1]})
    with pytest.raises(ValueError, match="cannot be cut by its keys"):
        list(in_pieces(iter([(0, batch)]), 0, 2 * shard_pieces.PIECE_BYTES))
