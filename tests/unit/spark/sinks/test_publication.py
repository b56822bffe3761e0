"""Publishing an epoch's files: what is decided where no file is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.commit.sink_manifest import SinkManifests
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, FencedError
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.files.places import LocalPlace
from tailrace.spark.sinks.files.publication import Publication

AT = SinkEpoch(3, 0, False)


@pytest.fixture
def manifests(tmp_path: Path) -> SinkManifests:
    return SinkManifests(LocalStore(tmp_path / "state"), "output")


@pytest.fixture
def publication(tmp_path: Path, manifests: SinkManifests) -> Publication:
    run = SinkRun("0" * 16, 2, LocalStore(tmp_path / "state"), lambda _: None)
    return Publication(LocalPlace(tmp_path / "out"), manifests, run)


def test_rows_that_were_written_and_are_not_found_are_an_error(
    publication: Publication, manifests: SinkManifests, tmp_path: Path
) -> None:
    """Executors have disks of their own: the epoch must not pass for one without rows, and its rows be lost."""
    folder = publication.stage(AT)
    with pytest.raises(
        CheckpointError, match=r"wrote 7 rows of epoch 3 .* choose a path that driver and executors share"
    ):
        publication.publish(AT, lambda: 7)
    assert manifests.read(3) is None
    file = tmp_path / "out" / folder / "part-0"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"rows")
    publication.publish(AT, lambda: 7)
    assert (tmp_path / "out" / "tailrace_epoch=3" / "part-0").read_bytes() == b"rows"


def test_a_run_whose_files_its_successor_has_swept_says_that_it_was_replaced(
    manifests: SinkManifests, tmp_path: Path
) -> None:
    def replaced(_: float) -> None:
        raise FencedError("another run took over")

    run = SinkRun("0" * 16, 2, LocalStore(tmp_path / "state"), replaced)
    publication = Publication(LocalPlace(tmp_path / "out"), manifests, run)
    publication.stage(AT)
    with pytest.raises(FencedError, match="another run took over"):
        publication.publish(AT, lambda: 7)


def test_an_epoch_without_rows_has_no_files_and_decides_nothing(
    publication: Publication, manifests: SinkManifests, tmp_path: Path
) -> None:
    publication.stage(AT)
    publication.publish(AT, lambda: 0)
    assert manifests.read(3) is None and not (tmp_path / "out" / "tailrace_epoch=3").exists()
