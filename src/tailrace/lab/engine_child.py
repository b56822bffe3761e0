"""The child's side of ``engine_process``: one Spark session and one streaming query, a workload's for its engine.

The parent feeds the query batch by batch (``start``, ``batch``, ``stop``), so that engines can take turns, or lets it
run through files that are all there (``run``). A batch's time is Spark's own ``triggerExecution``, seen by a listener
in the same way for every engine: from the look for new files to the commit. Reading the answers of a query never
happens while a batch runs.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tailrace.lab import registry, workloads
from tailrace.lab.bench_sinks import SINKS, Rest
from tailrace.lab.commit_timeline import steps_of
from tailrace.lab.peers import counts_state_rows
from tailrace.lab.progress import Batch, progress_dict
from tailrace.lab.session import start_session

assert workloads.ALL  # imported so that every name is registered

_BATCH_TIMEOUT_S = 900
_LAST_EVENTS_S = 10  # a query's events come a moment after its end
# Spark's own options, and where this machine has its libraries: a page long each, and no help.
_NOT_OURS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions", "spark.driver.extraClassPath")


class _Batches(StreamingQueryListener):
    """Puts each batch that had rows, and each end of a query, on a queue."""

    def __init__(self) -> None:
        self.seen: queue.Queue[dict[str, Any]] = queue.Queue()
        self.ended = threading.Event()  # set after the query's last batch is on the queue

    @property
    def _jlistener(self) -> Any:
        jvm: Any = SparkContext._jvm
        return jvm.PythonStreamingQueryListenerWrapper(_AsJson(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        raise AssertionError("progress is told as JSON")

    def told(self, json_: str) -> None:
        progress = json.loads(json_)
        if progress["numInputRows"]:
            self.seen.put(progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.exception:
            # What follows is the plan, pages of it, which is no help.
            self.seen.put({"error": event.exception.partition("=== Streaming Query ===")[0].strip()})
        self.ended.set()


class _AsJson(JStreamingQueryListener):
    """Hands progress on as the text that it is: to make objects of it PySpark asks the JVM some hundred times, which
    takes more processor time than a small batch."""

    def onQueryProgress(self, jevent: Any) -> None:
        self.pylistener.told(jevent.progress().json())  # type: ignore[attr-defined]


class _Child:
    def __init__(
        self,
        workload: str,
        engine: str,
        values: dict[str, registry.Value],
        work: str,
        confs: dict[str, str],
        options: dict[str, str],
        checkpoint: str,
    ) -> None:
        self.workload = registry.workload(workload)
        self.engine = registry.engine(engine)
        self.build = registry.query(self.workload, engine)
        self.values = values
        self.options = options if engine == registry.OURS else {}
        self.checkpoint = checkpoint
        self.work = Path(work)
        self.feed = self.work / "feed"
        for name in self.workload.feeds:
            (self.feed / name).mkdir(parents=True)
        self.spark = start_session(
            f"lab {engine}", work=self.work, heap=self.engine.heap, extra={**self.engine.confs, **confs}
        )
        self.batches = _Batches()
        self.spark.streams.addListener(self.batches)
        self.query: Any = None

    def start(self, sink: str, out: str) -> dict[str, Any]:
        """Starts the query, or starts it again on the same checkpoint. ``out``: where a sink that writes writes."""
        self.query = SINKS[sink](self._writer(self.feed), Path(out), self._rest()).start()
        return {}

    def _rest(self) -> Rest | None:
        rest = self.workload.rests.get(self.engine.name)
        return None if rest is None else lambda rows: rest(rows, self.values)

    def _writer(self, feed: Path) -> Any:
        """The query over the folder's feeds: each a folder of Parquet files of which a micro-batch takes one."""
        feeds = {
            name: self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(feed / name))
            for name, schema in self.workload.feeds.items()
        }
        writer = self.build(feeds, self.values).option("checkpointLocation", self.checkpoint)
        return writer.options(**self.options)

    def batch(self, file: str) -> dict[str, Any]:
        """Lets the query see one more file and waits until the batch with it is committed."""
        return self.batches_of([file])[0]

    def several(self, files: list[str]) -> dict[str, Any]:
        """As ``batch``, for files that it takes in the order of their times, one right after the other."""
        told = self.batches_of(files)
        return next((each for each in told if "error" in each), {"batches": told})

    def batches_of(self, files: list[str]) -> list[dict[str, Any]]:
        """The batches with these files, up to one that fails."""
        (name,) = self.workload.feeds  # two feeds would be seen one after the other, in two batches
        shown = time.perf_counter()
        for file in files:
            os.link(file, self.feed / name / Path(file).name)
        told: list[dict[str, Any]] = []
        while len(told) < len(files) and not (told and "error" in told[-1]):
            try:
                progress = self.batches.seen.get(timeout=_BATCH_TIMEOUT_S)
            except queue.Empty:
                progress = {"error": f"no batch within {_BATCH_TIMEOUT_S} s"}
            told.append({"error": progress["error"]} if "error" in progress else self._measured(progress, shown))
        return told

    def _measured(self, progress: dict[str, Any], shown: float) -> dict[str, Any]:
        return {
            "epoch": progress["batchId"],
            "rows": progress["numInputRows"],
            "ms": progress["durationMs"]["triggerExecution"],
            "wall_ms": round((time.perf_counter() - shown) * 1e3, 1),
            "durations_ms": progress["durationMs"],
            "state_commit_ms": _state_commit_ms(progress),
            **self._own(progress),
        }

    def _own(self, progress: dict[str, Any]) -> dict[str, Any]:
        """What Tailrace itself says: where the epoch's time went, what state there is. Spark has said all it knows."""
        own = self._own_report(progress["batchId"])
        batch = Batch.of(progress, own)
        return {
            "own_ms": own.get("durationMs", {}),
            "state_rows": batch.state_rows if counts_state_rows(self.engine) else None,
            "state_bytes": batch.state_bytes,
            "late_rows": batch.late_rows,
            "operators": own.get("stateOperators", []),
            "budget_bytes": own.get("state", {}).get("memoryBudgetBytes", 0),
            "staged_bytes": own.get("ingest", {}).get("stagedBytes", 0),
            "lookahead": own.get("lookahead", []),
        }

    def _own_report(self, epoch: int) -> dict[str, Any]:
        """Tailrace's report of an epoch: it knows more of its state than Spark does."""
        told = self.query.recentProgress if self.engine.name == registry.OURS else []
        return next((progress_dict(one) for one in reversed(told) if one["batchId"] == epoch), {})

    def run(self, events: str, sink: str, out: str, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Runs through all files of the folder and ends; tells of each batch as soon as it is committed."""
        self.batches.ended.clear()
        begun = time.perf_counter()
        writer = self._writer(Path(events)).trigger(availableNow=True)
        self.query = SINKS[sink](writer, Path(out), self._rest()).start()
        inactive_since = None
        while True:
            try:
                progress = self.batches.seen.get(timeout=0.1)
            except queue.Empty:
                if self.batches.ended.is_set():
                    break
                if inactive_since is None and not self.query.isActive:
                    inactive_since = time.monotonic()
                if inactive_since is not None and time.monotonic() - inactive_since > _LAST_EVENTS_S:
                    return {"error": "the query ended, but Spark did not say so to its listener"}
                continue
            if "error" in progress:
                return {"error": progress["error"]}
            tell({"batch": self._told(progress)})
        wall_s = round(time.perf_counter() - begun, 3)
        self.query.awaitTermination()  # for Tailrace: until its servers are gone
        self.query = None
        return {"wall_s": wall_s}

    def _told(self, progress: dict[str, Any]) -> dict[str, Any]:
        batch = Batch.of(progress, self._own_report(progress["batchId"]))
        state_rows = batch.state_rows if counts_state_rows(self.engine) else None
        return {"epoch": batch.epoch, "rows": batch.rows, "ms": batch.ms, "state_rows": state_rows}

    def timeline(self, epochs: int) -> dict[str, Any]:
        """When the steps of the newest epochs ran, where Tailrace tells."""
        told = self.query.recentProgress[-epochs:] if self.engine.name == registry.OURS else []
        return {"steps": steps_of(map(progress_dict, told))}

    def stop(self) -> dict[str, Any]:
        if self.query is not None:
            self.query.stop()
            self.query = None
        return {}


def _state_commit_ms(progress: dict[str, Any]) -> float:
    """How long Spark's state stores took to commit: of a task, on average. Those of a stage run side by side."""
    operators = progress.get("stateOperators") or []
    each = (one.get("commitTimeMs", 0) / max(one.get("numShufflePartitions", 1), 1) for one in operators)
    return float(sum(each))


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
    acts: dict[str, Callable[..., dict[str, Any]]] = {
        "start": child.start,
        "batch": child.batch,
        "several": child.several,
        "timeline": child.timeline,
        "stop": child.stop,
        "run": partial(child.run, tell=say),
    }
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
