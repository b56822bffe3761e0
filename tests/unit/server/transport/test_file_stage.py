"""Frames that reach a server in a file: nothing is left of it, whatever happens to the sender."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.env.files import shared_file as shared_file
from tailrace.env.files.shared_file import SharedFile
from tailrace.operators.ingest.frame import Frame
from tailrace.server.transport.file_stage import FileStageWriter, StagedFile, StagedPart, frames_in
from tailrace.server.transport.stage_messages import StageKey

WORDS = 3


class Server:
    """Takes the calls that a writer sends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.announced: list[StagedFile] = []
        self.parts: list[StagedPart] = []

    def act(self, name: str, body: bytes) -> None:
        self.announced.append(StagedFile.from_json(body))

    def tell(self, name: str, body: bytes) -> None:
        self.parts.append(StagedPart.from_json(body))

    def writer(self, epoch: int = 4) -> FileStageWriter:
        return FileStageWriter(self.act, self.tell, str(self.folder), StageKey("run", "op", epoch, 0, 7, 1))

    def files(self) -> list[str]:
        """Those that somebody has: spare ones may lie about."""
        return [path.name for path in self.folder.iterdir() if not path.name.startswith("spare-")]

    def inodes(self) -> set[int]:
        return {path.stat().st_ino for path in self.folder.iterdir()}

    def receive(self, frame: Frame, epoch: int = 4) -> list[Frame]:
        with self.writer(epoch) as writer:
            writer.write(frame)
            writer.finish()
        return [Frame.from_batch(batch, WORDS) for batch in frames_in(str(self.folder), self.announced[-1])]


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
    (announced,) = server.announced
    back = [Frame.from_batch(batch, WORDS) for batch in frames_in(str(server.folder), announced)]
    assert [frame.checksum() for frame in back] == [frame.checksum() for frame in frames]
    assert (receipt.frames, receipt.rows) == (
        len(frames),
        sum(frame.n for frame in frames),
    ) and announced.receipt == receipt
    del back
    assert not server.files()


@given(st.lists(st.tuples(st.integers(1, 20), st.binary(max_size=19), st.booleans()), max_size=6))
def test_parts_are_the_same_frames(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[int, bytes, bool]]
) -> None:
    """However they are cut into parts, of which some hold several frames, and the last one none."""
    server = Server(tmp_path_factory.mktemp("server"))
    with server.writer() as writer:
        for rows, heap, cut in written:
            writer.write(frame_of(rows, heap))
            if cut:
                writer.part()
                writer.part()  # nothing was written since
        receipt = writer.finish()
    assert [part.number for part in server.parts] == list(range(sum(cut for *_, cut in written)))
    assert len(server.announced) == bool(written)
    back = []
    for announced in (*server.parts, *server.announced):
        back += [Frame.from_batch(batch, WORDS) for batch in frames_in(str(server.folder), announced)]
    assert [frame.checksum() for frame in back] == [frame_of(*each[:2]).checksum() for each in written]
    assert all((announced.receipt, announced.parts) == (receipt, len(server.parts)) for announced in server.announced)
    del back
    assert not server.files()


def test_a_file_is_private_and_goes_with_a_sender_that_gives_up(server: Server) -> None:
    with server.writer() as writer:
        writer.write(frame_of(3, b"abc"))
        (name,) = server.files()
        assert (server.folder / name).stat().st_mode & 0o777 == 0o600
    assert not server.announced


def test_files_of_dead_senders_are_swept_once_their_epoch_is_over(server: Server) -> None:
    for epoch in (3, 4):
        SharedFile(str(server.folder), epoch).close()
    shared_file.sweep(str(server.folder), 3)
    (left,) = server.files()
    assert left.startswith("handed-4-")
    shared_file.sweep(str(server.folder), 4)


@pytest.mark.parametrize("name", ["../handed-1-x", "handed-1/../../x", "log", "/etc/passwd"])
def test_no_other_file_is_taken(server: Server, name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        shared_file.take(str(server.folder), name)


def test_a_file_that_is_shorter_than_announced_is_refused(server: Server) -> None:
    with server.writer() as writer:
        writer.write(frame_of(3, b""))
        writer.finish()
    (announced,) = server.announced
    with pytest.raises(ValueError, match="holds"):
        frames_in(str(server.folder), replace(announced, sizes=(*announced.sizes, 8, 0, 8)))


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=19), st.integers(0, 3)), min_size=1, max_size=12))
def test_a_file_is_used_again_only_when_nothing_looks_at_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bytes, int]]
) -> None:
    """Frames of all sizes come; some are held for a while, and stay what they were."""
    server = Server(tmp_path_factory.mktemp("server"))
    held: list[tuple[list[Frame], int]] = []
    for number, (rows, heap, drop) in enumerate(steps):
        sent = frame_of(rows, heap + bytes([number]))
        held.append((server.receive(sent), sent.checksum()))
        del held[:drop]
        assert all([frame.checksum() for frame in frames] == [wanted] for frames, wanted in held)
        assert len(server.files()) == len(held)
    most = len(server.inodes())
    assert most <= len(steps)
    held.clear()
    assert not server.files() and len(server.inodes()) == most


def test_the_next_task_writes_into_the_pages_of_the_one_before(server: Server) -> None:
    for rows in (1000, 10, 3000):
        assert server.receive(frame_of(rows, b"abc"))[0].n == rows
    assert len(server.inodes()) == 1
    together = [server.receive(frame_of(rows, b"")) for rows in (5, 6)]
    assert len(server.inodes()) == 2
    assert [frames[0].n for frames in together] == [5, 6]


def test_spare_files_are_bounded_and_do_not_stay_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    together = [server.receive(frame_of(1000, b"")) for _ in range(4)]
    size = sum(path.stat().st_size for path in server.folder.iterdir()) // 4
    monkeypatch.setattr(shared_file, "SPARE_BYTES_MAX", 2 * size)
    together.clear()
    assert len(server.inodes()) == 2
    shared_file.sweep(str(server.folder), 11)
    assert len(server.inodes()) == 2
    shared_file.sweep(str(server.folder), 12)
    assert not server.inodes()


def test_a_file_that_a_dead_receiver_took_goes_after_a_while_and_a_living_one_keeps_its_bytes(server: Server) -> None:
    sent = frame_of(100, b"abc")
    frames = server.receive(sent, epoch=4)
    shared_file.sweep(str(server.folder), 11)
    assert len(server.files()) == 1
    shared_file.sweep(str(server.folder), 12)
    assert not server.files()
    assert frames[0].checksum() == sent.checksum()
    frames.clear()
    assert not server.inodes()


def test_frames_outlive_the_folder(tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    server.folder.mkdir()
    sent = frame_of(100, b"abc")
    frames = server.receive(sent)
    shutil.rmtree(server.folder)
    assert frames[0].checksum() == sent.checksum()
    del frames


def test_what_is_mapped_outlives_its_name(server: Server) -> None:
    with server.writer() as writer:
        writer.write(frame_of(1000, b"x" * 100))
        writer.finish()
    (batch,) = frames_in(str(server.folder), server.announced[0])
    assert isinstance(batch, pa.RecordBatch) and Frame.from_batch(batch, WORDS).n == 1000
