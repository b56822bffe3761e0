"""Frames that reach a server in a file: nothing is left of it, whatever happens to the sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.env import handed_file
from tailrace.env.handed_file import HandedFile
from tailrace.operators.frame import Frame
from tailrace.server.file_stage import FileStageWriter, StagedFile, frames_in
from tailrace.server.protocol import StageKey

WORDS = 3


class Server:
    """Takes the calls that a writer sends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[StagedFile] = []

    def act(self, name: str, body: bytes) -> None:
        self.told.append(StagedFile.from_json(body))

    def writer(self, epoch: int = 4) -> FileStageWriter:
        return FileStageWriter(self.act, str(self.folder), StageKey("run", "op", epoch, 0, 7, 1))

    def files(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    yield Server(tmp_path)
    assert not Server(tmp_path).files(), "a file is left"


def frame_of(rows: int, heap: bytes) -> Frame:
    words = np.arange(rows * WORDS, dtype=np.int64).reshape(-1, WORDS)
    return Frame(words, np.frombuffer(heap, np.uint8).copy(), np.array([0, rows], np.int64))


@given(st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=19)), min_size=1, max_size=5))
def test_frames_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, bytes]]
) -> None:
    server = Server(tmp_path_factory.mktemp("server"))
    frames = [frame_of(*part) for part in parts]
    with server.writer() as writer:
        for frame in frames:
            writer.write(frame)
        receipt = writer.finish()
    (told,) = server.told
    back = [Frame.from_batch(batch, WORDS) for batch in frames_in(str(server.folder), told)]
    assert [frame.checksum() for frame in back] == [frame.checksum() for frame in frames]
    assert (receipt.frames, receipt.rows) == (len(frames), sum(frame.n for frame in frames)) and told.receipt == receipt
    assert not server.files()


def test_a_file_is_private_and_goes_with_a_sender_that_gives_up(server: Server) -> None:
    with server.writer() as writer:
        writer.write(frame_of(3, b"abc"))
        (name,) = server.files()
        assert (server.folder / name).stat().st_mode & 0o777 == 0o600
    assert not server.told


def test_files_of_dead_senders_are_swept_once_their_epoch_is_over(server: Server) -> None:
    for epoch in (3, 4):
        HandedFile(str(server.folder), epoch).close()
    handed_file.sweep(str(server.folder), 3)
    (left,) = server.files()
    assert left.startswith("handed-4-")
    handed_file.sweep(str(server.folder), 4)


@pytest.mark.parametrize("name", ["../handed-1-x", "handed-1/../../x", "log", "/etc/passwd"])
def test_no_other_file_is_taken(server: Server, name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        handed_file.take(str(server.folder), name)


def test_a_file_that_is_shorter_than_told_is_refused(server: Server) -> None:
    with server.writer() as writer:
        writer.write(frame_of(3, b""))
        writer.finish()
    (told,) = server.told
    with pytest.raises(ValueError, match="holds"):
        frames_in(str(server.folder), replace(told, sizes=(*told.sizes, 8, 0, 8)))


def test_what_is_mapped_outlives_its_name(server: Server) -> None:
    with server.writer() as writer:
        writer.write(frame_of(1000, b"x" * 100))
        writer.finish()
    (batch,) = frames_in(str(server.folder), server.told[0])
    assert isinstance(batch, pa.RecordBatch) and Frame.from_batch(batch, WORDS).n == 1000
