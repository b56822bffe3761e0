"""Progress reports of a streaming query as plain data, of Spark or of Tailrace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast


def progress_dict(progress: Any) -> dict[str, Any]:
    """A query's ``lastProgress`` as plain data, from PySpark's query or from Tailrace's."""
    if progress is None:
        return {}
    if isinstance(progress, dict):
        return progress
    return cast("dict[str, Any]", json.loads(progress.json))


@dataclass(frozen=True)
class Batch:
    """One micro-batch as the demo shows it."""

    epoch: int
    rows: int
    ms: float
    state_rows: int
    late_rows: int
    watermark: str
    state_bytes: int = 0
    """In memory."""

    @classmethod
    def of(cls, spark: dict[str, Any], own: dict[str, Any]) -> Batch:
        """``spark``: Spark's report, which has the time. ``own``: Tailrace's of the same query, or nothing."""
        operators = own.get("stateOperators") or spark.get("stateOperators") or []
        event_time = own.get("eventTime") or spark.get("eventTime") or {}
        return cls(
            epoch=spark["batchId"],
            rows=spark["numInputRows"],
            ms=spark["durationMs"].get("triggerExecution", 0),
            state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
            state_bytes=sum(operator.get("memoryUsedBytes", 0) for operator in operators),
            late_rows=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
            watermark=event_time.get("watermark", ""),
        )
