"""The real ``spark.servers.fleet`` and its heartbeat, over simulated servers; and Spark's jobs, as far as they matter.

An executor has one server. A task there ends a server that is suspected, and starts another; no task runs on a machine
whose link to the driver is cut. A job is what Spark runs for an epoch's ingest and to start servers: the driver may
cancel those of its query, which takes a while, so that it may hit a later one than was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from support.simulation.rows import SHARDS, SOURCE, State, shard_of
from support.simulation.server import Client, Server
from support.simulation.tasks import SimCall
from tailrace.errors import StateServerError
from tailrace.server.transport.server_config import ServerAddress, ServerConfig
from tailrace.server.transport.stage_messages import CommittedAttempt
from tailrace.spark.servers.fleet import Fleet

if TYPE_CHECKING:
    from support.simulation.world import World

HEARTBEAT_S = 5.0
_EXECUTORS_S = 120.0
"""So long Spark waits for an executor on which a task could run, before that job fails."""
_MOVES = 0.3
"""How often an executor that has lost its server is on another machine than before."""


EXECUTORS_MAX = 4


class JobFailed(Exception):
    """A job of Spark's, for a task that has failed or because it was cancelled."""


class SimFleet(Fleet):
    def __init__(self, world: World, run: str, executors: int) -> None:
        config = ServerConfig(run, "", (), "", 1 << 20, 60.0)
        super().__init__(None, config, SHARDS, HEARTBEAT_S)  # type: ignore[arg-type]
        self._world = world
        self._run = run
        self._executors: list[Server | None] = [None] * executors
        self._job: SimCall | None = None
        self._cancels_next = False  # a cancel comes so late that it hits a job that is still to come
        self.started: dict[str, Server] = {}
        self.given_up_at: dict[str, float] = {}
        self.has_jobs = lambda: self._job is not None
        self.cancel_jobs = self._cancel_soon

    def client(self, server: ServerAddress) -> Client:  # type: ignore[override]
        return Client(self.started[server.server], self._run)

    def each(self, call: Callable[[Any, int], Any]) -> list[Any]:
        scheduler = self._world.scheduler
        assert scheduler.current is not None
        process, began = scheduler.current.process, scheduler.now
        try:
            return super().each(call)
        finally:
            self._world.checks.called(self, process, began)

    def _give_up(self, server: ServerAddress, silent_s: float) -> None:
        self.given_up_at[server.server] = self._world.scheduler.now
        super()._give_up(server, silent_s)

    @property
    def troubled(self) -> bool:
        """Whether any of its servers was killed, stood still or was cut off."""
        return any(server.troubled for server in self.started.values())

    def state(self) -> State:
        """All that the servers hold. No operation of the simulation."""
        return {
            key: sum_
            for address in self.servers
            for state in self.started[address.server].operator.state.values()
            for key, sum_ in state.items()
        }

    # Spark -----------------------------------------------------------------------------------------------------------

    def executors_change(self) -> None:
        """Between two epochs: another executor may be there, or one may be told to go, which does so when it likes."""
        world, draw = self._world, self._world.scheduler.random
        if draw.random() >= world.elastic:
            return
        staying = [each for each in self._executors if each is not None and not each.process.dead]
        if len(self._executors) < EXECUTORS_MAX and draw.random() < 0.5:
            server = world.new_server(self._run, None)
            self.started[server.name] = server
            self._executors.append(server)
            self.join([server.address])
        elif len(staying) > 1:
            going = draw.choice(staying)
            self._executors.remove(going)
            self.leave([each.name for each in self.started.values() if each not in self._executors])
            world.scheduler.later(draw.choice((0.0, 0.1, 10.0)), lambda: world.scheduler.kill(going.process))

    def stage(self, epoch: int, try_: int, start: int, end: int) -> list[CommittedAttempt | None]:
        """The ingest job: the stretch's rows, each with its owner; None where a server has none."""
        attempt = self._world.next_attempt()

        def task(route: tuple[ServerAddress, int, int]) -> CommittedAttempt | None:
            server, low, high = route
            mine = [row for row in SOURCE[start:end] if low <= shard_of(row[0]) < high]
            return self.client(server).stage(epoch, try_, attempt, mine) if mine else None

        scheduler = self._world.scheduler
        assert scheduler.current is not None
        process, began = scheduler.current.process, scheduler.now
        try:
            return self._run_job(lambda: self._run_tasks(task, self.routes))
        finally:
            self._world.checks.staged(self, process, began)

    def _ensure(self, suspects: Iterable[str]) -> tuple[ServerAddress, ...]:
        try:
            return self._run_job(lambda: self._meet(frozenset(suspects)))
        except JobFailed as error:
            raise StateServerError(f"no state server could be started: {error}") from error

    def _meet(self, suspects: frozenset[str]) -> tuple[ServerAddress, ...]:
        world, scheduler = self._world, self._world.scheduler
        until = scheduler.now + _EXECUTORS_S
        if scheduler.random.random() < world.no_servers:
            raise JobFailed("an executor was lost")
        while True:
            met: list[ServerAddress] = []
            for number, server in enumerate(self._executors):
                scheduler.point("visit an executor")
                if server is not None and not world.links.is_whole(server.machine):
                    continue
                if server is None or server.process.dead or server.name in suspects:
                    if server is not None and not server.process.dead:
                        scheduler.later(0.0, lambda process=server.process: scheduler.kill(process))
                    stays = server is not None and scheduler.random.random() > _MOVES
                    made = world.new_server(self._run, server.machine if server is not None and stays else None)
                    server = self._executors[number] = self.started[made.name] = made
                met.append(server.address)
            if met:
                self._known |= {each.server: each for each in met}
                return tuple(met)
            if scheduler.now > until:
                raise JobFailed("no executor is left")
            scheduler.sleep(1.0)

    def _run_job(self, work: Callable[[], Any]) -> Any:
        scheduler = self._world.scheduler
        assert scheduler.current is not None
        job = self._job = SimCall(scheduler)
        scheduler.start(scheduler.current.process, "job", job.work, work, ())
        if self._cancels_next and scheduler.random.random() < 0.5:
            self._cancel()
        try:
            return job.result()
        finally:
            self._job = None

    def _run_tasks(self, task: Callable[..., Any], of: Iterable[Any]) -> list[Any]:
        """Errors of tasks come back as text."""
        scheduler = self._world.scheduler
        assert scheduler.current is not None
        calls = []
        for each in of:
            calls.append(SimCall(scheduler))
            scheduler.start(scheduler.current.process, "task", calls[-1].work, task, (each,))
        for call in calls:
            if (error := call.exception()) is not None:
                raise JobFailed(f"a task failed: {type(error).__module__}.{type(error).__name__}: {error}")
        return [call.result() for call in calls]

    def _cancel_soon(self) -> None:
        scheduler = self._world.scheduler
        scheduler.later(scheduler.random.choice((0.0, 0.0, 1.0, 10.0)), self._cancel)

    def _cancel(self) -> None:
        if self._job is None:
            self._cancels_next = self._world.scheduler.random.random() < 0.5
        else:
            self._cancels_next = False
            self._job.end(None, JobFailed("[SPARK_JOB_CANCELLED] Job cancelled part of cancelled job group"))
