"""Executors that come and go while a query runs: its shards follow them, and every row is there once.

``python tests/cluster/test_elastic.py --seconds N --every S`` runs it for longer and prints what it came to.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cluster.standalone_spark import Loopback, Standalone
from support.processes import Sandbox, wait_until
from support.queries.simple import ROLLING, SCHEMA, SECOND, Scripted
from support.session import GENERATED, session_builder

WORKERS_MAX = 4
AHEAD = 4
"""Batches that wait for the query."""
DONE_S = 120.0
CHANGES = ("joins", "leaves", "joins", "is killed")
SETTLED_EPOCHS, SETTLED_S = 5, 120.0
"""A change has been followed when so many epochs had as many servers as there are workers; or after so long."""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_rows_are_exact_while_executors_come_and_go() -> None:
    with Sandbox() as sandbox:
        config = {"root": str(sandbox.root), "rows": 400, "keys": 997, "changes": CHANGES}
        child = sandbox.start(Path(__file__), config)
        assert child.wait(1100) == 0, sandbox.log_tail(80)
        numbers = json.loads(sandbox.log.read_text().splitlines()[-1])
        print(numbers)
        assert numbers["moved_shards"] > 20, numbers
        assert len(numbers["servers"]) > 1, numbers
        assert sandbox.gone_within(20) == []


class Workers:
    """One executor of one core on each. Which of them come, leave or are killed is drawn."""

    def __init__(self, cluster: Standalone, rng: random.Random, say: Callable[[str], None]) -> None:
        self._cluster, self._rng, self._say = cluster, rng, say
        self._numbers = iter(range(1, 250))
        self._living: list[subprocess.Popen[bytes]] = []
        self.counts: Counter[str] = Counter()

    def join(self) -> None:
        self._living.append(self._cluster.add_worker(Loopback(f"127.0.1.{next(self._numbers)}"), 1))

    def __len__(self) -> int:
        return len(self._living)

    def change(self, kind: str | None = None) -> None:
        """One comes, is told to go, or is killed."""
        kind = kind or self._rng.choice(["joins", "joins", "leaves", "is killed"])
        if len(self._living) == 1 or (kind == "joins" and len(self._living) < WORKERS_MAX):
            self.join()
            kind = "joins"
        else:
            kind = "leaves" if kind == "joins" else kind
            worker = self._living.pop(self._rng.randrange(len(self._living)))
            worker.send_signal(signal.SIGPWR if kind == "leaves" else signal.SIGKILL)
        self.counts[kind] += 1
        self._say(f"a worker {kind}: {len(self._living)} are there")


def run(config: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    root, rng = Path(config["root"]), random.Random(config.get("seed"))
    with Standalone(root, workers=()) as cluster:
        workers = Workers(cluster, rng, say)
        for _ in range(2):
            workers.join()
        spark = _session(cluster)
        try:
            return _under_change(config, Scripted(spark, root / "rolling", ROLLING), workers)
        finally:
            spark.stop()


def _session(cluster: Standalone) -> Any:
    builder = session_builder(cluster.master, GENERATED).config("spark.executor.memory", "512m")
    builder = builder.config("spark.executor.cores", "1").config("spark.decommission.enabled", "true")
    builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    for name in ("PYTHONPATH", "TMPDIR"):
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _under_change(config: dict[str, Any], query: Scripted, workers: Workers) -> dict[str, Any]:
    query.feed((_batch(0, config),))
    running = query.start(commit=config.get("commit", "async"))
    progress: dict[int, Any] = {}
    schedule = _Scripted(config["changes"]) if "changes" in config else _ByClock(config["seconds"], config["every"])
    try:
        while not schedule.over:
            if running.exception() is not None:
                raise running.exception()
            if len(query.fed) - len(query.output.tables) < AHEAD:
                query.feed((_batch(len(query.fed), config),))
            progress |= {each.epoch: each for each in running.recentProgress}
            schedule.tend(workers, progress)
            time.sleep(0.05)
        wait_until("the last epoch", lambda: len(query.output.tables) == len(query.fed), DONE_S)
        progress |= {each.epoch: each for each in running.recentProgress}
    finally:
        running.stop()
    _check(query)
    return _numbers(list(progress.values()), workers)


def _check(query: Scripted) -> None:
    """Each epoch gives the sums of the keys that it changed. One epoch reads one batch."""
    sums: dict[int, tuple[int, int]] = {}
    for epoch, table in enumerate(query.fed):
        changed: dict[int, tuple[int, int]] = {}
        for key, value in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True):
            total, count = sums.get(key, (0, 0))
            sums[key] = changed[key] = total + value, count + 1
        found = sorted(tuple(row.values()) for row in query.output.tables[epoch].to_pylist())
        wanted = sorted((key, *sum_) for key, sum_ in changed.items())
        assert found == wanted, (
            f"epoch {epoch}: {set(wanted) - set(found)} are missing, {set(found) - set(wanted)} extra"
        )


class _ByClock:
    """A change every so many seconds."""

    def __init__(self, seconds: float, every: float) -> None:
        self._ends, self._every, self._at = time.monotonic() + seconds, every, time.monotonic() + every

    @property
    def over(self) -> bool:
        return time.monotonic() > self._ends

    def tend(self, workers: Workers, progress: dict[int, Any]) -> None:
        if time.monotonic() > self._at:
            workers.change()
            self._at += self._every


class _Scripted:
    """Given changes, each once the servers have followed the one before."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._left = [*kinds]
        self.over = False
        self._begun()

    def _begun(self, epoch: int = 0) -> None:
        self._since, self._late = epoch, time.monotonic() + SETTLED_S

    def tend(self, workers: Workers, progress: dict[int, Any]) -> None:
        newest = [each.servers for each in progress.values() if each.epoch > self._since][-SETTLED_EPOCHS:]
        if newest == [len(workers)] * SETTLED_EPOCHS or time.monotonic() > self._late:
            self._begun(max(progress, default=0))
            if self._left:
                workers.change(self._left.pop(0))
            else:
                self.over = True


