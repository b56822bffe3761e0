"""The world of one seed: machines, stores, drivers that come and go, and what goes wrong.

A driver that has ended, however, is started again, until one says that all is done. Faults come between any two steps:
the driver or a server dies, or stands still for a while (a driver meanwhile gets a successor, and wakes up as a
zombie); a machine loses its power and what its disks had not synced; the driver's disk is lost, or its machine with it;
its JVM outlives it; the state store does not answer; the link to machines of servers is cut for a while, or one call
fails; the user stops the query, or has it go back to an older epoch; somebody sets the clock. After a bounded number of
them the query must come to its end.

``run`` gives the trace of a seed, by which two runs can be compared, or raises ``Violation`` with its last lines.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from support.simulation import spark as sparks
from support.simulation.checks import Checks
from support.simulation.disk import SimDisk
from support.simulation.driver import CHECKPOINT, Driver
from support.simulation.file_sink import SYSTEMS, SimFiles
from support.simulation.links import Links
from support.simulation.scheduler import Killed, Process, Scheduler, Violation
from support.simulation.server import Server
from support.simulation.store import DiskObjects, SimStore
from support.simulation.tasks import SimClock, SimTasks
from support.simulation.wall_clock import WallClock
from tailrace.api.options import CommitMode
from tailrace.commit import controller as controllers
from tailrace.commit import log as logs
from tailrace.commit.compaction import compaction as compactions
from tailrace.commit.compaction.shard_snapshot import SnapshotRule
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.env import clock, randomness, tasks
from tailrace.env.stores import local_store
from tailrace.env.stores.local_copy import CopiedStore
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.log import filenames

LIMIT_S = 3600.0
STARTS_MAX = 60
FAULTS_MAX = 6
FAULT_STEPS = 200
"""Between two faults there are up to so many steps."""
SINK_STEPS = 15
IDLE = 0.1
STATE, COPIES = "/sim/state", "/sim/copies"


Step = tuple[tuple[str, ...], tuple[str, ...]]
"""Parts of names of points, and the faults of which one comes there."""


@dataclass(frozen=True)
class Focus:
    """Where a world's faults come, at points of the newest driver with one of these in their names; and which.

    Several ``steps`` are a chain: each fault comes at the first point of its step, and no other one before the chain is
    over. Then it begins anew. ``far``: whether the state is in an object store; ``files``: whether there is a sink of
    files; ``modes``: of the commit; ``no_servers``: how often none can be started; ``idle``: how often the source has
    nothing for a while. None: as it is drawn, or as elsewhere. ``weight``: so many times as often as others.
    """

    steps: tuple[Step, ...]
    far: bool | None = None
    files: bool | None = None
    modes: tuple[CommitMode, ...] | None = None
    no_servers: float | None = None
    idle: float | None = None
    weight: int = 1

    @property
    def is_chain(self) -> bool:
        return len(self.steps) > 1


_SLEEPS = ("_freeze_driver", "_freeze_driver", "_freeze_driver", "_lose_machine", "_lose_machine")
_KILL, _POWER = ("_kill_driver",), ("_lose_power",)
_BEHIND = (CommitMode.ASYNC,)
FOCI = (
    Focus(((("sink",), (*_KILL, *_POWER, *_SLEEPS)),)),
    Focus(((("sinks/", "sink is done", "spark names commits/"), (*_KILL, *_KILL, *_POWER, *_SLEEPS)),)),
    Focus(
        (
            (("put if absent sinks/", "put sinks/"), ("_freeze_driver", "_lose_machine")),
            (("sink is done",), ("_wait",)),
        ),
        far=True,
        files=True,
    ),
    # A driver sleeps while it writes its files, until its successors have decided, shown and forgotten that epoch.
    Focus(
        (
            (("put _tailrace/", "spark writes"), ("_freeze_driver_for_long",)),
            (("sink is done",), ("_wait",)),
            (("sink is done",), ("_wait",)),
        ),
        files=True,
        modes=_BEHIND,
    ),
    # What a driver has put and not synced, another one goes by; then the power is lost.
    Focus(((("sync /sim/state/sinks",), _KILL), (("sink is done",), _POWER)), far=False, files=True),
    Focus(
        ((("sink is done",), _KILL), (("sync /sim/state/spark-logs",), _KILL), (("spark starts",), _POWER)),
        far=False,
        modes=_BEHIND,
    ),
    Focus(((("spark-logs",), (*_KILL, *_POWER, "_lose_checkpoint", *_SLEEPS)),)),
    # A record is on its way for long, and the driver's disk is lost behind the sink.
    Focus(
        ((("put spark-logs/",), ("_delay_record",)), (("sink is done",), ("_lose_checkpoint", *_POWER))),
        far=True,
        modes=_BEHIND,
        weight=2,
    ),
    # A driver that was replaced records an epoch: before its successor has planned it, or between two epochs of that.
    Focus(
        ((("put spark-logs/",), ("_freeze_driver", "_lose_machine")), (("sink is done",), ("_wait",))),
        far=True,
        modes=_BEHIND,
        weight=2,
    ),
    Focus(
        ((("put spark-logs/",), ("_freeze_driver",)), (("spark names commits/",), ("_freeze_driver",))),
        far=True,
        modes=_BEHIND,
    ),
    Focus(((("epoch-config",), (*_KILL, *_POWER, *_SLEEPS)),)),
    # A driver sleeps before it records an epoch's config, until its successor's is gone with that epoch.
    Focus(
        (
            (("put if absent epoch-config",), ("_freeze_driver_for_long",)),
            (("sink is done",), ("_wait",)),
            (("sink is done",), ("_wait",)),
        ),
        far=True,
        modes=_BEHIND,
        weight=2,
    ),
    # The config of an epoch that a rewind takes back is recorded, and the epoch planned afresh is not durable either.
    Focus(
        (
            (("to commit",), ("_delay_commit_for_long",)),
            (("put if absent epoch-config",), ("_wait",)),
            (("put row-counts/",), _KILL),
            (("sink is done",), ("_wait",)),
            (("to commit",), ("_delay_commit_for_long",)),
            (("sink is done",), _KILL),
        ),
        far=True,
        modes=_BEHIND,
        weight=2,
    ),
    Focus(
        (
            (
                ("offsets/", "commits/", "sources/"),
                (*_KILL, *_POWER, "_freeze_driver", "_lose_machine", *("_kill_driver_but_not_its_jvm",) * 3),
            ),
        )
    ),
    # The JVM of a driver that is dead goes on with what its successor does.
    Focus(((("sink is done",), ("_kill_driver_but_not_its_jvm",)), (("spark starts",), ("_wait",))), weight=2),
    Focus(((("log/",), (*_KILL, *_POWER, "_freeze_driver", "_lose_machine", "_go_back")),)),
    Focus(
        (
            (
                ("to stage", "to prepare", "to run", "to commit"),
                ("_kill_server", "_freeze_server", "_freeze_server", "_cut_link", "_cut_link", "_fail_call"),
            ),
        )
    ),
    # A server falls silent while there is nothing to do.
    Focus(((("spark names commits/",), ("_freeze_server_for_long",)), (("sink is done",), ("_wait",))), idle=1.0),
    # A server is lost with an epoch that is not durable, and another one while the query starts again.
    Focus(
        (
            (("to commit",), ("_kill_server",)),
            (("probe",), ("_wait",)),
            (("to open", "visit an executor"), ("_kill_server", "_freeze_server", "_cut_link")),
        ),
        modes=_BEHIND,
        no_servers=0.3,
    ),
    # An epoch is saved late, when the next one has changed the state.
    Focus(((("to commit",), ("_delay_commit",)), (("sink is done",), ("_wait",))), modes=_BEHIND),
    # The query goes back, and whatever becomes of that.
    Focus(
        (
            (("sink is done",), ("_go_back",)),
            (("probe",), ("_wait",)),
            (("spark names commits/", "spark names offsets/"), (*_KILL, *_POWER, "_freeze_driver", "_wait", "_wait")),
        ),
        modes=_BEHIND,
        weight=2,
    ),
)
_WEIGHTED = [focus for focus in FOCI for _ in range(focus.weight)]
FOCUSED_WORLDS = 0.85
CHAINS = 3
"""So often a world goes through its chain before faults come anywhere."""
NEVER = 1 << 60
FOCUSED, FOCUSED_FAULTS = 0.5, 3
"""How often such a point has the fault that is due; how many more of them there are."""
FOCUSED_STEPS = (0, 0, 0, 0, 1, 2, 5)
"""So many steps behind the point."""


@dataclass(frozen=True)
class Outcome:
    seed: int
    trace: int
    steps: int
    seconds: float  # of the simulated clock
    starts: int
    faults: tuple[str, ...]


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed, LIMIT_S)
        draw = self.scheduler.random
        focus = self._focus = draw.choice(_WEIGHTED) if draw.random() < FOCUSED_WORLDS else None
        self.rows = draw.randrange(3, 16)
        modes = draw.choice(
            ((CommitMode.ASYNC,), (CommitMode.ASYNC_CHECKPOINT,), (CommitMode.SYNC,), tuple(CommitMode))
        )
        self.modes = modes if focus is None or focus.modes is None else focus.modes
        self.spark_keeps = draw.choice((2, 3, 100))
        self.network = draw.choice((0.0, 0.0, 0.0, 0.01))  # how often a call goes wrong
        self.wall = WallClock(self.scheduler)
        self.elastic = draw.choice((0.0, 0.0, 0.3))  # how often executors come and go between two epochs
        self.delayed = draw.choice((0.0, 0.0, 0.1))  # how often a call is on its way for a while
        no_servers = draw.choice((0.0, 0.0, 0.3))
        self.no_servers = no_servers if focus is None or focus.no_servers is None else focus.no_servers
        self.idle = IDLE if focus is None or focus.idle is None else focus.idle
        self.checks = Checks(self)
        self.links = Links(self.scheduler)
        self.disk = SimDisk(self.scheduler, self._file_changed, self._refuse)
        self.far: SimStore | None = None
        if _chosen(None if focus is None else focus.far, draw.random() < 0.6):
            self.far = SimStore(
                self.scheduler, draw.choice((0.05, 0.3)), draw.choice((0.0, 0.0, 0.05)), self.checks.changed
            )
        # Spark's checkpoint: on the driver's disk, or where every driver sees it.
        self.shared = draw.random() < 0.25
        self.far_checkpoint: SimStore | None = None
        if self.shared:
            self.far_checkpoint = SimStore(
                self.scheduler, draw.choice((0.05, 0.3)), draw.choice((0.0, 0.0, 0.05)), lambda _: None
            )
            self.far_checkpoint.objects = DiskObjects(self.disk, CHECKPOINT)
        self._machine = 0  # of the newest driver
        self.copies = draw.random() < 0.7
        # Half of the worlds only compact: their epochs never change enough for shard snapshots.
        self.shard_snapshot = SnapshotRule(chain=draw.choice((1, 3)), least_bytes=draw.choice((1, 1 << 30)))
        with_files = _chosen(None if focus is None else focus.files, draw.random() < 0.5)
        self.files = SimFiles(self, draw.choice(SYSTEMS)) if with_files else None
        self.machines = [SimDisk(self.scheduler) for _ in range(draw.choice((1, 2)))]
        self.controller_class = _watched(self.checks)
        self.drivers: list[Driver] = []
        self.servers: list[Server] = []
        self.jvms: list[Process] = []  # that have outlived their drivers
        self.done = False
        self.more_kept = draw.choice((0, 0, 2))  # of durable epochs
        self.goes_back = False  # the next start: to a retained epoch that the user names
        self._attempts = 0
        self._starting = False
        self._faults_left = draw.randrange(FAULTS_MAX + 1)
        self._faults: list[str] = []
        self._to_driver = self._in_focus = False  # the next fault
        self._focused = 0  # so many faults have come where the focus is
        if focus is not None:
            self._faults_left += FOCUSED_FAULTS * len(focus.steps)
            self.scheduler.look = self._look
        self._armed: Callable[[], None] | None = None
        self.scheduler.fault = self._fault
        self._next_fault()

    # What the parts ask for ------------------------------------------------------------------------------------------

    def driver_store(self) -> ObjectStore:
        return self.far if self.far is not None else LocalStore(STATE, self.disk)

    def server_store(self, machine: int) -> ObjectStore:
        if self.far is None or not self.copies:
            return self.driver_store()
        return CopiedStore(self.far, LocalStore(COPIES, self.machines[machine]))

    def new_server(self, run: str, machine: int | None) -> Server:
        """On that machine, or on any."""
        if machine is None:
            machine = self.scheduler.random.randrange(len(self.machines))
        server = Server(self, f"s{len(self.servers)}", machine, run)
        server.troubled = not self.links.is_whole(machine)
        self.servers.append(server)
        return server

    def epoch_to_go_back_to(self) -> int | None:
        kept = self.checks.kept_epochs() if self.goes_back else []
        return self.scheduler.random.choice(kept) if kept else None

    def next_attempt(self) -> int:
        self._attempts += 1
        return self._attempts

    # What lies there, for the checks: no operations of the simulation ------------------------------------------------

    def stored(self, name: str) -> bytes | None:
        if self.far is not None:
            return self.far.objects.get(name)
        folder, _, file = name.rpartition("/")
        return self.disk.data(f"{STATE}/{folder}", file)

    def stored_names(self, prefix: str) -> list[str]:
        if self.far is not None:
            return [name for name in self.far.objects if name.startswith(prefix)]
        return [f"{prefix}{name}" for name in self.disk.names(f"{STATE}/{prefix[:-1]}")]

    @property
    def checkpoint(self) -> str:
        """Where the newest driver finds Spark's checkpoint."""
        return CHECKPOINT if self.shared else f"{CHECKPOINT}{self._machine}"

    def spark_files(self) -> dict[str, bytes]:
        return sparks.files_of(self.disk, self.checkpoint)

    def spark_epochs(self, log: str) -> list[int]:
        return sparks.epochs(self.spark_files(), log)

    def _refuse(self, folder: str) -> None:
        """A checkpoint on a disk has a lock: where another driver of the machine gets the lock of one that still lives,
        the disk has cut that one off. Not so the JVM of a driver that is dead."""
        task = self.scheduler.current
        if task is None or self.shared or not folder.startswith(CHECKPOINT):
            return
        older = next((each for each in self.drivers[:-1] if each.process is task.process), None)
        if older is not None and older.root == self.drivers[-1].root:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), folder)

    def _file_changed(self, folder: str, name: str) -> None:
        for root in (STATE, self.checkpoint):
            if folder == root or folder.startswith(f"{root}/"):
                self.checks.changed(f"{folder[len(root) + 1 :]}/{name}".lstrip("/"))
        if self.files is not None and folder == f"{self.checkpoint}/{sparks.COMMITS}":
            self.files.check()

    # Drivers ---------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        with self._in_place():
            try:
                self._start_driver()
                self.scheduler.run(lambda: self.done)
                self.checks.at_end()
                self._let_zombies_wake()
                self.checks.recoverable()
                if self.files is not None:
                    self.files.check()
            finally:
                for each in (*self.drivers, *self.servers):
                    self.scheduler.end(each.process)
                for process in self.jvms:
                    self.scheduler.end(process)
                self.scheduler.close()
        scheduler = self.scheduler
        return Outcome(
            self.seed, scheduler.trace, scheduler.steps, scheduler.now, len(self.drivers), tuple(self._faults)
        )

    def _start_driver(self) -> None:
        self._starting = False
        if len(self.drivers) == STARTS_MAX:
            raise Violation(f"it hangs: {STARTS_MAX} starts have not come to the end")
        driver = Driver(self, f"d{len(self.drivers)}")
        self.drivers.append(driver)
        driver.process.at_death.append(lambda: self._over(driver))

        def live() -> None:
            try:
                driver.live()
                self.done = driver is self.drivers[-1]
            except (Killed, Violation):
                raise
            except BaseException as error:
                self.scheduler.note(f"ended: {type(error).__name__}: {error}")
                self.checks.ended(driver, error)
                self._over(driver)

        self.scheduler.start(driver.process, "main", live)

    def _over(self, driver: Driver) -> None:
        """The driver is gone: its servers follow, in time, and another driver comes, unless one is there."""
        scheduler, draw = self.scheduler, self.scheduler.random
        for server in driver.servers:
            delay = draw.choice((0.0, 0.0, draw.random() * 10))
            scheduler.later(delay, lambda server=server: scheduler.kill(server.process))
        if driver is self.drivers[-1]:
            self._start_soon()

    def _start_soon(self) -> None:
        if not self._starting and not self.done:
            self._starting = True
            self.scheduler.later(self.scheduler.random.choice((0.0, 1.0, 8.0)), self._start_driver)

    def _let_zombies_wake(self) -> None:
        for driver in self.drivers:
            self.scheduler.thaw(driver.process)
        ends = self.scheduler.now + 100.0
        over: list[bool] = []
        self.scheduler.later(ends - self.scheduler.now, lambda: over.append(True))
        self.scheduler.run(lambda: bool(over))

    # Faults ----------------------------------------------------------------------------------------------------------

    def _next_fault(self) -> None:
        if self._faults_left:
            self._faults_left -= 1
            self.scheduler.fault_at = self.scheduler.steps + self.scheduler.random.randint(1, FAULT_STEPS)
            if self._in_chain:
                self.scheduler.fault_at = NEVER

    @property
    def _in_chain(self) -> bool:
        """Whether a chain is not over: the next fault comes at a point of its."""
        focus = self._focus
        return focus is not None and focus.is_chain and self._focused < CHAINS * len(focus.steps)

    def fault_in_sink(self) -> None:
        """Let the fault that is due come within the next few steps, and to the driver: few steps are a sink's."""
        if self.scheduler.fault_at > self.scheduler.steps and not self._in_chain:
            self.scheduler.fault_at = self.scheduler.steps + self.scheduler.random.randint(1, SINK_STEPS)
            self._to_driver = True

    def _look(self, point: str) -> None:
        """Let the fault that is due come at a point of the kind that this world has chosen, or right after it."""
        scheduler, task = self.scheduler, self.scheduler.current
        assert self._focus is not None and task is not None
        points, _ = self._focus.steps[self._focused % len(self._focus.steps)]
        if (
            scheduler.fault_at <= scheduler.steps
            or self._armed is not None
            or not any(each in point for each in points)
        ):
            return
        if task.process is not self.drivers[-1].process:
            return
        first = self._focused % len(self._focus.steps) == 0
        if not first or scheduler.random.random() < FOCUSED:
            steps = 0 if self._focus.is_chain else scheduler.random.choice(FOCUSED_STEPS)
            scheduler.fault_at = scheduler.steps + steps
            self._in_focus = True

    def _fault(self) -> None:
        draw = self.scheduler.random
        faults = (
            self._kill_driver,
            self._kill_server,
            self._kill_server,
            self._freeze_driver,
            self._freeze_driver,
            self._freeze_driver,
            self._freeze_server,
            self._lose_power,
            self._lose_power,
            self._kill_driver_but_not_its_jvm,
            *((self._kill_driver_but_not_its_jvm,) * 4 if self.shared else (self._lose_checkpoint, self._lose_machine)),
            self._store_down,
            self._cut_link,
            self._cut_link,
            self._fail_call,
            self._stop,
            self._go_back,
            self.wall.jump,
        )
        if self._armed is not None:
            armed, self._armed = self._armed, None
            armed()
            if self._armed is None:
                self._next_fault()
            return
        if self._to_driver:
            faults = (self._kill_driver, self._lose_power, *(self._freeze_driver,) * 3)
        if self._in_focus and self._focus is not None:
            _, names = self._focus.steps[self._focused % len(self._focus.steps)]
            faults = tuple(getattr(self, each) for each in names)
            self._focused += 1
        self._to_driver = self._in_focus = False
        chosen = draw.choice(faults)
        self._faults.append(chosen.__name__)
        self.scheduler.say("", "", chosen.__name__)
        chosen()
        if self._armed is None:
            self._next_fault()

    def _wait(self) -> None:
        """A step of a chain that only waits for its point."""

    def _kill_driver(self) -> None:
        self.scheduler.kill(self.drivers[-1].process)

    def _kill_driver_but_not_its_jvm(self) -> None:
        """Now, or when its batch function has just returned: then the JVM has most to do on its own."""
        driver, spark = self.drivers[-1], self.drivers[-1].spark

        def kill() -> None:
            if not driver.process.dead:
                jvm = Process(f"jvm of {driver.process.name}")
                self.jvms.append(jvm)
                self.scheduler.kill(driver.process)
                if spark is not None:
                    self.scheduler.start(jvm, "spark", spark.live_on)

        if spark is None or self.scheduler.random.random() < 0.3:
            kill()
        else:
            spark.at_return = lambda: self._soon(kill)

    def _soon(self, fault: Callable[[], None]) -> None:
        """At the next step."""
        self._armed, self.scheduler.fault_at = fault, self.scheduler.steps + 1

    def _lose_checkpoint(self) -> None:
        """The disk with Spark's checkpoint, and the driver with it. The state lies elsewhere."""
        for process in (*self.jvms, self.drivers[-1].process):
            self.scheduler.kill(process)
        self._machine += 1
        self.checks.forget()
        self.checks.recoverable()
        self._start_soon()

    def _lose_machine(self) -> None:
        """The driver is taken for dead, and starts again on another machine. It is not dead, but stands still."""
        if not self._starting:
            self._freeze_driver()
            if self.far is not None:
                self._machine += 1
                self.checks.forget()

    def _kill_server(self) -> None:
        living = [server for server in self.servers if not server.process.dead]
        if living:
            self.scheduler.kill(self.scheduler.random.choice(living).process)

    def _freeze_driver(self) -> None:
        self._freeze_driver_for(self.scheduler.random.choice((2.0, 10.0, 60.0)))

    def _freeze_driver_for_long(self) -> None:
        self._freeze_driver_for(60.0)

    def _freeze_driver_for(self, seconds: float) -> None:
        driver = self.drivers[-1]
        if not driver.process.dead and not self._starting:
            self.scheduler.freeze(driver.process)
            self.scheduler.later(seconds, lambda: self.scheduler.thaw(driver.process))
            self._start_soon()

    def _freeze_server(self) -> None:
        self._freeze_server_for(self.scheduler.random.choice((1.0, 20.0, 60.0)))

    def _freeze_server_for_long(self) -> None:
        self._freeze_server_for(60.0)

    def _freeze_server_for(self, seconds: float) -> None:
        living = [server for server in self.servers if not server.process.dead and not server.process.frozen]
        if living:
            server = self.scheduler.random.choice(living)
            server.troubled = True
            self.scheduler.freeze(server.process)
            self.scheduler.later(seconds, lambda: self.scheduler.thaw(server.process))

    def _lose_power(self) -> None:
        """Of the machine with the shared disk, and everything with it, or of a machine of servers."""
        number = self.scheduler.random.randrange(-1, len(self.machines))
        on_shared = number < 0 or self.far is None
        for server in self.servers:
            if server.machine == number or self.far is None:
                self.scheduler.kill(server.process)
        if number >= 0:
            self.machines[number].lose_power()
        if on_shared:
            for process in (*self.jvms, *(driver.process for driver in self.drivers)):
                self.scheduler.kill(process)
            self.disk.lose_power()
            self.checks.forget()
            self.checks.recoverable()
            if self.files is not None:
                self.files.lose_power()

    def _store_down(self) -> None:
        if self.far is not None:
            self.far.down_until = self.scheduler.now + self.scheduler.random.choice((1.0, 30.0))

    def _cut_link(self) -> None:
        machines = self.links.cut(len(self.machines))
        for server in self.servers:
            server.troubled = server.troubled or server.machine in machines

    def _delay_commit(self) -> None:
        self.links.delay_one("commit", self.scheduler.random.choice((0.5, 3.0)))

    def _delay_commit_for_long(self) -> None:
        self.links.delay_one("commit", 20.0)

    def _delay_record(self) -> None:
        if self.far is not None:
            self.far.delayed.add(filenames.SPARK_RECORD_PREFIX)

    def _fail_call(self) -> None:
        self.links.fail_one()

    def _stop(self) -> None:
        """The user stops the query, and starts it again."""
        self.drivers[-1].stop()

    def _go_back(self) -> None:
        """The user stops the query, or its driver dies, and has it go back to an older epoch, once there is one."""
        if len(self.checks.kept_epochs()) > 1:
            self.goes_back = True
            self.scheduler.random.choice((self._stop, self._kill_driver, self._kill_driver))()
        elif not self.done:
            self._armed = self._go_back
            self.scheduler.fault_at = self.scheduler.steps + self.scheduler.random.randint(1, FAULT_STEPS)

    # The code under test asks here for time, threads and names -------------------------------------------------------

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        names = random.Random(self.seed)

        def name_of(count: int) -> str:
            own = names.getrandbits(8 * count) if self.scheduler.runs_here else random.getrandbits(8 * count)
            return f"{own:0{2 * count}x}"

        with contextlib.ExitStack() as stack:
            stack.enter_context(tasks.use(SimTasks(self.scheduler)))
            stack.enter_context(clock.use(SimClock(self.scheduler, self.wall)))
            stack.enter_context(randomness.use(name_of))
            yield


def _chosen(wanted: bool | None, drawn: bool) -> bool:
    return drawn if wanted is None else wanted


def _watched(checks: Checks) -> type[Controller]:
    class Watched(Controller):
        def commit(self, *args: Any, **more: Any) -> Manifest:
            manifest = super().commit(*args, **more)
            checks.acknowledged(manifest)
            return manifest

    return Watched


class _NoLock:
    """Drivers of different machines do not see each other's locks."""

    def __init__(self, store: ObjectStore, run: str) -> None:
        pass

    def release(self) -> None:
        pass


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """What is the same for all seeds: compactions come early, nothing is logged, nothing depends on this process."""
    log = logging.getLogger("tailrace")
    level = log.level
    log.setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (controllers, "QueryLock", _NoLock),
            (compactions, "FAN_IN", 3),
            (compactions, "GROWTH", 1),
            (logs, "process_id", lambda: 1),
            (logs, "host_name", lambda: "sim"),
            (local_store, "process_id", lambda: 1),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        try:
            yield
        finally:
            log.setLevel(level)


def run(seed: int) -> Outcome:
    """Only inside ``simulated``."""
    return World(seed).run()
