"""A driver: the real controller, commits, fleet, tries and restarts, and the order of ``spark.epochs`` around them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.simulation.file_sink import SimSink
from support.simulation.fleet import SimFleet
from support.simulation.rows import horizon_after
from support.simulation.scheduler import Process
from support.simulation.server import Server
from support.simulation.spark import Batch, Spark, SparkFailed
from support.simulation.wall_clock import EpochTimeCheck
from tailrace.api.options import CommitMode
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.commit.spark_logs.log_files import SparkLogFolder, SparkLogObjects
from tailrace.env.randomness import new_run_id
from tailrace.errors import ReplayError, RewindNeeded
from tailrace.spark.commit.commits import CommitRequest, Commits
from tailrace.spark.epoch.shard_moves import ShardMoves
from tailrace.spark.epoch.time.epoch_clock import EpochClock
from tailrace.spark.epoch.tries import EpochTries
from tailrace.spark.query import query
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.sinks.contract import SinkEpoch, release

if TYPE_CHECKING:
    from support.simulation.world import World

PLAN = {"query": "simulated"}
CHECKPOINT = "/sim/checkpoint"
RECOVERY_S = 600.0
"""Faults end long before: then the query goes on."""
COMMIT_TIMEOUT_S = 60.0


class Driver:
    def __init__(self, world: World, name: str) -> None:
        self.process = Process(f"driver {name}")
        self.root = world.checkpoint  # where Spark's checkpoint is: of this machine, or of all
        self.runs: list[str] = []
        self.spark: Spark | None = None  # of the newest
        self.has_started = False
        self._budget: RetryBudget | None = None
        self._commits: Commits | None = None
        self._fleets: list[SimFleet] = []
        self._world = world

    @property
    def servers(self) -> list[Server]:
        return [server for fleet in self._fleets for server in fleet.started.values()]

    def stop(self) -> None:
        """The user stops the query."""
        if self._budget is not None:
            self._budget.stop()
        if self._commits is not None:
            self._commits.stop()

    def live(self) -> None:
        """Until the source has ended and all of it is durable, or until something goes wrong."""
        budget = self._budget = _WatchedBudget(self._world, self._fleets)
        run = self._start(budget)
        self.has_started = True
        while True:
            try:
                run.to_the_end()
                return
            except (RewindNeeded, SparkFailed) as error:
                if isinstance(error, SparkFailed) and not query.written_by_others(error):
                    raise
                budget.lost("the query starts again", error)
            run = query.started_again(run.check_newest, lambda: self._start(budget), budget)

    def _start(self, budget: RetryBudget) -> _Run:
        world, draw = self._world, self._world.scheduler.random
        on_disk = SparkLogFolder(Path(self.root), world.disk)
        logs = on_disk if world.far_checkpoint is None else SparkLogObjects(world.far_checkpoint)
        self.runs.append(new_run_id())
        with ExitStack() as undo:
            controller = world.controller_class.start(
                world.driver_store(),
                PLAN,
                logs,
                run=self.runs[-1],
                retain=draw.choice((2, 2, 3)) + world.more_kept,
                go_back_to=world.epoch_to_go_back_to(),
            )
            world.goes_back = False
            undo.callback(controller.close)
            fleet = SimFleet(world, controller.run, draw.choice((1, 1, 2, 3)))
            self._fleets.append(fleet)
            undo.callback(fleet.close)
            fleet.open(controller.recovery_point.manifest, budget)
            world.checks.recovered(controller.recovery_point, fleet)
            mode = draw.choice(world.modes)
            world.scheduler.note(f"lands on {controller.recovery_point.epoch}, mode {mode}")
            sink = None if world.files is None else SimSink(world.files, controller)
            clean = [] if sink is None else [sink.clean]
            commits = self._commits = Commits(controller, fleet, mode, clean, timeout_s=COMMIT_TIMEOUT_S)
            self.spark = None
            return _Run(self, world, controller, fleet, commits, mode, sink, budget, undo.pop_all())


class _WatchedBudget(RetryBudget):
    def __init__(self, world: World, fleets: list[SimFleet]) -> None:
        super().__init__(RECOVERY_S)
        self._world = world
        self._fleets = fleets

    def lost(self, where: str, error: Exception) -> None:
        self._world.scheduler.note(f"lost, {where}: {error}")
        self._world.checks.lost(self._fleets[-1], error)
        super().lost(where, error)


class _Run:
    """The epochs of a run."""

    def __init__(
        self,
        driver: Driver,
        world: World,
        controller: Controller,
        fleet: SimFleet,
        commits: Commits,
        mode: CommitMode,
        sink: SimSink | None,
        budget: RetryBudget,
        release: ExitStack,
    ) -> None:
        recovery_point = controller.recovery_point
        self._driver = driver
        self._world = world
        self._controller = controller
        self._fleet = fleet
        self._commits = commits
        self._mode = mode
        self._sink = sink
        self.check_newest = controller.check_newest
        self._release = release
        self._tries = EpochTries(fleet, commits, budget)
        self._moves = ShardMoves(fleet, commits)
        self._last = recovery_point.epoch
        self._planned = recovery_point.planned
        self._replay: Manifest | None = recovery_point.replay
        self._epoch_config: Mapping[str, Any] = recovery_point.manifest.epoch_config
        self._clock = EpochClock()
        self._epoch_times = EpochTimeCheck(world.scheduler, int(self._epoch_config.get("now", 0)))

    def to_the_end(self) -> None:
        world = self._world
        with self._release:
            self._controller.trim_spark_logs()
            root, shared = self._driver.root, world.shared
            spark = Spark(world.scheduler, world.disk, root, world.rows, world.spark_keeps, shared, world.idle)
            spark.start()
            self._driver.spark = spark
            failed: BaseException | None = None
            try:
                while (batch := spark.next()) is not None:
                    self._epoch(batch)
                    spark.finish()
            except BaseException as error:
                failed = error
                raise
            finally:
                unfinished = self._commits.close()
                if unfinished is not None and failed is None:
                    raise query.last_epoch_lost(unfinished)

    def _epoch(self, batch: Batch) -> None:
        if batch.epoch != self._last + 1:
            raise RewindNeeded(f"Spark gives epoch {batch.epoch} and the state is at epoch {self._last}")
        self._world.checks.runs(self._controller.run, batch)
        self._fleet.executors_change()
        self._commits.record_spark_logs(batch.epoch)
        way = self._way(batch.epoch)
        now = self._now(batch.epoch)

        def try_once(try_: int) -> None:
            if try_:
                self._replay = self._commits.durable_manifest(batch.epoch) or self._replay
            self._try(batch, try_, way, now)

        self._tries.run(batch.epoch, try_once)

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

    def _now(self, epoch: int) -> int:
        """The epoch's own time: of one that is replayed, the recorded one."""
        now = self._clock.next(int(self._epoch_config.get("now", 0)))
        replayed = self._replay is not None and self._replay.epoch == epoch
        if self._replay is not None and replayed:
            now = int(self._replay.epoch_config["now"])
        self._epoch_times.begins(now, replayed)
        return now

    def _try(self, batch: Batch, try_: int, way: int, now: int) -> None:
        epoch, rows = batch.epoch, batch.end - batch.start
        replay = self._replay if self._replay is not None and self._replay.epoch == epoch else None
        count = self._controller.recorded_count(epoch)
        recorded = replay.rows["input"] if replay is not None else None if count is None else count.rows
        if recorded is not None and recorded != rows:
            self._commits.await_records(epoch)
            raise ReplayError(f"epoch {epoch} is replayed with {rows} rows and had {recorded}")
        with self._moves.during(epoch, try_, epoch_s=0.0):
            committed_attempts = self._fleet.stage(epoch, try_, batch.start, batch.end)
        self._fleet.each(
            lambda client, number: client.prepare(epoch, try_, [each for each in (committed_attempts[number],) if each])
        )
        at_once = self._mode is CommitMode.SYNC and self._world.scheduler.random.random() < 0.5
        done = self._fleet.each(lambda client, _: client.run_epoch(epoch, try_, way, horizon_after(batch.end), at_once))
        config = {"way": way, "now": now}
        order = CommitRequest(epoch, try_, 1, watermarks={}, rows={"input": rows}, epoch_config=config)
        self._commits.begin(order, [each.committed for each in done] if at_once else None)
        self._commits.gate(epoch)
        self._world.scheduler.point("sink")
        records = {key: (value, way) for each in done for key, value in each.records.items()}
        self._world.checks.released(batch, records, self._mode)
        if self._sink is not None:
            again = replay is not None or try_ > 0 or epoch <= self._planned
            release(self._sink, records, SinkEpoch(epoch, try_, again))  # type: ignore[arg-type]
        self._world.scheduler.point("sink is done")
        self._commits.epoch_finished()
        self._last, self._replay, self._epoch_config = epoch, None, order.epoch_config
