"""Queries that are killed and restarted: their files, their processes, and the verdict at the end.

Several cases of ``kill_case`` run at once in one driver, each on a checkpoint of its own: a driver that is killed takes
all of them with it, each at another point, and a JVM that starts is what these tests wait for most.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import SparkSession

from support.crash.kill_points import Trail
from support.crash.kill_queries import EVERY_CASE
from support.processes import TESTS, Sandbox, kill
from support.queries.file_sink import spilled

CHILD = TESTS / "crash" / "child_query.py"
GONE_S = 90.0
"""By then nothing of a killed driver may be left: the JVM sees the end of its pipe, servers the end of the JVM, and
Spark's Python daemon that of its own, once it has imported everything: on a machine that does much else, too."""
SEEN_S = 300.0
"""How long a point of an epoch, or the end, may take to come: on a machine that does much else."""


class KillRun:
    def __init__(self, seed: int, epochs: int, names: Collection[str], modes: Mapping[str, str] | None = None) -> None:
        """``modes``: of the commit, by case."""
        self.seed, self.epochs, self.names = seed, epochs, tuple(names)
        self._modes = dict(modes or {})
        self._rng = random.Random(seed)
        self.sandbox = Sandbox()
        self.root = self.sandbox.root / "q"
        self.cases = {name: EVERY_CASE[name] for name in self.names}
        self.trails = {name: Trail(self.root / name) for name in self.names}
        for name, case in self.cases.items():
            case.feed(self.root / name, seed, epochs)

    def __enter__(self) -> KillRun:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            print(f"the queries stand at {self.everywhere()}")
            print(f"the child's log ends:\n{self.sandbox.log_tail(80)}")
        self.sandbox.__exit__()

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        """All queries in a new driver. ``more``: see ``child_query``."""
        options = {name: self._options(name) for name in self.names}
        config = {"root": str(self.root), "names": self.names, "options": options, "ahead": self._rng.random() < 0.5}
        return self.sandbox.start(CHILD, {**config, **more})

    def _options(self, name: str) -> dict[str, str]:
        """An asynchronous commit gets a slow store: else it is done before anybody can kill it."""
        mode = self._modes.get(name, "sync")
        if mode == "sync":
            return {"commit": mode}
        far = f"shaped:latency_ms=20:{self.root / name / 'check' / 'tailrace'}"
        return {"commit": mode, "stateLocation": far, "localLocation": str(self.root / name / "local")}

    def server(self, name: str) -> int | None:
        """The pid of a query's server, if one listens at this moment."""
        # By its own name: other folders there come and go while they are looked into.
        folders = (self.sandbox.temporary / f"tailrace-{os.getuid()}").glob(f"{self.trails[name].run()}-*")
        for folder in folders:
            try:
                return int(json.loads((folder / "address.json").read_text())["pid"])
            except FileNotFoundError:
                continue
        return None

    def kill_server(self, name: str, child: subprocess.Popen[bytes], seconds: float = 10.0) -> bool:
        """Kill the server of a query, or the one that takes its place; false where the query came to its end."""
        deadline = time.monotonic() + seconds
        while child.poll() is None and time.monotonic() < deadline:
            server = self.server(name)
            if server is not None and kill(server):
                return True
            if self.trails[name].has_spark_epoch("commits", self.epochs - 1):
                return False
            time.sleep(0.01)
        return False

    def where(self, name: str) -> str:
        """Where a query stands, for the log of a test."""
        trail = self.trails[name]
        return (
            f"{name}: offsets {trail.spark_epoch('offsets')}, commits {trail.spark_epoch('commits')}, "
            f"log entries {trail.log_entries()}"
        )

    def everywhere(self) -> str:
        return "; ".join(map(self.where, self.names))

    def killed(self, child: subprocess.Popen[bytes]) -> None:
        """Kill the driver. Nothing may survive it, and all of it must be gone soon."""
        kill(child.pid)
        child.wait()
        assert self.sandbox.gone_within(GONE_S) == []

    def ended(self, child: subprocess.Popen[bytes]) -> None:
        """A driver that nobody killed ends well, and leaves nothing."""
        try:
            code = child.wait(SEEN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the queries did not end within {SEEN_S} s") from None
        assert code == 0, f"a query failed:\n{self.sandbox.log_tail()}"
        assert self.sandbox.gone_within(5.0) == []
        assert self.sandbox.leftovers() == []

    def verify(self, spark: SparkSession) -> None:
        """Every sink holds exactly the oracle's rows."""
        for name, case in self.cases.items():
            rows = case.check(spark, self.root / name, self.seed, self.epochs)
            assert rows > 0, f"{name} has emitted nothing"
        # A server that is killed often enough may hold too little at any time, but not all of them.
        tight = [name for name, case in self.cases.items() if case.spills]
        needed = len(tight) < 2 or any(spilled(self.root / name / "out") for name in tight)
        assert needed, f"none of {tight} needed the disk"
