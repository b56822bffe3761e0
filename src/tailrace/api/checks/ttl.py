"""Checks a time-to-live of state, and by which clock time goes. Names are those of Spark's ``transformWithState``."""

from __future__ import annotations

from tailrace.api.duration import Duration, parse_duration
from tailrace.api.relations import Join, Relation, StateTtl, Watermark
from tailrace.errors import AnalysisError

_MODES = {"eventtime": False, "processingtime": True}


def is_processing(mode: object, where: str) -> bool:
    """Whether a time mode is processing time, and not event time."""
    found = _MODES.get(mode.strip().lower().replace("_", "")) if isinstance(mode, str) else None
    if found is None:
        raise AnalysisError(f"{where}: timeMode must be 'eventTime' or 'processingTime', but is {mode!r}")
    return found


def state_ttl(ttl: Duration, mode: object, watermark: Watermark | None, before: StateTtl | None) -> StateTtl:
    where = "withStateTtl"
    if before is not None:
        raise AnalysisError(
            f"{where}: the stream already has a time-to-live, and takes one: remove one of the two calls"
        )
    processing = is_processing(mode, where)
    if not processing and watermark is None:
        raise AnalysisError(
            f"{where}: in event time state is forgotten by the watermark, and this stream has none: call "
            f".withWatermark('ts', '10 seconds') first, or use timeMode='processingTime'"
        )
    return StateTtl(parse_duration(ttl, f"{where}: ttl"), processing)


def dedup_ttl(ttl: StateTtl | None, within: bool) -> StateTtl | None:
    """How long keys are remembered whose duplicates are dropped."""
    if ttl is None:
        return None
    if within:
        raise AnalysisError(
            "withStateTtl: dropDuplicatesWithinWatermark remembers a key for the watermark's delay: use dropDuplicates"
        )
    return ttl


def check_ttl_used(ttl: StateTtl | None, relation: Relation) -> None:
    """Refuse a time-to-live that what follows does not go by."""
    if ttl is None or getattr(relation, "state_ttl", None) is not None:
        return
    if isinstance(relation, Join):
        raise AnalysisError(
            "withStateTtl: a join has a time-to-live of its own: remove it, and use join(..., ttl='1 hour')"
        )
    if relation.window is not None:
        raise AnalysisError(
            "withStateTtl: windows of time end by themselves, and their state goes with them: remove it, or remove the "
            "window from groupBy for aggregates that roll on"
        )
    raise AnalysisError(
        "withStateTtl is for operators that keep keys for ever, which are aggregates and topN(...) without a window, "
        "windows by count, process(...) and dropDuplicates(...): remove it"
    )
