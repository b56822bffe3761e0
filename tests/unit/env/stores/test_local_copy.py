"""A far store with copies: written here first, uploaded from here, read from here while they last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.manual_clock import StillClock
from tailrace.env import clock
from tailrace.env.files import scratch
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.env.stores.local_copy import PIECE_BYTES, CopiedStore, copies_of
from tailrace.env.stores.local_store import LocalStore


@pytest.fixture
def far() -> CloudStore:
    return CloudStore(f"memory://{short_id()}", {})


@pytest.fixture
def store(far: CloudStore, tmp_path: Path) -> CopiedStore:
    return CopiedStore(far, LocalStore(tmp_path / "copies"))


def test_what_is_saved_is_in_the_store_only_after_its_upload(far: CloudStore, store: CopiedStore) -> None:
    store.copies.put("objects/a", [b"12", b"345"])
    with pytest.raises(FileNotFoundError):
        far.get("objects/a")
    assert store.get("objects/a") == b"12345"
    assert store.upload("objects/a") == 5
    assert far.get("objects/a") == b"12345"


def test_a_large_one_is_uploaded_whole(far: CloudStore, store: CopiedStore) -> None:
    data = os.urandom(2 * PIECE_BYTES + 17)
    store.put("objects/a", [data])
    assert far.get("objects/a") == data


def test_reading_prefers_the_copy_and_falls_back_to_the_store(far: CloudStore, store: CopiedStore) -> None:
    store.put("objects/a", [b"same bytes"])
    far.put("objects/a", [b"not asked!"])
    assert store.get("objects/a") == b"same bytes"
    assert store.get_range("objects/a", 5, 5) == b"bytes"
    assert store.drop(["objects/a", "objects/missing"]) == ["objects/a"]
    assert store.get_range("objects/a", 0, 3) == b"not"
    with pytest.raises(FileNotFoundError):
        store.get("objects/missing")


def test_an_upload_without_a_copy_is_refused_and_leaves_nothing(far: CloudStore, store: CopiedStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.upload("objects/a")
    assert far.list("") == []


def test_of_what_others_left_only_what_is_wanted_is_kept(store: CopiedStore) -> None:
    for name in ("objects/1-old-x", "objects/2-old-x", "objects/2-mine-x"):
        store.copies.put(name, [b"."])
    store.drop_others(["objects/1-old-x"], sparing="-mine-")
    assert [each.name for each in store.copies.list("objects/")] == ["objects/1-old-x", "objects/2-mine-x"]


def test_two_stores_have_two_places_and_one_store_always_the_same(far: CloudStore, tmp_path: Path) -> None:
    other = CloudStore("memory://other", {})
    assert copies_of(far, str(tmp_path)).root != copies_of(other, str(tmp_path)).root
    assert copies_of(far, str(tmp_path)).root == copies_of(far, str(tmp_path)).root


def test_copies_in_the_temporary_folder_are_private_and_go_when_nobody_came_back(
    far: CloudStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    time, day = StillClock(), 86_400
    with clock.use(time):
        left, used = (copies_of(CloudStore(f"memory://{name}", {}), None) for name in ("abandoned", "used"))
        for each in (left, used):
            each.put("objects/a", [b"."])
        assert left.root.parent.stat().st_mode & 0o077 == 0
        copies_of(far, None)
        time.jumped += 1000 * day
        copies_of(far, None)
        assert left.root.exists(), "by the wall clock alone nothing grows old"
        for _ in range(2):
            time.at += 4 * day
            used.put(f"objects/{time.at}", [b"."])
            copies_of(far, None)
        assert used.root.exists() and not left.root.exists()


def test_a_machine_that_was_started_anew_counts_what_it_has_seen(
    far: CloudStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    time, day = StillClock(), 86_400
    with clock.use(time):
        left = copies_of(CloudStore("memory://abandoned", {}), None)
        left.put("objects/a", [b"."])
        time.at = 500 * day
        copies_of(far, None)
        for up, stays in ((4 * day, True), (5 * day, True), (3 * day, False)):  # seen: 4, 5, then 8 days
            time.at = up
            copies_of(far, None)
            assert left.root.exists() == stays, up
