"""What Spark reports of the queries of a session: each batch that had rows, and the end, by query."""

from __future__ import annotations

import json
import queue
import threading
from collections import defaultdict
from typing import Any

from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tailrace.lab.spark_private import running_jvm


class Heard:
    """Of one query, over all its starts. ``batches``: Spark's progress of each, or a dict with an ``error``."""

    def __init__(self) -> None:
        self.batches: queue.Queue[dict[str, Any]] = queue.Queue()
        self.ended = threading.Event()  # set after the query's last batch is on the queue


class EngineListener(StreamingQueryListener):
    """Spark calls it on a thread of its own, which may be before the query's ``start`` has returned."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, Heard] = defaultdict(Heard)
        self._lock = threading.Lock()

    def of(self, query: str) -> Heard:
        """By Spark's id of the query, which outlives restarts."""
        with self._lock:
            return self._heard[query]

    @property
    def _jlistener(self) -> Any:
        return running_jvm().PythonStreamingQueryListenerWrapper(_AsJson(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self.of(str(event.id)).ended.clear()  # comes before ``start`` returns

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        raise AssertionError("progress comes as JSON")

    def on_progress_json(self, json_: str) -> None:
        progress = json.loads(json_)
        if progress["numInputRows"]:
            self.of(progress["id"]).batches.put(progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        heard = self.of(str(event.id))
        if event.exception:
            # What follows is the plan, pages of it, which is no help.
            heard.batches.put({"error": event.exception.partition("=== Streaming Query ===")[0].strip()})
        heard.ended.set()


class _AsJson(JStreamingQueryListener):
    """Hands progress on as the text that it is: to make objects of it PySpark asks the JVM some hundred times, which
    takes more processor time than a small batch."""

    def onQueryProgress(self, jevent: Any) -> None:
        self.pylistener.on_progress_json(jevent.progress().json())  # type: ignore[attr-defined]
