"""The rewind of Spark's logs, killed anywhere and repeated by the next start; then the machine loses its power."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stores.faulty import SimulatedCrash, SimulatedDisk
from tailrace.commit.spark_logs.log_files import SparkLogFolder

ROOT = Path("/checkpoint")


def checkpoint(disk: SimulatedDisk) -> SparkLogFolder:
    """Committed up to 4, planned up to 5; all of it synced long ago."""
    for log, newest in (("offsets", 5), ("commits", 4)):
        disk.make_folder(ROOT / log)
        for epoch in (newest - 1, newest):
            disk.write_synced(ROOT / log / str(epoch), [b"v1"])
        disk.sync_folder(ROOT / log)
    return SparkLogFolder(ROOT, disk)


def rewind(logs: SparkLogFolder) -> None:
    """As a start does it that finds epoch 3 durable: the offsets go first."""
    commits, offsets = logs.epochs("commits"), logs.epochs("offsets")
    if max(offsets) == 5:
        logs.move_to_backup("offsets/5")
    if max(commits) == 4:
        logs.move_to_backup("commits/4")


@pytest.mark.parametrize("killed_at", range(1, 20))
def test_a_rewind_that_was_killed_and_repeated_outlasts_the_power(killed_at: int) -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)
        logs = checkpoint(disk)
        disk.crash_at = disk.operations + killed_at
        try:
            rewind(logs)
        except SimulatedCrash:
            pass
        disk.crash_at, disk._crashed = -1, False  # the process was killed, and its machine lives
        rewind(logs)
        disk.restart()
        assert (max(logs.epochs("commits")), max(logs.epochs("offsets"))) == (3, 4), f"seed {seed}"


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert SparkLogFolder(tmp_path).epochs("offsets") == []
