"""The numbers of ``tailrace bench commit`` from its batches: percentiles, throughput as MiSA has it, commits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailrace.lab.bench import measure
from tailrace.lab.bench.commit.targets import ASYNC, FREE, PEER
from tailrace.lab.workloads.traffic.records import RECORD_BYTES

Batches = Sequence[Mapping[str, Any]]
_LOGS = ("walCommit", "commitOffsets")
"""Spark's own logs of a query, as parts of a batch's time."""


@dataclass(frozen=True)
class Measured:
    """One query: target to what was found."""

    batches: Mapping[str, Batches]
    wall_s: float
    cpu_s: Mapping[str, float | None]
    memory_bytes: Mapping[str, int | None]
    timelines: Mapping[str, list[Any]]
    rows_checked: int | None
    confs: Mapping[str, dict[str, str]]


def result(measured: Mapping[str, Measured]) -> dict[str, Any]:
    p99 = _p99(measured, lambda batch: float(batch["ms"]))
    throughput = {query: _each(one, throughput_kb_s) for query, one in measured.items()}
    found: dict[str, Any] = {
        "bench": "commit",
        "p99_ratio": _ratios(p99, PEER, ASYNC),
        "throughput_ratio": _ratios(throughput, ASYNC, PEER),
        "p99_ratio_without_logs": _ratios(_p99(measured, without_logs), PEER, ASYNC),
        "p99_ratio_with_source": _ratios(_p99(measured, lambda batch: float(batch["trigger_ms"])), PEER, ASYNC),
        "p99_over_free_store": _ratios(p99, ASYNC, FREE),
        "sync_p99_over_free_store": _ratios(p99, "sync", FREE),
        "query_p50_ms": {
            query: _each(one, lambda batches: _percentile(batches, 50)) for query, one in measured.items()
        },
        "query_p95_ms": {
            query: _each(one, lambda batches: _percentile(batches, 95)) for query, one in measured.items()
        },
        "query_p99_ms": p99,
        "throughput_kb_s": throughput,
        "commit_on_path_ms": {query: _each(one, _median(on_path_ms)) for query, one in measured.items()},
        "commit_behind_ms": {query: _each(one, _median(behind_ms)) for query, one in measured.items()},
        "store_requests": {query: _each(one, _mean("store_requests")) for query, one in measured.items()},
        "store_kb": {query: _each(one, _mean("store_bytes_up", 1e-3)) for query, one in measured.items()},
        "cpu_percent": {query: _shares(one) for query, one in measured.items()},
        "memory_percent": {query: _memory(one) for query, one in measured.items()},
        "interval_s": {query: _each(one, _interval_s) for query, one in measured.items()},
        "rows_checked": {query: one.rows_checked for query, one in measured.items()},
        "query_series_ms": {query: _each(one, _series) for query, one in measured.items()},
        "query_parts_ms": {query: _each(one, _parts) for query, one in measured.items()},
        "timelines": {query: dict(one.timelines) for query, one in measured.items()},
    }
    names = list(dict.fromkeys(name for one in measured.values() for name in one.batches))
    together = {name: [each for one in measured.values() for each in one.batches.get(name, [])] for name in names}
    of_p99 = {f"{query} p99": ratio for query, ratio in found["p99_ratio"].items()}
    of_rate = {f"{query} throughput": ratio for query, ratio in found["throughput_ratio"].items()}
    return {
        **found,
        "ratios": {**of_p99, **of_rate},
        "median_ms": {name: _percentile(batches, 50) for name, batches in together.items()},
        "p99_ms": {name: _percentile(batches, 99) for name, batches in together.items()},
        "series_ms": {name: _series(batches) for name, batches in together.items()},
        "series_trigger_ms": {name: [each["trigger_ms"] for each in batches] for name, batches in together.items()},
    }


def throughput_kb_s(batches: Batches) -> float:
    """The mean over batches of bytes over time: of a fast batch, not of the stream. A byte a millisecond is a kB/s."""
    return round(float(np.mean([each["rows"] * RECORD_BYTES / each["ms"] for each in batches])), 2)


def without_logs(batch: Mapping[str, Any]) -> float:
    """A batch's time without what Spark's own logs took: as if they were free."""
    return max(1.0, float(batch["ms"] - sum(batch["durations_ms"].get(name, 0) for name in _LOGS)))


def on_path_ms(batch: Mapping[str, Any]) -> float:
    """What of a batch's time its commit took: Spark's logs, and its state stores or Tailrace's servers and gate."""
    logs = sum(batch["durations_ms"].get(name, 0) for name in _LOGS)
    return float(logs + (batch["own_ms"].get("commit", 0) if batch["own_ms"] else batch["state_commit_ms"]))


def behind_ms(batch: Mapping[str, Any]) -> float | None:
    """How long Tailrace's newest commit took beyond what a batch waited for it; Spark does not report it."""
    if not batch["own_ms"]:
        return None
    return max(0.0, float(batch["own_ms"].get("asyncCommit", 0) - batch["own_ms"].get("commit", 0)))


def _p99(measured: Mapping[str, Measured], of: Callable[[Mapping[str, Any]], float]) -> dict[str, dict[str, float]]:
    return {query: _each(one, lambda batches: _percentile(batches, 99, of)) for query, one in measured.items()}


def _each(one: Measured, of: Callable[[Batches], Any]) -> dict[str, Any]:
    return {name: of(batches) for name, batches in one.batches.items()}


def _series(batches: Batches) -> list[float]:
    return [each["ms"] for each in batches]


def _percentile(batches: Batches, q: float, of: Callable[[Mapping[str, Any]], float] | None = None) -> float:
    return measure.percentile([of(each) if of else each["ms"] for each in batches], q)


def _median(of: Callable[[Mapping[str, Any]], float | None]) -> Callable[[Batches], float | None]:
    def median(batches: Batches) -> float | None:
        values = [value for each in batches if (value := of(each)) is not None]
        return measure.median(values) if values else None

    return median


def _mean(name: str, scale: float = 1.0) -> Callable[[Batches], float | None]:
    def mean(batches: Batches) -> float | None:
        values = [each[name] for each in batches if name in each]
        return round(float(np.mean(values)) * scale, 1) if values else None

    return mean


def _interval_s(batches: Batches) -> float | None:
    """Between the begins of two batches of a target."""
    began = np.unique([each["began_s"] for each in batches])
    return round(float(np.median(np.diff(began))), 2) if len(began) > 1 else None


def _parts(batches: Batches) -> dict[str, float]:
    names = {name for each in batches for name in each["durations_ms"]}
    return {name: measure.median([each["durations_ms"].get(name, 0) for each in batches]) for name in sorted(names)}


def _ratios(of: Mapping[str, Mapping[str, float]], over: str, under: str) -> dict[str, float]:
    return {
        query: measure.ratio(each[over], each[under]) for query, each in of.items() if over in each and each.get(under)
    }


def _shares(one: Measured) -> dict[str, float | None]:
    """Of all cores, over the time of measuring: what targets use while others have their turn is theirs too."""
    whole = one.wall_s * measure.cores()
    return {name: None if cpu is None else round(100 * cpu / whole, 2) for name, cpu in one.cpu_s.items()}


def _memory(one: Measured) -> dict[str, float | None]:
    whole = float(str(measure.machine()["memory_gib"])) * 2**30
    return {name: None if size is None else round(100 * size / whole, 2) for name, size in one.memory_bytes.items()}
