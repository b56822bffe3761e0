"""Outputs that reach a sink's task in a file: all rows, any number of readers, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.env.files import shared_file as shared_file
from tailrace.server.transport import file_output as file_output
from tailrace.server.transport.file_output import handed, taken

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("window", pa.struct([("start", pa.int64())]))])
_rows = st.lists(
    st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=9), st.integers(0, 9)),
    max_size=6,
)


def batch_of(rows: list[tuple[int | None, str | None, int]]) -> pa.RecordBatch:
    made = [{"n": n, "text": text, "window": {"start": start}} for n, text, start in rows]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


@given(st.lists(_rows, min_size=1, max_size=4), st.integers(1, 3))
def test_every_reader_gets_all_rows(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[int | None, str | None, int]]], readers: int
) -> None:
    folder = tmp_path_factory.mktemp("server")
    batches = [batch_of(rows) for rows in parts]
    names = [handed(batches, str(folder), 3) for _ in range(readers)]
    for name in names:
        assert name is not None
        assert list(taken(str(folder), name)) == batches
    assert all(path.name.startswith("spare-") for path in folder.iterdir())


def test_a_shorter_output_after_a_longer_one_is_all_that_is_read(tmp_path: Path) -> None:
    for rows in (1000, 3, 500, 0):
        sent = [batch_of([(number, str(rows), 0) for number in range(rows)])]
        name = handed(sent, str(tmp_path), 1)
        assert name is not None
        assert list(taken(str(tmp_path), name)) == sent
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_too_large_or_nothing_goes_as_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch_of([(1, "a", 0)])
    assert handed([], str(tmp_path), 0) is None
    monkeypatch.setattr(file_output, "MOST_BYTES", one.nbytes)
    assert handed([one, one], str(tmp_path), 0) is None
    assert not list(tmp_path.iterdir())
    assert handed([one], str(tmp_path), 0) is not None


def test_a_file_outlives_the_forgetting_of_its_epoch_and_no_more(tmp_path: Path) -> None:
    name = handed([batch_of([(1, "a", 0)])], str(tmp_path), 5)
    assert name is not None
    for forgotten in (4, 5, 6):  # a sink may still read it
        shared_file.sweep(str(tmp_path), forgotten)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    shared_file.sweep(str(tmp_path), 7)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        list(taken(str(tmp_path), name))


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, batches: object, bytes_max: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(shared_file.SharedFile, "write_batches", full)
    with pytest.raises(OSError, match="no space"):
        handed([batch_of([(1, "a", 0)])], str(tmp_path), 0)
    assert not list(tmp_path.iterdir())
