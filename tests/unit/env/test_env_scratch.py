"""Scratch files: what is written is what is mapped, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tailrace.env.scratch import ScratchFile, temporary_folder


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
