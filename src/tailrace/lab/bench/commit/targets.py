"""What ``tailrace bench commit`` compares, and the slow store that all of it checkpoints to.

``proxy``: one S3 server on this machine, and one shaping proxy in front of it that every target goes through, Spark by
S3A, Tailrace by its own client: the same latency a request, and one line that all share. ``shaped``: a local folder
behind ``shaped:``, for Tailrace alone; it needs no server. Both are up while ``slow_store`` is entered.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Value
from tailrace.lab.servers.s3 import REGION, S3Server
from tailrace.lab.servers.s3a import s3a_confs
from tailrace.lab.servers.shaping_proxy import ShapingProxy

STORES = ("proxy", "shaped")
FEWER_REQUESTS = {"spark.hadoop.fs.s3a.performance.flags": "create,mkdir,delete"}
"""Hadoop's own advice for speed: S3A does not look whether what it writes or deletes is a folder. A fifth fewer."""
_IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Target:
    name: str
    words: str
    engine: str = OURS
    commit: str = "sync"
    """Of Tailrace."""
    buffers: bool = False
    """Whether a deadline decides how much a batch takes."""
    free: bool = False
    """Whether its store costs nothing."""
    remote_logs: bool = False
    """Whether Spark's own logs of the query lie in the slow store too."""


PEER, ASYNC, FREE = "spark-rocksdb", "async", "async-free-store"
TARGETS = {
    target.name: target
    for target in (
        Target(
            PEER, "Spark's RocksDB store with changelogs, all of its checkpoint in the store", PEER, remote_logs=True
        ),
        Target("sync", "Tailrace: durable before the sink"),
        Target(
            "async-checkpoint",
            "Tailrace: deltas written before the sink, the log entry behind it",
            commit="async-checkpoint",
        ),
        Target("buffered", "sync, with a deadline that decides how much a batch takes", buffers=True),
        Target(ASYNC, "Tailrace: all of the commit behind the sink", commit="async"),
        Target("async-remote-logs", "async, with Spark's own logs in the store too", commit="async", remote_logs=True),
        Target(FREE, "async, with a store that costs nothing", commit="async", free=True),
    )
}


@dataclass(frozen=True)
class SlowStore:
    """Where targets keep what must outlive them."""

    kind: str
    folder: Path
    """For stores that are local folders."""
    free_folder: Path
    shape: str
    s3: S3Server | None = None
    proxy: ShapingProxy | None = None

    def start(
        self, target: Target, workload: str, work: Path, confs: Mapping[str, str], values: Mapping[str, Value]
    ) -> EngineProcess:
        """The target's engine, its Spark session coming up."""
        place = f"{workload}-{target.name}"
        given: dict[str, str] = dict(confs)
        environment: dict[str, str] = {}
        checkpoint = None
        if self.s3 is not None and self.proxy is not None:
            environment = self.s3.environment(self.proxy.endpoint)
            if target.remote_logs:
                given |= s3a_confs(self.proxy.endpoint, REGION, work / target.name) | FEWER_REQUESTS
                checkpoint = self.s3.uri(f"{place}/spark", "s3a")
        options = {"commit": target.commit, "stateLocation": self._state(target, place)}
        return EngineProcess(
            workload,
            target.engine,
            work,
            given,
            values,
            options,
            name=target.name,
            checkpoint=checkpoint,
            environment=environment,
        )

    def counts(self) -> dict[str, int]:
        """What went through the proxy so far."""
        return self.proxy.counts() if self.proxy is not None else {}

    def _state(self, target: Target, place: str) -> str:
        if target.free:
            return str(self.free_folder / place)
        if self.s3 is not None:
            return self.s3.uri(f"{place}/tailrace")
        return f"shaped:{self.shape}:{self.folder / place}"


@contextmanager
def slow_store(kind: str, work: Path, latency_ms: float, mb_per_s: float) -> Iterator[SlowStore]:
    shape = f"latency_ms={latency_ms:g},mb_per_s={mb_per_s:g}"
    # In memory where there is such a place: a yardstick that waits for no disk.
    free = Path(tempfile.mkdtemp(prefix="tailrace-lab-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else work))
    try:
        if kind == "shaped":
            yield SlowStore(kind, work / "store", free, shape)
            return
        with S3Server() as s3, ShapingProxy(s3.port, latency_ms=latency_ms, mb_per_s=mb_per_s) as proxy:
            yield SlowStore(kind, work / "store", free, shape, s3, proxy)
    finally:
        shutil.rmtree(free, ignore_errors=True)
