"""A driver: the real controller and commits, and the order of ``spark.epochs`` around them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.simulation.fleet import SimFleet
from support.simulation.rows import horizon_after
from support.simulation.scheduler import Process
from support.simulation.spark import Batch, Spark, SparkFailed
from tailrace.api.options import CommitMode
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.commit.spark_logs import SparkLogFolder
from tailrace.env.randomness import new_run_id
from tailrace.errors import CheckpointError, QueryStopped, ReplayError, RewindNeeded, StateServerError
from tailrace.spark.commit.commits import CommitRequest, Commits

if TYPE_CHECKING:
    from support.simulation.world import World

PLAN = {"query": "simulated"}
CHECKPOINT = "/sim/checkpoint"
TRIES = 3
COMMIT_TIMEOUT_S = 60.0


class Driver:
    def __init__(self, world: World, name: str) -> None:
        self.process = Process(f"driver {name}")
        self.commits: Commits | None = None
        self.fleet: SimFleet | None = None
        self._world = world

    def live(self) -> None:
        """Until the source has ended and all of it is durable, or until something goes wrong."""
        world, draw = self._world, self._world.scheduler.random
        logs = SparkLogFolder(Path(CHECKPOINT), world.disk)
        controller = world.controller_class.start(
            world.driver_store(), PLAN, logs, run=new_run_id(), retain=draw.choice((2, 2, 3))
        )
        fleet = self.fleet = SimFleet(world, controller.run, draw.choice((1, 1, 2, 3)))
        try:
            fleet.open(controller.recovery_point.manifest, TRIES)
            world.checks.recovered(controller.recovery_point, fleet)
            mode = draw.choice(world.modes)
            world.scheduler.note(f"lands on {controller.recovery_point.epoch}, mode {mode}")
            self.commits = Commits(controller, fleet, mode, timeout_s=COMMIT_TIMEOUT_S)  # type: ignore[arg-type]
            run = _Run(world, controller, fleet, self.commits, mode)
            spark = Spark(world.scheduler, world.disk, CHECKPOINT, world.rows, world.spark_keeps)
            spark.start()
            try:
                while (batch := spark.next()) is not None:
                    run.epoch(batch)
                    spark.finish()
            finally:
                error = self.commits.close()
            if error is not None:
                raise error
        finally:
            fleet.close()
            controller.close()


class _Run:
    """The epochs of a run."""

    def __init__(
        self, world: World, controller: Controller, fleet: SimFleet, commits: Commits, mode: CommitMode
    ) -> None:
        recovery_point = controller.recovery_point
        self._world = world
        self._controller = controller
        self._fleet = fleet
        self._commits = commits
        self._mode = mode
        self._last = recovery_point.epoch
        self._planned = recovery_point.planned
        self._replay: Manifest | None = recovery_point.replay
        self._epoch_config: Mapping[str, Any] = recovery_point.manifest.epoch_config

    def epoch(self, batch: Batch) -> None:
        if batch.epoch != self._last + 1:
            raise CheckpointError(f"Spark gives epoch {batch.epoch} and the state is at epoch {self._last}")
        way = self._way(batch.epoch)
        for try_ in range(TRIES):
            try:
                if try_:
                    self._fleet.recover(self._commits.base_of_retry(batch.epoch), try_)
                    self._replay = self._commits.durable_manifest(batch.epoch) or self._replay
                self._try(batch, try_, way)
                return
            except Exception as error:
                lost = isinstance(error, StateServerError) or not self._fleet.all_alive()
                final = isinstance(error, RewindNeeded | QueryStopped | SparkFailed)
                if not lost or final or try_ + 1 == TRIES:
                    raise

    def _way(self, epoch: int) -> int:
        """A decision that changes what the sink gets: as recorded, where a sink may have seen the epoch."""
        if self._replay is not None and self._replay.epoch == epoch:
            return int(self._replay.epoch_config["way"])
        draw = self._world.scheduler.random
        before = int(self._epoch_config.get("way", 0))
        way = before if draw.random() < 0.5 else draw.randrange(1, 1000)
        recorded = self._commits.recorded_config(epoch)
        if recorded is None and epoch <= self._planned:
            recorded = {"way": before}
        if recorded is not None:
            way = int(recorded["way"])
        self._commits.record_config(epoch, {"way": way}, {"way": before})
        return way

    def _try(self, batch: Batch, try_: int, way: int) -> None:
        epoch, rows = batch.epoch, batch.end - batch.start
        replay = self._replay if self._replay is not None and self._replay.epoch == epoch else None
        recorded = self._controller.recorded_rows(epoch) if replay is None else replay.rows["input"]
        if recorded is not None and recorded != rows:
            raise ReplayError(f"epoch {epoch} is replayed with {rows} rows and had {recorded}")
        committed_attempts = self._fleet.stage(epoch, try_, batch.start, batch.end)
        self._fleet.each(
            lambda client, number: client.prepare(epoch, try_, [each for each in (committed_attempts[number],) if each])
        )
        at_once = self._mode is CommitMode.SYNC and self._world.scheduler.random.random() < 0.5
        done = self._fleet.each(lambda client, _: client.run_epoch(epoch, try_, way, horizon_after(batch.end), at_once))
        order = CommitRequest(epoch, try_, watermarks={}, rows={"input": rows}, epoch_config={"way": way})
        self._commits.begin(order, [each.committed for each in done] if at_once else None)
        self._commits.gate(epoch)
        self._world.scheduler.point("sink")
        records = {key: (value, way) for each in done for key, value in each.records.items()}
        self._world.checks.released(batch, records, self._mode)
        self._world.scheduler.point("sink is done")
        self._commits.epoch_finished()
        self._last, self._replay, self._epoch_config = epoch, None, order.epoch_config
