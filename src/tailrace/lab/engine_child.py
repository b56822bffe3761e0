"""The child's side of ``engine_process``: one Spark session, one streaming query, batches when it is told.

A batch's time is Spark's own ``triggerExecution``, seen by a listener in the same way for every engine: from the look
for new files to the commit. Reading the answers of a query never happens while a batch runs.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tailrace.lab.bench_sinks import SINKS
from tailrace.lab.peers import ENGINES, read_feed
from tailrace.lab.progress import progress_dict
from tailrace.lab.session import start_session

_BATCH_TIMEOUT_S = 900
_NOT_OURS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")  # Spark's own, and a page long


class _Batches(StreamingQueryListener):
    """Puts each batch that had rows, and each end of a query, on a queue."""

    def __init__(self) -> None:
        self.seen: queue.Queue[dict[str, Any]] = queue.Queue()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = json.loads(event.progress.json)
        if progress["numInputRows"]:
            self.seen.put(progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.exception:
            self.seen.put({"error": event.exception})


class _Child:
    def __init__(self, engine: str, work: str, confs: dict[str, str]) -> None:
        self.engine = ENGINES[engine]
        self.work = Path(work)
        self.feed = self.work / "feed"
        self.feed.mkdir()
        self.spark = start_session(
            f"lab {engine}", work=self.work, heap=self.engine.heap, extra={**self.engine.confs, **confs}
        )
        self.batches = _Batches()
        self.spark.streams.addListener(self.batches)
        self.query: Any = None

    def start(self, sink: str, out: str) -> dict[str, Any]:
        """Starts the query, or starts it again on the same checkpoint. ``out``: where a sink that writes writes."""
        writer = self.engine.write(read_feed(self.spark, str(self.feed)))
        writer = writer.option("checkpointLocation", str(self.work / "checkpoint"))
        self.query = SINKS[sink](writer, Path(out)).start()
        return {}

    def batch(self, file: str) -> dict[str, Any]:
        """Lets the query see one more file and waits until the batch with it is committed."""
        shown = time.perf_counter()
        os.link(file, self.feed / Path(file).name)
        try:
            progress = self.batches.seen.get(timeout=_BATCH_TIMEOUT_S)
        except queue.Empty:
            return {"error": f"no batch within {_BATCH_TIMEOUT_S} s"}
        if "error" in progress:
            return {"error": progress["error"]}
        return {
            "epoch": progress["batchId"],
            "rows": progress["numInputRows"],
            "ms": progress["durationMs"]["triggerExecution"],
            "wall_ms": round((time.perf_counter() - shown) * 1e3, 1),
            "durations_ms": progress["durationMs"],
            "own_ms": self._own_durations(),
        }

    def _own_durations(self) -> dict[str, float]:
        """Where Tailrace itself says the epoch's time went. Spark's own engines have said all they know already."""
        if self.engine.name != "tailrace":
            return {}
        durations: dict[str, float] = progress_dict(self.query.lastProgress).get("durationMs", {})
        return durations

    def stop(self) -> dict[str, Any]:
        if self.query is not None:
            self.query.stop()
            self.query = None
        return {}


def main() -> None:
    # Answers go out on a private copy of standard output: Spark and its JVM may write to the real one.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    child = _Child(**json.loads(sys.argv[1]))
    confs = dict(sorted(child.spark.sparkContext.getConf().getAll()))
    say({"confs": {name: value for name, value in confs.items() if name not in _NOT_OURS}})
    acts: dict[str, Callable[..., dict[str, Any]]] = {"start": child.start, "batch": child.batch, "stop": child.stop}
    try:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                say(acts[command.pop("do")](**command))
            except Exception as error:  # the parent decides; a child that only dies says less
                say({"error": f"{type(error).__name__}: {error}"})
    finally:
        child.stop()
        child.spark.stop()


if __name__ == "__main__":
    main()
