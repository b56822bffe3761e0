"""Who is killed when: points for the servers of every query, which outlive the drivers, and ways to kill a driver."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from support.crash.kill_points import KillPoint, Watch
from support.crash.kill_runs import SEEN_S, KillRun
from support.queries.file_sink import PAUSED

_POLL_S = 0.004


@dataclass
class Killer:
    """Kills servers of a run at their points, whichever driver is alive then, and drivers."""

    run: KillRun
    rng: random.Random
    servers: int = 0
    """Killed so far."""
    drivers: int = 0
    _points: dict[str, list[KillPoint]] = field(default_factory=dict)
    _watches: dict[str, Watch] = field(default_factory=dict)

    def plan(self, name: str, kills: int) -> None:
        """Kill the servers of a query so often, each time in another epoch."""
        epochs = sorted(self.rng.sample(range(1, self.run.epochs - 1), kills))
        self._points[name] = [KillPoint.draw(self.rng, epoch) for epoch in epochs]
        self._next(name)

    def until(self, child: subprocess.Popen[bytes], seen: Callable[[], bool]) -> bool:
        """Kill servers until ``seen``. False where the child ended first."""
        deadline = time.monotonic() + SEEN_S
        while not seen():
            if child.poll() is not None:
                return False
            assert time.monotonic() < deadline, f"not seen within {SEEN_S} s"
            for name, watch in list(self._watches.items()):
                if watch.reached():
                    time.sleep(watch.point.jitter)
                    self._kill_server(name, watch, child)
                    deadline = time.monotonic() + SEEN_S
            time.sleep(_POLL_S)
        return True

    def finish(self) -> None:
        """A driver that is not killed: to the end of all queries."""
        child = self.run.start()
        self.until(child, lambda: False)
        self.run.ended(child)

    # Drivers ---------------------------------------------------------------------------------------------------------

    def at_random(self, epoch: int) -> None:
        """At any point of an epoch of one of the queries."""
        name, point = self._going_on(epoch), KillPoint.draw(self.rng, epoch)
        child = self.run.start()
        watch = Watch(self.run.trails[name], point)
        if not self.until(child, watch.reached):
            self.run.ended(child)
            return
        time.sleep(point.jitter)
        self._kill_driver(child, f"at {point} of {name}")

    def in_sink(self, epoch: int) -> None:
        """The epoch is durable with us and not committed with Spark: the version before it must still be there."""
        name = self._going_on(epoch)
        trail = self.run.trails[name]
        epoch = max(epoch, trail.spark_epoch("commits") + 1)
        child = self.run.start(pause={name: epoch})
        paused = trail.root / "out" / PAUSED
        if not self.until(child, paused.exists):
            self.run.ended(child)  # epochs that are planned afresh are fewer
            return
        self._kill_driver(child, f"in the sink of {name}")
        paused.unlink()
        assert trail.spark_epoch("commits") == epoch - 1

    def at_start(self, epoch: int) -> None:
        """Between a query's fence and its first epoch: locks, and half-started servers."""
        name = self._going_on(epoch)
        trail = self.run.trails[name]
        before = trail.log_entries()
        child = self.run.start()
        if not self.until(child, lambda: trail.log_entries() > before):
            raise AssertionError(f"{name} has not started: {self.run.sandbox.log_tail()}")
        time.sleep(self.rng.choice([0.0, self.rng.uniform(0, 2)]))
        self._kill_driver(child, f"at the fence of {name}")

    def in_rewind(self, epoch: int) -> None:
        """While a start moves files out of Spark's logs; at its first epoch, where it has none to move."""
        before = {name: (trail.rewound(), trail.spark_epoch("offsets")) for name, trail in self.run.trails.items()}

        def seen() -> bool:
            trails = self.run.trails.items()
            return any((trail.rewound(), trail.spark_epoch("offsets")) != before[name] for name, trail in trails)

        child = self.run.start()
        if not self.until(child, seen):
            self.run.ended(child)
            return
        moved = [name for name, trail in self.run.trails.items() if trail.rewound() != before[name][0]]
        self._kill_driver(child, f"in the rewind of {', '.join(moved)}" if moved else "at a first epoch")

    def _going_on(self, epoch: int) -> str:
        """A query that has not come to its end, if there is one."""
        last = self.run.epochs - 1
        going = [name for name, trail in self.run.trails.items() if not trail.has_spark_epoch("commits", last)]
        return self.rng.choice(going or self.run.names)

    def _kill_driver(self, child: subprocess.Popen[bytes], where: str) -> None:
        self.run.killed(child)
        self.drivers += 1
        print(f"driver killed {where}; {self.run.everywhere()}")

    # Servers ---------------------------------------------------------------------------------------------------------

    def _kill_server(self, name: str, watch: Watch, child: subprocess.Popen[bytes]) -> None:
        if self.run.kill_server(name, child):
            self.servers += 1
            print(f"server killed at {watch.point}; {self.run.where(name)}")
        elif child.poll() is not None:
            return  # the next driver's server, then
        self._next(name)

    def _next(self, name: str) -> None:
        if self._points[name]:
            self._watches[name] = Watch(self.run.trails[name], self._points[name].pop(0))
        else:
            self._watches.pop(name, None)
