"""A segment of spilled records that cannot be finished leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from support.stores.spilled_keys import LAYOUT, records
from tailrace.state.segments import writer as segment_writer
from tailrace.state.segments.writer import DiskWriter


def test_no_descriptor_stays_open_where_the_files_cannot_be_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(segment_writer, "mapped", too_many)
    before = len(os.listdir("/proc/self/fd"))
    writer = DiskWriter(LAYOUT, str(tmp_path), direct=True)
    writer.add(0, [(records(np.arange(10)), np.arange(10), np.zeros(10, bool))])
    with pytest.raises(OSError, match="too many"):
        writer.finish()
    writer.close()
    assert len(os.listdir("/proc/self/fd")) == before
