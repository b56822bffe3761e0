"""Folders whose makers are killed: their names last once another process has asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.env.files.disk import Disk


class Killed(BaseException):
    pass


class Watched(Disk):
    """Notes what is synced. Its process is killed in the sync after so many of them."""

    def __init__(self, syncs: int = 1000) -> None:
        self.synced: set[Path] = set()
        self._left = syncs

    def sync_folder(self, path: Path) -> None:
        if not self._left:
            raise Killed
        self._left -= 1
        super().sync_folder(path)
        self.synced.add(path)


@pytest.mark.parametrize("syncs", range(1, 4))
def test_a_folder_lasts_whose_maker_was_killed(tmp_path: Path, syncs: int) -> None:
    folder = tmp_path / "a" / "b" / "c"
    first, second = Watched(syncs), Watched()
    with pytest.raises(Killed):
        first.make_folder(folder)
    second.make_folder(folder)
    assert folder.is_dir()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= first.synced | second.synced


def test_a_folder_whose_parent_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the home folders of others: what is there is used."""

    def refused(self: Disk, path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Disk, "sync_folder", refused)
    Disk().make_folder(tmp_path)
