"""Run records as the lab leaves them, made up: the numbers in them are known to the test."""

from __future__ import annotations

import json

import numpy as np

from tailrace.lab.gadget.advisor import advise
from tailrace.lab.gadget.analysis.summary import analyze
from tailrace.lab.gadget.traces.trace import Trace
from tailrace.lab.records.record import Record

MACHINE = {"cores": 2, "memory_gib": 16.0, "system": "Linux", "load_1m": 0.5}
VERSIONS = {"python": "3.11", "tailrace": "0.1.0", "pyspark": "4.0"}


def _times(at: float) -> tuple[str, str]:
    # 1970 is as good a year as any other.
    return (f"1970-01-01T{int(at) // 3600:02d}:{int(at) // 60 % 60:02d}:00.000000Z", "1970-01-01T23:59:00.000000Z")


def bench_record(at: float, speedup: float = 3.0) -> Record:
    """A bench of three engines over nine epochs, at ``at`` seconds past 1970."""
    rng = np.random.default_rng(int(at))
    base = {"spark-rocksdb": 100.0 * speedup, "tailrace": 100.0, "shuffle-floor": 60.0}
    series = {name: [round(float(ms), 2) for ms in rng.uniform(0.9, 1.1, 9) * middle] for name, middle in base.items()}
    medians = {name: float(np.median(ms)) for name, ms in series.items()}
    started, ended = _times(at)
    return Record(
        kind="bench",
        name="rmw",
        id=f"{int(at):08x}",
        started=started,
        ended=ended,
        machine=MACHINE,
        versions=VERSIONS,
        parameters={"rows": 1_000, "keys": 5_000, "seed": 1},
        summary={
            "ratios": {
                "speedup_rocksdb": round(medians["spark-rocksdb"] / medians["tailrace"], 3),
                "over_shuffle_floor": round(medians["tailrace"] / medians["shuffle-floor"], 3),
            },
            "median_ms": medians,
            "spread": dict.fromkeys(series, 0.1),
            "durations_ms": {
                name: {"addBatch": ms - 5, "walCommit": 5, "triggerExecution": ms} for name, ms in medians.items()
            },
            "tailrace_durations_ms": {"ingest": 60.0, "combine": 20.0, "apply": 15.5, "total": 90.0},
            "answers_equal": True,
        },
        series={name: {"ms": list(values)} for name, values in series.items()},
        confs={name: {"spark.sql.shuffle.partitions": "2"} for name in series},
    )


def gadget_record(at: float, traces: dict[str, Trace], **stores: dict[str, dict[str, float]]) -> Record:
    """What `tailrace gadget analyze` leaves of these traces; ``stores``: and what its bench does, by mode."""
    started, ended = _times(at)
    by_trace = {
        name: {**analyze(trace).to_json(), "miss_ratios": [[p.entries, p.miss_ratio] for p in advise(trace).curve]}
        for name, trace in traces.items()
    }
    return Record(
        kind="bench",
        name="gadget-analyze",
        id=f"{int(at):08x}",
        started=started,
        ended=ended,
        machine=MACHINE,
        versions=VERSIONS,
        parameters={"traces": ", ".join(traces), "seed": 1},
        summary=json.loads(json.dumps({"traces": by_trace, **stores})),
        series={},
    )


def run_record(at: float, engine: str, ms: list[float], state_rows: int | None = 10) -> Record:
    """A run of ``bids-window`` on one engine with these times of its epochs; two of more than two do not count."""
    warmup = 2 if len(ms) > 2 else 0
    started, ended = _times(at)
    return Record(
        kind="run",
        name="bids-window",
        id=f"{int(at):08x}",
        started=started,
        ended=ended,
        machine=MACHINE,
        versions=VERSIONS,
        parameters={"engine": engine, "events": 500, "rows": 100, "seed": 1},
        summary={
            "median_ms": {engine: float(np.median(ms[warmup:]))},
            "p99_ms": {engine: float(np.percentile(ms[warmup:], 99))},
            "spread": {engine: 0.1},
            "rows_per_s": {engine: 1_234},
            "epochs": len(ms),
            "warmup": warmup,
            "answers_equal": True,
        },
        series={
            engine: {
                "ms": list(ms),
                "rows_per_s": [1e5 / one for one in ms],
                "state_rows": [None if state_rows is None else state_rows * at for at in range(len(ms))],
            }
        },
    )
