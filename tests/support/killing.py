"""When to kill: points of an epoch that can be seen from outside, by the files that appear.

An epoch leaves this trail: Spark's ``offsets/N``; the server's delta; the durable log entry; the sink's file; Spark's
``commits/N``. A point waits for one of these, then a random delay of up to ``jitter`` seconds, so that the kill falls
into the step after it.
"""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

POINTS = ("offsets", "delta", "log", "sink", "commits")


@dataclass(frozen=True)
class Trail:
    """The files of one query."""

    root: Path

    @property
    def _log(self) -> Path:
        return self.root / "check" / "tailrace" / "log"

    @property
    def _objects(self) -> Path:
        return self.root / "check" / "tailrace" / "objects"

    def spark_epoch(self, kind: str) -> int:
        """The newest epoch in Spark's ``offsets`` or ``commits``; -1 where there is none."""
        folder = self.root / "check" / kind
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def log_entries(self) -> int:
        """The number of the newest entry, not how many there are: old ones are cleaned away."""
        names = [path.stem for path in self._log.glob("*.json")] if self._log.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def has_delta(self, epoch: int) -> bool:
        return any(self._objects.glob(f"{epoch:020d}-*.delta")) if self._objects.exists() else False

    def has_output(self, epoch: int) -> bool:
        return (self.root / "out" / f"{epoch:06d}.parquet").exists()


@dataclass(frozen=True)
class KillPoint:
    epoch: int
    point: str
    jitter: float

    @classmethod
    def draw(cls, rng: random.Random, epoch: int, point: str | None = None) -> KillPoint:
        return cls(epoch, point or rng.choice(POINTS), rng.choice([0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))

    def wait(self, trail: Trail, child: subprocess.Popen[bytes], seconds: float = 120.0) -> bool:
        """Until the point is reached. False where the child ended first."""
        deadline = time.monotonic() + seconds
        entries = None
        while True:
            if child.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} was not reached within {seconds} s")
            if entries is None and trail.spark_epoch("offsets") >= self.epoch:
                entries = trail.log_entries()
            if entries is not None and self._reached(trail, entries):
                time.sleep(self.jitter)
                return True
            time.sleep(0.0005)

    def _reached(self, trail: Trail, entries: int) -> bool:
        if self.point == "delta":
            return trail.has_delta(self.epoch) or trail.spark_epoch("commits") >= self.epoch
        if self.point == "log":
            return trail.log_entries() > entries
        if self.point == "sink":
            return trail.has_output(self.epoch)
        return trail.spark_epoch(self.point) >= self.epoch
