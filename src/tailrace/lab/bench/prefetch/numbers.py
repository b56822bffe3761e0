"""The numbers of ``tailrace bench prefetch`` from its batches: how long rows waited for spilled state, and what it
cost.

Operators count since their server began; a batch's own share is the difference to the batch before. Every row of a
batch waits as long as its batch did, so percentiles of waits and of times are weighted by rows. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailrace.lab.bench import measure
from tailrace.lab.bench.prefetch.workloads import BASELINES, HINTS, Case

Batches = Sequence[Mapping[str, Any]]
PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
COUNTS = {
    "wait_ms": "spilledWaitMs",
    "hits": "spilledHits",
    "misses": "spilledMisses",
    "late": "spilledLate",
    "hints": "hintsReceived",
    "fetched": "hintsFetched",
    "wasted": "hintsWasted",
}
"""What is reported of each batch, and what operators call it."""
NO_WAIT_MS = 0.01
"""A shorter wait counts as this one, so that ratios stay finite."""


def totals(report: Mapping[str, Any]) -> dict[str, float]:
    """Of all operators, since their servers began."""
    metrics = [operator.get("customMetrics", {}) for operator in report.get("operators", [])]
    return {name: float(sum(each.get(metric, 0) for each in metrics)) for name, metric in COUNTS.items()}


def cached_row_bytes(first: Mapping[str, Any]) -> float:
    """What a cached row of a lookup table takes, from the first batch: nothing has been evicted by then."""
    now = totals(first)
    metrics = [operator.get("customMetrics", {}) for operator in first.get("operators", [])]
    size = max((each.get("cacheBytes", 0.0) for each in metrics), default=0.0)
    return float(size / max(1.0, now["misses"], now["fetched"]))


def batch_of(report: Mapping[str, Any], before: Mapping[str, float]) -> dict[str, Any]:
    """A batch as its engine reported it, with what its own share of the counts is."""
    now, operators = totals(report), report.get("operators", [])
    metrics = [operator.get("customMetrics", {}) for operator in operators]
    return {
        **report,
        **{name: max(0.0, now[name] - before.get(name, 0.0)) for name in COUNTS},
        "fetch_ms_p99": max((each.get("spilledFetchMsP99", 0.0) for each in metrics), default=0.0),
        "hint_bytes": sum(each.get("hintBytes", 0) for each in report.get("lookahead", [])),
        "disk_bytes": sum(
            operator.get("diskUsedBytes", 0) / max(1.0, operator.get("customMetrics", {}).get("spaceAmplification", 1))
            for operator in operators
        ),
    }


@dataclass(frozen=True)
class Measured:
    """One workload: mode to its batches that count, and the rest of what was found."""

    case: Case
    batches: Mapping[str, list[dict[str, Any]]]
    memory_bytes: int
    cores: int
    cached_row_bytes: Mapping[str, float]
    """Of a lookup table."""
    rows_checked: int | None
    confs: Mapping[str, dict[str, str]]


def weighted(values: Sequence[float], rows: Sequence[float], q: float) -> float:
    """The smallest value that this share of all rows does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(np.asarray(rows, float)[order])
    at = int(np.searchsorted(reached, q / 100 * reached[-1] * (1 - 1e-12)))
    return round(float(np.asarray(values, float)[order][min(at, len(order) - 1)]), 3)


def percentiles(batches: Batches, of: str) -> dict[str, float]:
    values, rows = [each[of] for each in batches], [each["rows"] for each in batches]
    return {name: weighted(values, rows, q) for name, q in PERCENTILES.items()}


