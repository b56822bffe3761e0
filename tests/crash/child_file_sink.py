"""A query with a sink of files, in a process of its own. It keeps no lock, as one on another machine would not.

``freeze``: it stands still once the gate has let this epoch out, until it is told to go on. Where the epoch's files are
gone after that, it dies at once. ``kill``: it dies at this step of the first publication that it makes. ``endless``: it
goes on at the end of the source.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from support.processes import NoLock
from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, SCHEMA
from support.session import session_builder
from tailrace.commit import controller as controllers
from tailrace.commit.sink_manifest import SinkManifests
from tailrace.spark.commit.commits import Commits
from tailrace.spark.query import start
from tailrace.spark.sinks.files.places import HadoopPlace, LocalPlace
from tailrace.spark.sinks.files.sink import FileSink
from tailrace.testing import ScriptedSource

STEPS: dict[str, tuple[tuple[type, str], ...]] = {
    "write": ((FileSink, "write"),),
    "seal": ((LocalPlace, "seal"), (HadoopPlace, "seal")),
    "put": ((SinkManifests, "put"),),
    "move": ((LocalPlace, "move"), (HadoopPlace, "move")),
    "file": ((HadoopPlace, "_move_file"),),
}
"""By the functions that do them. ``+`` before a step: when it is done, else when it is about to be."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def freeze(epoch: int, root: Path, out: Path) -> None:
    gate = Commits.gate
    folder = out / f"tailrace_epoch={epoch}"

    def frozen(self: Commits, at: int) -> None:
        gate(self, at)
        if at == epoch:
            (root / "frozen").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Thread(target=watch, daemon=True).start()

    def watch() -> None:
        while any(folder.glob("*.parquet")):
            time.sleep(0.001)
        die()

    Commits.gate = frozen  # type: ignore[method-assign]


def kill(step: str) -> None:
    for kind, name in STEPS[step.removeprefix("+")]:
        work = getattr(kind, name)

        def killed(*args: Any, work: Any = work, **more: Any) -> Any:
            if step.startswith("+"):
                work(*args, **more)
            return die()

        setattr(kind, name, killed)


def main() -> None:
    config = json.loads(sys.argv[1])
    root, out = Path(config["root"]), config["out"]
    controllers.QueryLock = start.QueryLock = NoLock  # type: ignore[misc,assignment]
    if "freeze" in config:
        freeze(config["freeze"], root, Path(out))
    if "kill" in config:
        kill(config["kill"])
    builder = session_builder("local[2]")
    for name, value in config.get("confs", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    stream = tailrace_stream(ScriptedSource(root / "in", SCHEMA).stream(spark), ROLLING)
    writer = stream.writeStream.outputMode("update").format("parquet").partitionBy(*config.get("partition_by", []))
    writer = writer.option("checkpointLocation", config.get("checkpoint", str(root / "check")))
    if "state" in config:
        writer = writer.option("stateLocation", config["state"])
    endless = config.get("endless", False)
    writer = writer.trigger(processingTime="0 seconds") if endless else writer.trigger(availableNow=True)
    query = writer.start(out)
    query.awaitTermination()
    query.stop()
    if "read" in config:  # for a file system that only this session has
        spark.read.parquet(out).write.parquet(config["read"])
    spark.stop()


if __name__ == "__main__":
    main()
