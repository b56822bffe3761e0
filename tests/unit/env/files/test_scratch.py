"""Scratch files: what is written is what is mapped, and nothing is left behind."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from tailrace.env.files import scratch
from tailrace.env.files.scratch import ScratchFile, temporary_folder, temporary_in


def test_what_is_written_is_what_is_mapped(tmp_path: Path) -> None:
    file = ScratchFile(str(tmp_path))
    words, text = np.arange(12).reshape(3, 4), np.frombuffer(b"hello", np.uint8)
    file.write(words[:, ::-1], 0)
    file.write(text, 10_000)
    file.write(np.empty((0, 4), np.int64), 96)
    assert file.nbytes == 96 + 5
    assert (file.mapped(np.int64, 0, 12).reshape(3, 4) == words[:, ::-1]).all()
    assert file.mapped(np.uint8, 10_000, 5).tobytes() == b"hello"
    assert len(file.mapped(np.int64, 0, 0)) == 0
    assert file.mapped(np.int64, 0, 12).flags.writeable, "kernels are compiled for writable arrays only"
    file.close()


def test_a_file_has_no_name_and_outlives_its_object_only_while_mapped(tmp_path: Path) -> None:
    file = ScratchFile(str(tmp_path))
    file.write(np.arange(1000), 0)
    mapped = file.mapped(np.int64, 0, 1000)
    assert os.listdir(tmp_path) == []
    file.close()
    assert file.nbytes == 0 and mapped[999] == 999
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    del mapped
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_sealed_arrays_share_one_mapping_that_can_be_let_go(tmp_path: Path) -> None:
    file = ScratchFile(str(tmp_path))
    file.write(np.arange(100_000), 8192)
    first, nothing, second = file.sealed((np.int64, 8192, 100_000), (np.uint8, 0, 0), (np.int64, 16384, 10))
    assert len(nothing) == 0 and (first == np.arange(100_000)).all() and second[0] == 1024
    mappings = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    assert len(mappings) == 1
    file.release()
    assert (first == np.arange(100_000)).all(), "it comes back from the disk"
    with pytest.raises(AssertionError):
        file.write(np.arange(3), 0)
    file.close()
    file.release()
    assert first[99_999] == 99_999
    empty = ScratchFile(str(tmp_path))
    assert [len(array) for array in empty.sealed((np.int64, 0, 0))] == [0]
    empty.close()


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:7], at))
    file = ScratchFile(str(tmp_path))
    file.write(np.arange(100), 16)
    assert (file.mapped(np.int64, 16, 100) == np.arange(100)).all()
    file.close()


def test_a_temporary_folder_is_private_and_goes() -> None:
    with temporary_folder() as path:
        assert os.stat(path).st_mode & 0o077 == 0
        Path(path, "x").write_text("x")
    assert not os.path.exists(path)


def test_temporary_folders_lie_where_a_process_says(tmp_path: Path) -> None:
    temporary_in(str(tmp_path))
    try:
        with temporary_folder() as folder:
            assert Path(folder).parent == tmp_path
        assert os.listdir(tmp_path) == []
    finally:
        temporary_in(None)
    with temporary_folder() as folder:
        assert Path(folder).parent != tmp_path


def test_a_folder_that_is_being_filled_is_removed(tmp_path: Path) -> None:
    """As by a server that ends while a thread of it warms up, and makes and removes folders in it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    begun, enough = threading.Event(), threading.Event()

    def fill() -> None:
        while not enough.is_set():
            try:
                tempfile.mkdtemp(dir=folder)
            except FileNotFoundError:
                return
            begun.set()

    filler = threading.Thread(target=fill)
    filler.start()
    assert begun.wait(10)
    scratch.remove_tree(str(folder))
    left = list(tmp_path.iterdir())
    enough.set()
    filler.join(10)
    assert left == []
    scratch.remove_tree(str(folder))  # of none
