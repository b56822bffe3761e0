"""The plain query on a cluster of two executors, in a process of its own.

``"kind": "local-cluster"``: two executors on one host, and sinks that are begun before their rows are there.
``"standalone"``: two hosts, and speculation: in each epoch one task is slow in its first attempt. That attempt has sent
all its rows when its copy starts, and is still alive when the copy has won.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from support.cluster.standalone_spark import Standalone
from support.queries.pipelined_sink import begin_sinks_pipelined
from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from support.session import GENERATED, session_builder

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
}


def slow_first_attempt(marks: Path) -> Any:
    def slow(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (marks / f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from rows
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            time.sleep(3)

    return slow


def main() -> None:
    config = json.loads(sys.argv[1])
    root = Path(config["root"])
    speculate = config["kind"] == "standalone"
    with ExitStack() as stack:
        master = stack.enter_context(Standalone(root)).master if speculate else "local-cluster[2,1,1024]"
        builder = session_builder(master, GENERATED).config("spark.executor.memory", "1g")
        # Both executors must be there when the servers are placed: a cluster brings them one by one.
        builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0").config("spark.cores.max", "4")
        for name, value in SPECULATION.items() if speculate else ():
            builder = builder.config(name, value)
        for name in ("PYTHONPATH", "TMPDIR"):
            builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
        spark = builder.getOrCreate()
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        if not speculate:
            begin_sinks_pipelined()
        marks = root / "marks"
        marks.mkdir()
        for name in config["questions"]:
            question = {"rolling": ROLLING, "windowed": WINDOWED}[name]
            query = Scripted(spark, root / name, question)
            for _ in range(config["runs"]):
                query.feed(batches(6, rows=200)[len(query.fed) : len(query.fed) + 3])
                frame = query.frame().repartition(4)
                if speculate:
                    frame = frame.mapInArrow(slow_first_attempt(marks), frame.schema)
                output = query.run(frame, **config.get("options", {}))
                servers = [progress.servers for progress in output.progress]
                # Executors that a young cluster brings late get no server: only where both are there at once is it two.
                assert servers == [2, 2, 2] or speculate, f"state servers by epoch: {servers}"
            query.check()
        if speculate:
            copies = [path.name for path in marks.iterdir() if not path.name.endswith("-0")]
            assert copies, "no task was run twice"
            print("copies:", copies)


if __name__ == "__main__":
    main()
