"""The manifests of a file sink: what a driver goes by outlasts a loss of power, whoever has put it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stores.faulty import SimulatedDisk
from tailrace.commit.sink_manifest import SinkManifest, SinkManifests
from tailrace.env.stores.local_store import LocalStore

ROOT = Path("/state")
WRITTEN = SinkManifest(3, "_tailrace/of-a-run", ("part-0", "k=1/part-1"))


class Killed(BaseException):
    """The writer's process, not its machine."""


class DiesBeforeTheSync(SimulatedDisk):
    """Shared by processes, of which one is killed when the manifest has its name, and the folder is not synced."""

    armed = True

    def sync_folder(self, path: Path) -> None:
        if self.armed:
            self.armed = False
            raise Killed
        super().sync_folder(path)


@pytest.mark.parametrize("seed", range(6))
def test_what_a_killed_driver_has_decided_lasts_once_another_goes_by_it(seed: int) -> None:
    disk = DiesBeforeTheSync(seed)
    with pytest.raises(Killed):
        SinkManifests(LocalStore(ROOT, disk), "output").put(WRITTEN)
    assert SinkManifests(LocalStore(ROOT, disk), "output").decided(3) == WRITTEN
    disk.restart()  # the machine has lost its power
    assert SinkManifests(LocalStore(ROOT, disk), "output").decided(3) == WRITTEN


def test_an_epoch_that_nobody_has_decided() -> None:
    assert SinkManifests(LocalStore(ROOT, SimulatedDisk(0)), "output").decided(3) is None