def result(measured: Mapping[str, Measured]) -> dict[str, Any]:
    """Ratios first: of the waits at p99.9, over that with hints; of throughput, over that of the best baseline."""
    waits = _each(measured, lambda one, name: percentiles(one.batches[name], "wait_ms"), spilled=True)
    rates = _each(measured, lambda one, name: rows_per_s(one.batches[name]))
    return {
        "bench": "prefetch",
        "wait_p999_ratio_lru": _wait_ratios(waits, "lru"),
        "wait_p999_ratio_clock": _wait_ratios(waits, "clock"),
        "wait_p999_ratio_async_io": _wait_ratios(waits, "async-io"),
        "throughput_ratio": {
            name: measure.ratio(rates[name][HINTS], rates[name][best]) for name, best in best_baselines(rates).items()
        },
        "batch_p50_ratio": {
            name: measure.ratio(*(percentiles(measured[name].batches[mode], "ms")["p50"] for mode in (best, HINTS)))
            for name, best in best_baselines(
                _each(measured, lambda one, mode: 1 / max(percentiles(one.batches[mode], "ms")["p50"], 1e-9))
            ).items()
        },
        "throughput_ratio_error": {
            name: ratio_error(measured[name].batches[HINTS], measured[name].batches[best])
            for name, best in best_baselines(rates).items()
        },
        "throughput_ratio_spark": {
            name: measure.ratio(each[HINTS], each["spark-rocksdb"])
            for name, each in rates.items()
            if HINTS in each and each.get("spark-rocksdb")
        },
        "hint_bytes_share": {
            name: hint_share(one.batches[HINTS]) for name, one in measured.items() if HINTS in one.batches
        },
        "state_over_memory": _each(measured, lambda one, name: state_over_memory(one, name), spilled=True),
        "wait_ms": waits,
        "batch_ms": _each(measured, lambda one, name: percentiles(one.batches[name], "ms")),
        "hit_ratio": _each(measured, lambda one, name: hit_ratio(one.batches[name]), spilled=True),
        "reader": _each(measured, lambda one, name: mean(one.batches[name], "hits", "misses"), spilled=True),
        "reads_waited_for": _each(measured, lambda one, name: mean(one.batches[name], "misses", "late"), spilled=True),
        "reads_waited_for_max": _each(
            measured, lambda one, name: max(each["misses"] + each["late"] for each in one.batches[name]), spilled=True
        ),
        "hints_fetched": _each(measured, lambda one, name: mean(one.batches[name], "fetched"), spilled=True),
        "hints_wasted": _each(measured, lambda one, name: mean(one.batches[name], "wasted"), spilled=True),
        "wasted_share": _each(measured, lambda one, name: wasted_share(one.batches[name]), spilled=True),
        "fetch_ms_p99": _each(
            measured, lambda one, name: max(each["fetch_ms_p99"] for each in one.batches[name]), spilled=True
        ),
        "throughput": rates,
        "cpu_percent": _each(measured, lambda one, name: cpu_percent(one.batches[name], one.cores)),
        "lookaheads": {name: lookaheads(one.batches[HINTS]) for name, one in measured.items() if HINTS in one.batches},
        "prefetch_series_wait_ms": _each(
            measured, lambda one, name: _series(one.batches[name], "wait_ms"), spilled=True
        ),
        "prefetch_series_ms": _each(measured, lambda one, name: _series(one.batches[name], "ms")),
        "rows_checked": {name: one.rows_checked for name, one in measured.items()},
    }


def series(measured: Iterable[Measured]) -> dict[str, list[float]]:
    """Mode to the times of its batches, workload after workload."""
    found: dict[str, list[float]] = {}
    for one in measured:
        for name, batches in one.batches.items():
            found.setdefault(name, []).extend(_series(batches, "ms"))
    return found


def rows_per_s(batches: Batches) -> int:
    return round(_sum(batches, "rows") / max(_sum(batches, "ms"), 1.0) * 1e3)


