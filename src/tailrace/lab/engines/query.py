"""One streaming query of an engine's child process: a workload's, for the child's engine, in one way.

The parent feeds it batch by batch (``start``, ``batch``, ``stop``), so that engines can take turns, or lets it run
through files that are all there (``run``). A batch's time is Spark's own ``triggerExecution``, seen by a listener in
the same way for every engine: from the look for new files to the commit. Reading the answers of a query never happens
while a batch runs.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.lab import registry
from tailrace.lab.bench.commit.timeline import steps_of
from tailrace.lab.bench.sinks import SINKS, Rest
from tailrace.lab.engines.listener import EngineListener, Heard
from tailrace.lab.engines.peers import counts_state_rows
from tailrace.lab.engines.progress import Batch, progress_dict

_BATCH_TIMEOUT_S = 900
_LAST_EVENTS_S = 10  # a query's last events arrive a moment after its end


class EngineQuery:
    def __init__(
        self,
        spark: SparkSession,
        listener: EngineListener,
        workload: str,
        engine: str,
        values: Mapping[str, registry.Value],
        options: Mapping[str, str],
        folder: Path,
        checkpoint: str,
    ) -> None:
        """``options``: of Tailrace's ``writeStream``; other engines are not given them."""
        self._spark, self._listener = spark, listener
        self._workload, self._engine = registry.workload(workload), registry.engine(engine)
        self._build = registry.query(self._workload, engine)
        self._values = values
        self._options = dict(options) if self._engine.is_tailrace else {}
        self._checkpoint = checkpoint
        self._feed = folder / "feed"
        for name in self._workload.feeds:
            (self._feed / name).mkdir(parents=True)
        self._query: Any = None
        self._heard = Heard()
        self._shown: list[float] = []  # when each file was shown of which no batch has been reported yet

    def start(self, sink: str, out: str) -> dict[str, Any]:
        """Starts the query, or starts it again on the same checkpoint. ``out``: where a sink that writes writes.

        The answer says why a query that should run on Tailrace runs on Spark, where it does.
        """
        self._begin(SINKS[sink](self._writer(self._feed), Path(out), self._rest()))
        return {"why_spark": self._why_spark}

    def batch(self, file: str) -> dict[str, Any]:
        """Lets the query see one more file and waits until the batch with it is committed."""
        self.show(file)
        return self.finished()

    def several(self, files: list[str]) -> dict[str, Any]:
        """As ``batch``, for files that it takes in the order of their times, one right after the other."""
        for file in files:
            self.show(file)
        reports: list[dict[str, Any]] = []
        while self._shown and not (reports and "error" in reports[-1]):
            reports.append(self.finished())
        return next((each for each in reports if "error" in each), {"batches": reports})

    def show(self, file: str) -> dict[str, Any]:
        """Lets the query see one more file, and waits for nothing: ``finished`` does."""
        (name,) = self._workload.feeds  # two feeds would be seen one after the other, in two batches
        self._shown.append(time.perf_counter())
        os.link(file, self._feed / name / Path(file).name)
        return {}

    def finished(self) -> dict[str, Any]:
        """The batch with the first file that was shown and not reported yet, once it is committed."""
        shown = self._shown.pop(0)
        try:
            progress = self._heard.batches.get(timeout=_BATCH_TIMEOUT_S)
        except queue.Empty:
            progress = {"error": f"no batch within {_BATCH_TIMEOUT_S} s"}
        return {"error": progress["error"]} if "error" in progress else self._measured(progress, shown)

    def run(self, events: str, sink: str, out: str, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Runs through all files of the folder and ends; reports each batch as soon as it is committed."""
        begun = time.perf_counter()
        writer = self._writer(Path(events)).trigger(availableNow=True)
        self._begin(SINKS[sink](writer, Path(out), self._rest()))
        inactive_since = None
        while True:
            try:
                progress = self._heard.batches.get(timeout=0.1)
            except queue.Empty:
                if self._heard.ended.is_set():
                    break
                if inactive_since is None and not self._query.isActive:
                    inactive_since = time.monotonic()
                if inactive_since is not None and time.monotonic() - inactive_since > _LAST_EVENTS_S:
                    return {"error": "the query ended, but Spark did not report it to its listener"}
                continue
            if "error" in progress:
                return {"error": progress["error"]}
            report({"batch": self._short(progress)})
        wall_s = round(time.perf_counter() - begun, 3)
        self._query.awaitTermination()  # for Tailrace: until its servers are gone
        self._query = None
        return {"wall_s": wall_s}

    def first_row(self, file: str) -> dict[str, Any]:
        """Starts the query with one more file to read, waits until the batch with it is committed, and stops it.

        ``first_row_ms`` is the time from the call of ``start()`` until the user's function has the first rows.
        """
        self.show(file)
        seen: list[float] = []

        def save(rows: DataFrame, epoch: int) -> None:
            if rows.collect():
                seen.append(time.perf_counter())

        writer = self._writer(self._feed).foreachBatch(save)
        begun = time.perf_counter()
        self._begin(writer)
        returned = time.perf_counter()
        batch = self.finished()
        self.stop()
        if "error" in batch:
            return batch
        if not seen:
            return {"error": "the query's first batch had no rows"}
        return {
            "first_row_ms": round((seen[0] - begun) * 1e3, 1),
            "start_call_ms": round((returned - begun) * 1e3, 1),
            "batch_ms": batch["ms"],
        }

    def timeline(self, epochs: int) -> dict[str, Any]:
        """When the steps of the newest epochs ran, where Tailrace reports them."""
        reports = self._query.recentProgress[-epochs:] if self._reports else []
        return {"steps": steps_of(map(progress_dict, reports))}

    def stop(self) -> dict[str, Any]:
        if self._query is not None:
            self._query.stop()
            self._query = None
        return {}

    def _begin(self, writer: Any) -> None:
        self._query = writer.start()
        self._heard = self._listener.of(str(self._query.id))

    @property
    def _why_spark(self) -> str | None:
        return getattr(self._query, "reason", None)

    @property
    def _reports(self) -> bool:
        """Whether the query's progress is Tailrace's own."""
        return self._engine.is_tailrace and self._why_spark is None

    def _rest(self) -> Rest | None:
        rest = registry.own(self._workload.rests, self._engine.name)
        return None if rest is None else lambda rows: rest(rows, self._values)

    def _writer(self, feed: Path) -> Any:
        """The query over the folder's feeds: each a folder of Parquet files of which a micro-batch takes one."""
        feeds = {
            name: self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(feed / name))
            for name, schema in self._workload.feeds.items()
        }
        writer = self._build(feeds, self._values).option("checkpointLocation", self._checkpoint)
        return writer.options(**self._options)

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
            "state_rows": batch.state_rows if counts_state_rows(self._engine) else None,
            "state_bytes": batch.state_bytes,
            "late_rows": batch.late_rows,
            "operators": own.get("stateOperators", []),
            "budget_bytes": own.get("state", {}).get("memoryBudgetBytes", 0),
            "staged_bytes": own.get("ingest", {}).get("stagedBytes", 0),
            "lookahead": own.get("lookahead", []),
        }

    def _own_report(self, epoch: int) -> dict[str, Any]:
        """Tailrace's report of an epoch: it knows more of its state than Spark does."""
        reports = self._query.recentProgress if self._reports else []
        return next((progress_dict(one) for one in reversed(reports) if one["batchId"] == epoch), {})

    def _short(self, progress: dict[str, Any]) -> dict[str, Any]:
        batch = Batch.of(progress, self._own_report(progress["batchId"]))
        state_rows = batch.state_rows if counts_state_rows(self._engine) else None
        return {"epoch": batch.epoch, "rows": batch.rows, "ms": batch.ms, "state_rows": state_rows}


def _state_commit_ms(progress: dict[str, Any]) -> float:
    """How long Spark's state stores took to commit: of a task, on average. Those of a stage run side by side."""
    operators = progress.get("stateOperators") or []
    each = (one.get("commitTimeMs", 0) / max(one.get("numShufflePartitions", 1), 1) for one in operators)
    return float(sum(each))