def _batch(epoch: int, config: dict[str, Any]) -> pa.Table:
    numbers = np.arange(config["rows"]) + epoch * config["rows"]
    times = pa.array((1000 + 4 * epoch + numbers % 9) * SECOND).cast(SCHEMA.field("ts").type)
    return pa.table([pa.array(numbers * 7919 % config["keys"]), times, pa.array(numbers % 1000)], schema=SCHEMA)


def _numbers(progress: list[Any], workers: Workers) -> dict[str, Any]:
    took = {each.epoch: each.duration_ms.add_batch for each in progress}
    moving = [each for each in progress if each.move.shards and each.tries == 1]
    median = statistics.median(took.values())
    return {
        "epochs": len(progress),
        "joined": workers.counts["joins"],
        "left": workers.counts["leaves"],
        "killed": workers.counts["is killed"],
        "moved_shards": sum(each.move.shards for each in progress),
        "moving_epochs": len(moving),
        "epoch_ms_median": round(median),
        "moving_epoch_ms_median": round(statistics.median(took[each.epoch] for each in moving)) if moving else 0,
        "moving_epoch_ms_max": round(max((took[each.epoch] for each in moving), default=0)),
        "epoch_ms_max": round(max(took.values())),
        "tries_again": sum(each.tries - 1 for each in progress),
        "servers": sorted(Counter(each.servers for each in progress).items()),
        "versions": max(each.move.version for each in progress),
        "move_ms_max": round(max((each.move.seconds - each.move.waited_s) * 1e3 for each in progress)),
    }


def main() -> None:
    """In a child process, or by hand."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    if sys.argv[1].startswith("{"):
        numbers = run(json.loads(sys.argv[1]), say)
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        for name, default in (("seconds", 600), ("every", 20), ("rows", 2000), ("keys", 99_991)):
            parser.add_argument(f"--{name}", type=int, default=default)
        parser.add_argument("--commit", default="async")
        given = vars(parser.parse_args())
        with Sandbox() as sandbox:
            child = sandbox.start(Path(__file__), {"root": str(sandbox.root), **given})
            code = child.wait()
            print(sandbox.log_tail(4000) if code else sandbox.log.read_text())
            sys.exit(code)
    print(json.dumps(numbers), flush=True)


if __name__ == "__main__":
    main()
