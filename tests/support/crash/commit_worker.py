"""A child process that commits epochs in a loop until it is killed.

``python -m support.crash.commit_worker folder servers``.

Spark's logs are two folders of empty files, written as Spark does: the offset before the epoch, the commit after it.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from support.models.commit import State, compact_newest, sections, split
from support.models.spark_logs import spark_logs
from tailrace.commit.compaction.compaction import Compactor
from tailrace.commit.controller import Controller
from tailrace.commit.objects import write_object
from tailrace.env.stores.local_store import LocalStore

SHARDS = 16
PLAN = {"query": "worker"}


def changes_of(epoch: int) -> State:
    rng = random.Random(epoch)
    return {
        (rng.randrange(SHARDS), (f"k{rng.randrange(9)}", epoch)): rng.randrange(1000) for _ in range(rng.randrange(30))
    }


def horizon_of(epoch: int) -> int:
    return max(0, epoch - 5)


def expected(epoch: int) -> State:
    state: State = {}
    for each in range(epoch + 1):
        state.update(changes_of(each))
    return {key: value for key, value in state.items() if key[1][1] >= horizon_of(epoch)}


def logs_of(folder: Path) -> tuple[list[int], list[int]]:
    found = [
        sorted(int(each.name) for each in (folder / name).iterdir()) if (folder / name).exists() else []
        for name in ("commits", "offsets")
    ]
    return found[0], found[1]


def main(folder: Path, servers: int) -> None:
    for name in ("commits", "offsets"):
        (folder / name).mkdir(exist_ok=True)
    store = LocalStore(folder / "state")
    controller = Controller.start(store, PLAN, spark_logs(*logs_of(folder)))
    owned = split(SHARDS, servers)
    compactors = [Compactor(store, compact_newest, run=controller.run, server=server) for server in range(servers)]
    print("started", flush=True)
    epoch = controller.recovery_point.epoch
    while True:
        epoch += 1
        (folder / "offsets" / str(epoch)).touch()
        changes, horizons = changes_of(epoch), {"op": horizon_of(epoch)}
        deltas = [
            write_object(
                store,
                run=controller.run,
                try_=0,
                server=server,
                first_epoch=epoch,
                last_epoch=epoch,
                shards=[(shards.start, shards.stop)],
                sections={"op": sections(changes, shards)},
                horizons=horizons,
            )
            for server, shards in enumerate(owned)
        ]
        compactions = [compact for each in compactors for compact in each.finished()]
        manifest = controller.commit(epoch, 0, deltas, compactions, rows={"input": len(changes)}, horizons=horizons)
        (folder / "commits" / str(epoch)).touch()
        controller.clean()
        for shards, each in zip(owned, compactors):
            each.submit(manifest, shards)
        print(epoch, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
