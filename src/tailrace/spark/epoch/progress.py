"""What an epoch did and what it cost, as an object and as JSON, named as in Spark's ``StreamingQueryProgress``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame

from tailrace.env.clock import timestamp_text
from tailrace.ids import MIN_MICROS
from tailrace.operators.metrics import with_ratios
from tailrace.operators.registry import progress_name
from tailrace.plan.physical import Stage
from tailrace.server.transport.server_status import OperatorStatus
from tailrace.spark.epoch.shard_moves import NOT_MOVED, ShardMove
from tailrace.spark.epoch.timeline import Step
from tailrace.spark.hints.lookahead import Lookahead, LookaheadProgress


@dataclass(frozen=True)
class QueryIdentity:
    """``id`` and ``run_id`` are Spark's, empty until its query has started; ``run`` is ours and names our files."""

    run: str
    name: str | None
    id: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class Durations:
    """Milliseconds. ``plan`` to ``sink`` follow each other; ``combine`` and ``transfer`` are inside ``ingest``, each
    the largest of any task. ``commit`` holds the calls to the servers and the wait at the gate. ``async_commit``: the
    newest commit that is durable, from begin to end, whoever waited for it. ``retries``: of tries that failed.
    ``add_batch``: all of the epoch, as Spark calls the run of its batch function."""

    plan: float = 0.0
    ingest: float = 0.0
    combine: float = 0.0
    transfer: float = 0.0
    apply: float = 0.0
    advance: float = 0.0
    commit: float = 0.0
    sink: float = 0.0
    async_commit: float = 0.0
    retries: float = 0.0
    add_batch: float = 0.0

    def to_json(self) -> dict[str, float]:
        return {_camel_case(name): round(value, 3) for name, value in vars(self).items()}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


_SUMS = ("rows", "updated", "state_bytes", "state_disk_bytes", "input_rows", "output_rows", "spilled_bytes")
"""What an operator's servers report each for itself, under the names of its progress."""


@dataclass(frozen=True)
class OperatorProgress:
    """One operator of the chain in one epoch, on all servers together."""

    name: str
    kind: str
    store: str
    shards: int
    servers: int
    rows: int  # state records
    updated: int  # of these, touched
    state_bytes: int  # in memory
    state_disk_bytes: int  # and beyond it
    input_rows: int  # as they reached the servers: partials, where tasks have combined rows
    output_rows: int
    late_rows: int
    null_time_rows: int
    spilled_bytes: int
    apply_ms: float  # of the slowest server
    advance_ms: float
    metrics: Mapping[str, float]  # of its stores, since the servers started

    @classmethod
    def of(
        cls, stage: Stage, statuses: Sequence[OperatorStatus], late_rows: int, null_time_rows: int
    ) -> OperatorProgress:
        return cls(
            name=stage.operator.name,
            kind=progress_name(stage.operator),
            store=stage.store.pattern.value if stage.store.pattern is not None else "none",
            shards=stage.operator.shards,
            servers=len(statuses),
            late_rows=late_rows,
            null_time_rows=null_time_rows,
            **{name: sum(getattr(each, name) for each in statuses) for name in _SUMS},
            apply_ms=max(each.apply_ms for each in statuses),
            advance_ms=max(each.advance_ms for each in statuses),
            metrics=with_ratios(each.metrics for each in statuses),
        )

    def to_json(self) -> dict[str, Any]:
        """Keys are named as in Spark's ``StateOperatorProgress``, where that has one."""
        return {
            "operatorName": self.name,
            "operatorKind": self.kind,
            "store": self.store,
            "numRowsTotal": self.rows,
            "numRowsUpdated": self.updated,
            "numInputRows": self.input_rows,
            "numOutputRows": self.output_rows,
            "numRowsDroppedByWatermark": self.late_rows,
            "numRowsDroppedWithoutEventTime": self.null_time_rows,
            "allUpdatesTimeMs": round(self.apply_ms, 3),
            "allRemovalsTimeMs": round(self.advance_ms, 3),
            "memoryUsedBytes": self.state_bytes,
            "diskUsedBytes": self.state_disk_bytes,
            "spilledBytes": self.spilled_bytes,
            "numShufflePartitions": self.shards,
            "numStateStoreInstances": self.servers,
            "customMetrics": dict(self.metrics),
        }


