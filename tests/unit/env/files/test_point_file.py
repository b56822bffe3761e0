"""Files read in small parts, while others close them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tailrace.env.files import point_file
from tailrace.env.files.point_file import BLOCK, PointFile
from tailrace.env.files.scratch import ScratchFile


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_that_is_closed_while_it_is_read_gives_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    """The next file that is opened gets the smallest free descriptor: that of a file which was just closed."""
    mine, other = ScratchFile(str(tmp_path)), tmp_path / "other"
    mine.write(np.full(2 * BLOCK, 7, np.uint8), 0)
    other.write_bytes(bytes([9]) * 2 * BLOCK)
    before = open_descriptors()
    file = mine.points(direct=direct)
    real = point_file._read_blocks

    def beside_a_close(descriptor: int, blocks: np.ndarray, out: np.ndarray) -> int:
        file.close()
        with other.open("rb"):
            return int(real(descriptor, blocks, out))

    monkeypatch.setattr(point_file, "_read_blocks", beside_a_close)
    buffer, places = file.gather(np.array([5, BLOCK + 1]), np.array([3, 3]))
    assert (buffer[places[:, None] + np.arange(3)] == 7).all()
    assert open_descriptors() == before, "closed with the last reader"
    with pytest.raises(OSError, match="closed"):
        file.gather(np.array([0]), np.array([1]))
    mine.close()


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_that_nobody_reads_is_closed_at_once(tmp_path: Path, direct: bool) -> None:
    mine = ScratchFile(str(tmp_path))
    mine.write(np.full(BLOCK, 7, np.uint8), 0)
    before = open_descriptors()
    file: PointFile = mine.points(direct=direct)
    file.close()
    file.close()
    assert open_descriptors() == before
    mine.close()
