"""When to kill: points of an epoch that can be seen from outside, by the files that appear.

An epoch leaves this trail: Spark's ``offsets/N``; the server's delta, saved on its machine and then in the store; the
durable log entry; the sink's file; Spark's ``commits/N``. A point waits for one of these, then a random delay of up to
``jitter`` seconds, so that the kill falls into the step after it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

POINTS = ("offsets", "saved", "delta", "log", "sink", "commits")
_RUN = re.compile(rb'"run":"([^"]+)"')


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

    def has_spark_epoch(self, kind: str, epoch: int) -> bool:
        return (self.root / "check" / kind / str(epoch)).exists()

    def log_entries(self) -> int:
        """The number of the newest entry, not how many there are: old ones are cleaned away."""
        return max((int(path.stem) for path in self._entries()), default=-1)

    def run(self) -> str | None:
        """The run that wrote the newest entry: the one that goes on now."""
        newest = max(self._entries(), key=lambda path: int(path.stem), default=None)
        try:
            found = None if newest is None else _RUN.search(newest.read_bytes())
        except FileNotFoundError:
            return None  # just cleaned away
        return None if found is None else found[1].decode()

    def _entries(self) -> list[Path]:
        found = self._log.glob("*.json") if self._log.exists() else ()
        return [path for path in found if path.stem.isdigit()]

    def has_delta(self, epoch: int) -> bool:
        return any(self._objects.glob(f"{epoch:020d}-*.delta")) if self._objects.exists() else False

    def has_saved(self, epoch: int) -> bool:
        """On the server's machine; where the store is no far one, in the store."""
        return any(self.root.glob(f"local/*/objects/{epoch:020d}-*.delta")) or self.has_delta(epoch)

    def rewound(self) -> int:
        """How many files were moved out of Spark's logs, if that was seen."""
        return len(list(self.root.glob("check/tailrace-backup/*/*")))

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


@dataclass
class Watch:
    """Waits for one point of one query."""

    trail: Trail
    point: KillPoint
    _entries: int | None = field(default=None, init=False)

    def reached(self) -> bool:
        """Whether the point is there, looked at once. The jitter is the caller's to wait."""
        trail, epoch, point = self.trail, self.point.epoch, self.point.point
        if self._entries is None:
            if not trail.has_spark_epoch("offsets", epoch):
                return False
            self._entries = trail.log_entries()
        if point == "saved":
            return trail.has_saved(epoch) or trail.has_spark_epoch("commits", epoch)
        if point == "delta":
            return trail.has_delta(epoch) or trail.has_spark_epoch("commits", epoch)
        if point == "log":
            return trail.log_entries() > self._entries
        if point == "sink":
            return trail.has_output(epoch)
        return trail.has_spark_epoch(point, epoch)
