"""Epochs, compactions, crashes at any operation, restarts with other numbers of servers: the state is the model's."""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.commit import State, compact_newest, objects_of, sections, split, state_of
from support.models.spark_logs import spark_logs
from support.stores.faulty import FaultyStore, SimulatedCrash, SimulatedDisk
from tailrace.commit.compaction.compaction import choose, compact_objects
from tailrace.commit.controller import Controller
from tailrace.commit.objects import write_object
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError

SHARDS = 8
LONG = 20 if os.environ.get("TAILRACE_TEST_LONG") == "1" else 1
PLAN = {"query": "model"}


def changes_of(epoch: int, seed: int) -> tuple[State, int]:
    """What an epoch changes, and its horizon: the same at every replay."""
    rng = random.Random(f"{seed}/{epoch}")
    changes = {
        (rng.randrange(SHARDS), (f"k{rng.randrange(6)}", epoch + rng.randrange(-2, 3))): rng.randrange(1000)
        for _ in range(rng.choice([0, 1, 5, 20]))
    }
    return changes, max(0, epoch - rng.randrange(4) - 2)


def model_after(epoch: int, seed: int) -> State:
    state: State = {}
    reached = 0
    for each in range(epoch + 1):
        changes, horizon = changes_of(each, seed)
        reached = max(reached, horizon)
        state.update(changes)
        state = {key: value for key, value in state.items() if key[1][1] >= reached}
    return state


def horizon_after(epoch: int, seed: int) -> int:
    return max([0, *(changes_of(each, seed)[1] for each in range(epoch + 1))])


@dataclass
class SparkLogs:
    """Spark's own logs: written outside of our store, never lost."""

    commits: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def run_until_crash(
    store: ObjectStore, logs: SparkLogs, seed: int, rng: random.Random, epochs: int, check: ObjectStore | None = None
) -> None:
    """One run of the query: recovers, checks the recovered state, and commits epochs until it is done or dies.

    ``check``: the store through which the test reads what it compares, where ``store`` fails at random.
    """
    check = check or store
    controller = Controller.start(store, PLAN, spark_logs(logs.commits, logs.offsets), retain=rng.choice([2, 3]))
    try:
        recovery_point = controller.recovery_point
        assert recovery_point.epoch == max(logs.commits, default=-1)
        assert state_of(check, recovery_point.manifest, SHARDS, rng.choice([1, 2, 3, 5])) == model_after(
            recovery_point.epoch, seed
        )
        owned = [each for each in split(SHARDS, rng.choice([1, 2, 3, 8])) if each]
        before = recovery_point.manifest
        for epoch in range(recovery_point.epoch + 1, epochs):
            if epoch not in logs.offsets:
                logs.offsets.append(epoch)
            changes, _ = changes_of(epoch, seed)
            if recovery_point.replay is not None and epoch == recovery_point.replay.epoch:
                assert recovery_point.replay.rows == {"input": len(changes)}
            horizons = {"op": horizon_after(epoch, seed)}
            for try_ in range(rng.choice([1, 1, 2])):  # a try that reached its deltas and was given up, then another
                deltas, compactions = [], []
                for server, shards in enumerate(owned):
                    mine = sections(changes, shards)
                    if mine or rng.random() < 0.5:
                        deltas.append(
                            write_object(
                                store,
                                run=controller.run,
                                try_=try_,
                                server=server,
                                first_epoch=epoch,
                                last_epoch=epoch,
                                shards=[(shards.start, shards.stop)],
                                sections={"op": mine},
                                horizons=horizons,
                            )
                        )
                    objects = objects_of(before, shards)
                    chosen = choose(objects, shards) if rng.random() < 0.5 else any_compaction(objects, rng)
                    if len(chosen) > 1:
                        compactions.append(
                            compact_objects(
                                store,
                                chosen,
                                shards,
                                compact_newest,
                                run=controller.run,
                                server=server,
                                horizons=before.horizons,
                            )
                        )
            before = controller.commit(
                epoch,
                try_,
                deltas,
                compactions,
                rows={"input": len(changes)},
                epoch_config={"n": epoch},
                horizons=horizons,
            )
            assert state_of(check, before, SHARDS, 2) == model_after(epoch, seed)
            if rng.random() < 0.1:
                raise SimulatedCrash  # between our durable entry and Spark's commit
            logs.commits.append(epoch)
            if rng.random() < 0.8:
                controller.clean()
    finally:
        controller.close()


def any_compaction(objects, rng):
    """Any adjacent objects, whatever their sizes; also ones that do not fit, which commit must leave out."""
    if len(objects) < 2:
        return ()
    start = rng.randrange(len(objects) - 1)
    return objects[start : start + rng.randint(2, 4)]


@settings(max_examples=60 * LONG)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_any_crash_lands_on_the_committed_epoch(seed: int, data: st.DataObject) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        disk = SimulatedDisk(seed)
        logs = SparkLogs()
        crashes = data.draw(st.lists(st.integers(0, 120), max_size=8))
        for crash_at in [*crashes, -1]:
            disk.restart(crash_at)
            try:
                run_until_crash(LocalStore(root, disk), logs, seed, rng, epochs=14)
            except SimulatedCrash:
                continue
            if max(logs.commits, default=-1) == 13:
                break
        while max(logs.commits, default=-1) < 13:
            disk.restart()
            try:
                run_until_crash(LocalStore(root, disk), logs, seed, rng, epochs=14)
            except SimulatedCrash:
                continue
        assert logs.commits == list(range(14))


@settings(max_examples=30 * LONG)
@given(seed=st.integers(0, 2**32))
def test_errors_and_late_answers_of_a_store_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)
    inner = CloudStore(f"memory://{short_id()}", {})
    store = FaultyStore(inner, seed, error_rate=0.01)
    logs = SparkLogs()
    for attempt in range(500):
        if max(logs.commits, default=-1) == 9:
            break
        store.restart(crash_at=rng.choice([-1, rng.randrange(100)]))
        try:
            run_until_crash(store, logs, seed, rng, epochs=10, check=inner)
        except SimulatedCrash:
            continue
        except CheckpointError as error:
            assert type(error) is CheckpointError and "fault was injected" in str(error), (attempt, error)
    assert logs.commits == list(range(10))
