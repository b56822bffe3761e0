"""What an epoch did and what it cost, as an object and as JSON in the manner of Spark's ``StreamingQueryProgress``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tailrace.env.clock import timestamp_text
from tailrace.ids import MIN_MICROS


@dataclass(frozen=True)
class QueryIdentity:
    """``id`` and ``run_id`` are Spark's, empty until it has told them; ``run`` is ours and names our files."""

    run: str
    name: str | None
    id: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class Durations:
    """Milliseconds. ``plan`` to ``sink`` follow each other; ``combine`` and ``transfer`` are inside ``ingest``, each
    the largest of any task. ``commit`` holds the calls to the servers too. ``retries``: what failed tries took."""

    plan: float = 0.0
    ingest: float = 0.0
    combine: float = 0.0
    transfer: float = 0.0
    apply: float = 0.0
    advance: float = 0.0
    commit: float = 0.0
    sink: float = 0.0
    retries: float = 0.0
    total: float = 0.0

    def to_json(self) -> dict[str, float]:
        return {name: round(value, 3) for name, value in vars(self).items()}


@dataclass(frozen=True)
class EpochProgress:
    """One epoch. Reads like a mapping too: ``progress["numInputRows"]``."""

    query: QueryIdentity
    operators: tuple[tuple[str, str], ...]  # of the chain, each with its store; what is counted is of all together
    epoch: int
    tries: int
    started: float
    input_rows: int
    late_rows: int
    null_time_rows: int
    partials: int
    output_rows: int
    watermark: int
    time_max: int
    state_rows: int
    state_rows_updated: int
    state_bytes: int
    state_disk_bytes: int
    memory_bytes_max: int
    staged_bytes: int
    spilled_bytes: int
    servers: int
    combined: bool
    replayed: bool
    duration_ms: Durations = field(default_factory=Durations)

    def asDict(self) -> dict[str, Any]:
        seconds = max(self.duration_ms.total, 1e-3) / 1e3
        event_time = {}
        if self.time_max > MIN_MICROS:
            event_time["max"] = _time_text(self.time_max)
        if self.watermark > MIN_MICROS:
            event_time["watermark"] = _time_text(self.watermark)
        return {
            "id": self.query.id,
            "runId": self.query.run_id,
            "run": self.query.run,
            "name": self.query.name,
            "timestamp": timestamp_text(self.started),
            "batchId": self.epoch,
            "tries": self.tries,
            "replayed": self.replayed,
            "numInputRows": self.input_rows,
            "processedRowsPerSecond": round(self.input_rows / seconds, 1),
            "durationMs": self.duration_ms.to_json(),
            "eventTime": event_time,
            "stateOperators": [
                {
                    "operatorName": ", ".join(name for name, _ in self.operators),
                    "store": ", ".join(store for _, store in self.operators),
                    "numRowsTotal": self.state_rows,
                    "numRowsUpdated": self.state_rows_updated,
                    "numRowsDroppedByWatermark": self.late_rows,
                    "numRowsDroppedWithoutEventTime": self.null_time_rows,
                    "numPartials": self.partials,
                    "combined": self.combined,
                    "memoryUsedBytes": self.state_bytes,
                    "diskUsedBytes": self.state_disk_bytes,
                    "memoryBudgetBytes": self.memory_bytes_max,
                    "stagedBytes": self.staged_bytes,
                    "spilledBytes": self.spilled_bytes,
                    "numServers": self.servers,
                }
            ],
            "sink": {"numOutputRows": self.output_rows},
        }

    @property
    def json(self) -> str:
        return json.dumps(self.asDict(), separators=(",", ":"))

    @property
    def prettyJson(self) -> str:
        return json.dumps(self.asDict(), indent=2)

    def __getitem__(self, key: str) -> Any:
        return self.asDict()[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.asDict().get(key, default)


def _time_text(micros: int) -> str:
    try:
        return timestamp_text(micros / 1e6)
    except (ValueError, OverflowError, OSError):  # outside the years that a calendar knows
        return f"{micros} us"