def best_baselines(rates: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Workload to its quickest baseline, where hints ran beside one."""
    beside = {name: {other: each[other] for other in BASELINES if other in each} for name, each in rates.items()}
    return {name: max(each, key=each.__getitem__) for name, each in beside.items() if each and HINTS in rates[name]}


def ratio_error(one: Batches, other: Batches) -> float:
    """By how much a ratio of throughputs may be off (standard error), by how much the times of batches differ.

    That the baseline is the best of several, which noise alone makes look quicker than it is, comes on top.
    """
    times = (np.array([each["ms"] for each in batches], float) for batches in (one, other))
    return round(float(np.hypot(*(each.std() / max(each.mean(), 1e-9) / len(each) ** 0.5 for each in times))), 3)


def hit_ratio(batches: Batches) -> float | None:
    """Of the spilled records that rows needed, those that were in memory by then."""
    hits, misses = _sum(batches, "hits"), _sum(batches, "misses")
    return round(hits / (hits + misses), 4) if hits + misses else None


def wasted_share(batches: Batches) -> float | None:
    fetched, wasted = _sum(batches, "fetched"), _sum(batches, "wasted")
    return round(wasted / fetched, 4) if fetched else None


def hint_share(batches: Batches) -> float:
    """Bytes of hints to bytes of rows, as they reached the servers."""
    moved = _sum(batches, "staged_bytes")
    return round(_sum(batches, "hint_bytes") / moved, 4) if moved else 0.0


def cpu_percent(batches: Batches, cores: int) -> float | None:
    """Of all cores, while batches ran."""
    if any(each["cpu_ms"] is None for each in batches):
        return None
    return round(100 * _sum(batches, "cpu_ms") / max(_sum(batches, "ms") * cores, 1.0), 1)


def state_over_memory(one: Measured, name: str) -> float:
    """What lies on disk and is needed, to the memory of the servers; of a lookup table, what all of it would take in
    the cache."""
    last = one.batches[name][-1]
    size = last["disk_bytes"]
    if one.case.table_rows:
        size = one.case.table_rows * one.cached_row_bytes[name]
    return round(float(size) / max(1, last["budget_bytes"] or one.memory_bytes), 2)


def lookaheads(batches: Batches) -> dict[str, int]:
    """Where hints came from, and in how many batches."""
    found: dict[str, int] = {}
    for each in batches:
        for operator in each["lookahead"]:
            found[operator["lookahead"]] = found.get(operator["lookahead"], 0) + 1
    return found


def mean(batches: Batches, *of: str) -> float:
    return round(float(np.mean([sum(each[name] for name in of) for each in batches])), 1)


def _sum(batches: Batches, of: str) -> float:
    return float(sum(each[of] for each in batches))


def _wait_ratios(waits: Mapping[str, Mapping[str, Mapping[str, float]]], over: str) -> dict[str, float]:
    return {
        name: measure.ratio(*(max(NO_WAIT_MS, each[mode]["p999"]) for mode in (over, HINTS)))
        for name, each in waits.items()
        if over in each and HINTS in each
    }


def _series(batches: Batches, of: str) -> list[float]:
    return [round(float(each[of]), 3) for each in batches]


def _each(
    measured: Mapping[str, Measured], of: Callable[[Measured, str], Any], *, spilled: bool = False
) -> dict[str, dict[str, Any]]:
    """Workload to mode to a number. ``spilled``: only of modes that report spilled state."""
    return {
        workload: {
            name: of(one, name) for name, batches in one.batches.items() if not spilled or batches[0]["operators"]
        }
        for workload, one in measured.items()
    }


def tables(result: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """What is shown at the end: title to column to engine to number."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, times in result["batch_ms"].items():
        waits = result["wait_ms"][name]
        columns: dict[str, dict[str, Any]] = {
            f"wait {q} ms": {mode: each[key] for mode, each in waits.items()}
            for q, key in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"))
        }
        columns |= {
            "batch p50 ms": {mode: each["p50"] for mode, each in times.items()},
            "batch p99 ms": {mode: each["p99"] for mode, each in times.items()},
            "rows/s": result["throughput"][name],
            "cpu %": _told(result["cpu_percent"][name]),
            "hit ratio": _told(result["hit_ratio"][name]),
            "reads of spilled state": result["reader"][name],
            "waited for": result["reads_waited_for"][name],
            "wasted": _told(result["wasted_share"][name]),
            "state/memory": result["state_over_memory"][name],
        }
        found[f"{name}: {result['read_ms']:g} ms a read, {result['read_depth'][name]} at once"] = columns
    return found


def _told(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if value is not None}