class Entry(dict[str, Any]):
    """A part of a progress, which reads as PySpark's: ``entry["numRowsTotal"]`` and ``entry.numRowsTotal``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name}, only {', '.join(self)}") from None


@dataclass(frozen=True)
class EpochProgress(Mapping[str, Any]):
    """One epoch. Reads as PySpark's: ``progress["stateOperators"]`` and ``progress.stateOperators[0].numRowsTotal``."""

    query: QueryIdentity
    operators: tuple[OperatorProgress, ...]  # of the chain, the first one first
    epoch: int
    tries: int
    started: float
    input_rows: int  # -1 where Spark alone counts them
    partials: int
    output_rows: int
    watermark: int
    time_max: int
    memory_bytes_max: int
    staged_bytes: int
    servers: int
    combined: bool
    replayed: bool
    move: ShardMove = NOT_MOVED  # of shards between servers, with which the epoch began
    since_last_s: float = 0.0  # from the begin of the epoch before to that of this one; 0: this is the run's first
    duration_ms: Durations = field(default_factory=Durations)
    timeline: tuple[Step, ...] = ()  # of this epoch, and of the newest commit that is durable
    lookaheads: tuple[LookaheadProgress, ...] = ()  # by operator
    spark: dict[str, Any] = field(default_factory=dict, compare=False)
    """What Spark says of the same epoch, as JSON: empty until it says so, which is after the epoch."""

    @property
    def late_rows(self) -> int:
        return sum(each.late_rows for each in self.operators)

    @property
    def null_time_rows(self) -> int:
        return sum(each.null_time_rows for each in self.operators)

    @property
    def state_rows(self) -> int:
        return sum(each.rows for each in self.operators)

    @property
    def state_rows_updated(self) -> int:
        return sum(each.updated for each in self.operators)

    @property
    def state_bytes(self) -> int:
        """In memory."""
        return sum(each.state_bytes for each in self.operators)

    @property
    def state_disk_bytes(self) -> int:
        return sum(each.state_disk_bytes for each in self.operators)

    @property
    def spilled_bytes(self) -> int:
        return sum(each.spilled_bytes for each in self.operators)

    @property
    def rows_read(self) -> int:
        return self.input_rows if self.input_rows >= 0 else int(self.spark.get("numInputRows", 0))

    def event_time(self) -> dict[str, str]:
        """As Spark writes it: times in milliseconds, and only those that are known."""
        times = {"max": self.time_max, "watermark": self.watermark}
        return {name: _time_text(time) for name, time in times.items() if time > MIN_MICROS}

    def asDict(self) -> dict[str, Any]:
        seconds = max(self.duration_ms.add_batch, 1e-3) / 1e3
        return {
            "id": self.query.id,
            "runId": self.query.run_id,
            "run": self.query.run,
            "name": self.query.name,
            "timestamp": _time_text(int(self.started * 1e6)),
            "batchId": self.epoch,
            "tries": self.tries,
            "replayed": self.replayed,
            "numInputRows": self.rows_read,
            "inputRowsPerSecond": round(self.rows_read / self.since_last_s, 1) if self.since_last_s > 0 else 0.0,
            "processedRowsPerSecond": round(self.rows_read / seconds, 1),
            "durationMs": {**self.spark.get("durationMs", {}), **self.duration_ms.to_json()},
            "timeline": [[each.epoch, each.name, round(each.began, 4), round(each.ended, 4)] for each in self.timeline],
            "eventTime": self.event_time() or self.spark.get("eventTime", {}),
            "stateOperators": [Entry(each.to_json()) for each in self.operators],
            "sources": [Entry(each) for each in self.spark.get("sources", ())],
            "observedMetrics": self.spark.get("observedMetrics", {}),
            "state": {
                "numRowsTotal": self.state_rows,
                "numRowsUpdated": self.state_rows_updated,
                "numRowsDroppedByWatermark": self.late_rows,
                "numRowsDroppedWithoutEventTime": self.null_time_rows,
                "memoryUsedBytes": self.state_bytes,
                "diskUsedBytes": self.state_disk_bytes,
                "memoryBudgetBytes": self.memory_bytes_max,
                "numServers": self.servers,
            },
            "placement": self.move.to_json(),
            "ingest": {
                "numPartials": self.partials,
                "combined": self.combined,
                "stagedBytes": self.staged_bytes,
                "spilledBytes": self.spilled_bytes,
            },
            "lookahead": [each.to_json() for each in self.lookaheads],
            "sink": Entry({**self.spark.get("sink", {}), "numOutputRows": self.output_rows}),
        }

    @property
    def json(self) -> str:
        return json.dumps(self.asDict(), separators=(",", ":"))

    @property
    def prettyJson(self) -> str:
        return json.dumps(self.asDict(), indent=2)

    def __getitem__(self, key: str) -> Any:
        return self.asDict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.asDict())

    def __len__(self) -> int:
        return len(self.asDict())

    def __getattr__(self, name: str) -> Any:
        """Spark's names as attributes: what this class calls otherwise."""
        if not name.startswith("_") and name in (keys := self.asDict()):
            return keys[name]
        raise AttributeError(f"a progress has no {name}")


class Epochs(Protocol):
    """What runs the epochs of one run of a query."""

    identity: QueryIdentity
    progress: list[EpochProgress]

    def run(self, batch: DataFrame, epoch: int) -> EpochProgress:
        """Spark's batch function."""
        ...

    def lookaheads(self) -> Mapping[str, Lookahead]:
        """By operator, what is known and decided now."""
        ...

    def stop(self) -> None:
        """The query is being stopped: let no epoch wait."""


def _time_text(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    try:
        return f"{timestamp_text(seconds)[:-1]}.{rest // 1000:03}Z"
    except (ValueError, OverflowError, OSError):  # outside the years that a calendar knows
        return f"{micros} us"
