"""One round on a cluster of hosts: four queries over a scripted input, to its end, whatever is killed meanwhile.

Windows, sessions, a join and rolling aggregates, each with its state on the shared disk or in S3 and with a commit mode
that the round's seed chooses. A driver that ends is started again, as a supervisor would: one that nobody killed counts
as ended by itself, and is a fault.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from support.cluster.hosts import Hosts
from support.crash.kill_points import Trail
from support.crash.kill_queries import CASES, FAILED
from support.processes import kill

QUERIES = ("windows", "sessions", "interval join", "rolling")
_DEAF_S = 20.0
"""A Python driver that has lost its JVM ends by then, or is killed."""


@dataclass
class Verdict:
    """Of the sinks of a round."""

    epochs: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)
    """In words: epochs of which rows are lost, doubled or wrong."""

    def __iadd__(self, other: Verdict) -> Verdict:
        self.epochs += other.epochs
        self.rows += other.rows
        self.lost += other.lost
        self.doubled += other.doubled
        self.faults += other.faults
        return self


class Round:
    """``say`` gets a line for what happens to the driver."""

    def __init__(self, hosts: Hosts, seed: int, epochs: int, say: Callable[[str], None] = print) -> None:
        self.seed, self.epochs = seed, epochs
        self._hosts = hosts
        self._say = say
        self._rng = random.Random(seed)
        self._root = hosts.sandbox.root / f"round-{seed}"
        self._trails = {name: Trail(self._root / name) for name in QUERIES}
        places = self._rng.sample(["disk", "s3"] * 2, len(QUERIES))
        self._options = {name: self._draw_options(name, place) for name, place in zip(QUERIES, places, strict=True)}
        for name in QUERIES:
            CASES[name].feed(self._root / name, seed, epochs)
        self._child: subprocess.Popen[bytes] | None = None
        self._killed_at: float | None = None
        self.ended_by_itself = 0

    def _draw_options(self, name: str, place: str) -> dict[str, str]:
        options = {"commit": self._rng.choice(["sync", "async", "async-checkpoint"])}
        if place == "s3":
            options["stateLocation"] = self._hosts.s3.uri(f"{self.seed}/{name.replace(' ', '-')}")
        return options

    def __str__(self) -> str:
        said = [
            f"{name}: {options['commit']} {'in S3' if 'stateLocation' in options else 'on disk'}"
            for name, options in self._options.items()
        ]
        return f"round of seed {self.seed}; {'; '.join(said)}"

    @property
    def progress(self) -> float:
        """The share of all queries' epochs that Spark has committed."""
        committed = sum(trail.spark_epoch("commits") + 1 for trail in self._trails.values())
        return committed / (self.epochs * len(QUERIES))

    def tend(self) -> bool:
        """Start the driver where none runs. True when all queries are at the end of their input."""
        child = self._child
        if child is None:
            self._child, self._killed_at = self._start(), None
            return False
        if self._killed_at is not None and time.monotonic() > self._killed_at + _DEAF_S:
            kill(child.pid)
        code = child.poll()
        if code is None:
            return False
        self._child = None
        if code == 0:
            return True
        if self._killed_at is None:
            self.ended_by_itself += 1
            failed = self._root / FAILED
            why = failed.read_text() if failed.exists() else self._hosts.sandbox.log_tail()
            self._say(f"the driver has ended by itself: {_without_java(why)}")
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        (self._root / FAILED).unlink(missing_ok=True)
        ahead = self._rng.random() < 0.5
        config: dict[str, Any] = {"names": QUERIES, "options": self._options, "ahead": ahead}
        return self._hosts.start_driver({"root": str(self._root), **config})

    def kill_driver(self) -> bool:
        """Its Python, its JVM, or both; false where none runs."""
        if self._child is None or self._child.poll() is not None or self._killed_at is not None:
            return False
        which = self._rng.choice(["python", "jvm", "both"])
        jvms = self._hosts.driver_jvms() if which != "python" else []
        if which == "jvm" and not jvms:
            return False
        self._killed_at = time.monotonic()
        for pid in [jvm.pid for jvm in jvms] + ([self._child.pid] if which != "jvm" else []):
            kill(pid)
        return True

    def stop(self) -> None:
        """End the driver, whatever the queries are at."""
        if self._child is not None:
            kill(self._child.pid)
            self._child.wait()

    def remove(self) -> None:
        """Its files; what it has in S3 goes with the server."""
        shutil.rmtree(self._root)

    def verify(self, spark: SparkSession) -> Verdict:
        """What the sinks hold, against the oracle."""
        verdict = Verdict()
        for name in QUERIES:
            try:
                for each in CASES[name].compare(spark, self._root / name, self.seed, self.epochs):
                    faults = [f"{name}, epoch {each.epoch}: {each.fault}"] if each.fault else []
                    verdict += Verdict(1, each.rows, each.lost, each.doubled, faults)
            except AssertionError as error:  # of a replayed epoch with other rows, or of Spark's log
                verdict.faults.append(f"{name}: {error}")
        return verdict


def _without_java(text: str) -> str:
    """A traceback without Java's part of it."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("at "))
