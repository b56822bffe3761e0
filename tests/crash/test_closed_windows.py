"""Windows that open and close through many epochs: what has closed is never read again, and restarts know the same.

Real operators, servers and compactions, over a store that counts what is read of it. The oracle is the operator itself,
without any disturbance.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator

import pytest

from support.crash.recovery import Fleet, Logs, durable, undisturbed
from support.crash.recovery_kinds import script_of, spec_of
from tailrace.commit.compaction.compaction import FAN_IN, CompactSections
from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.commit.max_pane import is_dead
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.server.checkpoint.checkpoint import StoreCheckpoint

EPOCHS = 44
RESTARTS = (13, 29, 40)


class Reads(CloudStore):
    """Objects that were read since the last call of ``taken``."""

    def __init__(self) -> None:
        super().__init__(f"memory://{short_id()}", {})
        self._names: set[str] = set()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._names.add(name)
        return super().get_range(name, start, length)

    def taken(self) -> set[str]:
        names, self._names = self._names, set()
        return {name for name in names if name.startswith("objects/")}


class Waiting(StoreCheckpoint):
    """Each compaction is done before the next epoch begins."""

    def compact(self, manifest: Manifest, shards: Iterable[int], snapshot: ShardSnapshot | None = None) -> None:
        super().compact(manifest, shards, snapshot)
        self._compactor.wait()


@pytest.fixture(scope="module")
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.mark.parametrize(
    "kind",
    [
        "windows",
        "rows by sliding window",
        "window join",
        pytest.param("rows of a user's windows", marks=pytest.mark.long),
        pytest.param("duplicates within", marks=pytest.mark.long),
        pytest.param("rows by window in lists", marks=pytest.mark.long),
        pytest.param("interval join", marks=pytest.mark.long),
    ],
)
def test_what_has_closed_is_never_read_again(scratch: str, kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, store, logs = random.Random(seed), Reads(), Logs()
    spec = spec_of(kind)
    script = script_of(spec, seed, EPOCHS)
    wanted = undisturbed(spec, script, scratch)
    controller, fleet, before = _start(store, logs, kind, scratch, rng)
    for epoch in range(EPOCHS):
        if epoch in RESTARTS:
            fleet.close()
            controller.close()
            controller, fleet, before = _start(store, logs, kind, scratch, rng)
        logs.offsets.append(epoch)
        emitted, committed = fleet.epoch(script, epoch, 0)
        assert emitted == wanted[epoch], f"epoch {epoch}"
        before = durable(controller, epoch, 0, committed)
        logs.commits.append(epoch)
        added = [ref for ref in before.objects if ref.last_epoch < epoch]
        assert not [ref for ref in added if is_dead(ref.max_pane, before.horizons)]
        store.taken()
        fleet.behind(before)
        assert not store.taken(), "there are few objects with open windows: nothing has to be folded"
        controller.clean()
        assert len(store.list("objects/")) <= 3 * FAN_IN
    fleet.close()
    controller.close()


def _start(store: Reads, logs: Logs, kind: str, scratch: str, rng: random.Random) -> tuple[Controller, Fleet, Manifest]:
    """A new driver and new servers, as many as it pleases. They read no object of closed windows."""
    controller = Controller.start(store, {"query": kind}, logs)
    manifest = controller.recovery_point.manifest
    fleet = Fleet(spec_of(kind), store, controller.run, scratch, rng)
    fleet.losses = 0.0

    def waiting(server: str, compact: CompactSections) -> StoreCheckpoint:
        return Waiting(store, controller.run, server, compact)

    fleet.checkpoint = waiting
    store.taken()
    fleet.place(manifest, 0)
    assert store.taken() <= {ref.name for ref in manifest.objects}
    return controller, fleet, manifest
