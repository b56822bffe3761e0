"""YCSB: its core workloads and six request distributions as traces, for comparison with those of streaming operators.

Follows YCSB's own rules for choosing records. An update is a put, a read-modify-write a get and a put of one key. All
records are in the store before the first access, as after YCSB's load phase: the metadata say ``preloaded``. Scans
(workload E) are no part of a trace. Times count microseconds, one for each operation. Everything comes from the seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.operators.driver import dense
from tailrace.lab.gadget.traces.trace import Operation, Trace

REQUESTS = ("uniform", "zipfian", "latest", "hotspot", "sequential", "exponential")
THETA = 0.99
_ITEMS = 10_000_000_000
_ZETA = 26.46902820178302
"""Of so many items: too many to add up again."""
_HOT_RECORDS, _HOT_OPERATIONS = 0.2, 0.8
_PERCENTILE, _FRACTION = 95.0, 0.8571428571
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(1099511628211)


@dataclass(frozen=True)
class Ycsb:
    """Shares of operations add up to 1."""

    read: float
    update: float = 0
    insert: float = 0
    read_modify_write: float = 0
    requests: str = "zipfian"
    records: int = 1_000
    operations: int = 1_000_000
    key_bytes: int = 8
    value_bytes: int = 256
    name: str = "ycsb"

    def __post_init__(self) -> None:
        shares = (self.read, self.update, self.insert, self.read_modify_write)
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise TailraceError(f"shares of reads, updates, inserts and read-modify-writes add up to 1, not {shares}")
        if self.requests not in REQUESTS:
            raise TailraceError(f"no request distribution is called {self.requests!r}; there are {', '.join(REQUESTS)}")
        for what in ("records", "operations", "key_bytes", "value_bytes"):
            if getattr(self, what) < 1:
                raise TailraceError(f"{what} is {getattr(self, what)}: at least 1")

    def trace(self, seed: int) -> Trace:
        random = np.random.default_rng(seed)
        edges = np.cumsum([self.read, self.update, self.insert, self.read_modify_write])
        edges[-1] = 1.0
        what = np.searchsorted(edges, random.random(self.operations), side="right")  # 0 to 3, in this order
        is_insert = what == 2
        last = self.records - 1 + np.cumsum(is_insert) - is_insert  # before each operation
        record = _chosen(self, random, last)
        record[is_insert] = last[is_insert] + 1
        twice = np.where(what == 3, 2, 1)
        at = np.repeat(np.arange(self.operations), twice)
        second = np.append(False, at[1:] == at[:-1])
        reads = (what[at] == 0) | ((what[at] == 3) & ~second)
        keys, _ = dense(record[at])
        return Trace(
            np.where(reads, Operation.GET, Operation.PUT).astype(np.uint8),
            keys,
            np.where(reads, 0, self.value_bytes).astype(np.int32),
            at.astype(np.int64),
            None,
            {
                "workload": self.name,
                "origin": "ycsb",
                "requests": self.requests,
                "records": str(self.records),
                "seed": str(seed),
                "key_bytes": str(self.key_bytes),
                "preloaded": "true",
            },
        )


CORE = {
    "A": Ycsb(0.5, update=0.5, name="ycsb-a"),
    "B": Ycsb(0.95, update=0.05, name="ycsb-b"),
    "C": Ycsb(1.0, name="ycsb-c"),
    "D": Ycsb(0.95, insert=0.05, requests="latest", name="ycsb-d"),
    "F": Ycsb(0.5, read_modify_write=0.5, name="ycsb-f"),
}


def tuned_to(trace: Trace, requests: str) -> Ycsb:
    """As the paper tunes YCSB to an operator: as many operations, keys and reads; no inserts, no deletes."""
    if not len(trace):
        raise TailraceError("YCSB cannot be tuned to a trace without accesses")
    reads = float(np.mean(trace.operations == Operation.GET))
    written = trace.value_sizes[trace.value_sizes > 0]
    return Ycsb(
        reads,
        update=1 - reads,
        requests=requests,
        records=trace.distinct_keys,
        operations=len(trace),
        key_bytes=trace.key_bytes,
        value_bytes=max(1, round(float(written.mean()))) if len(written) else 1,
        name=f"ycsb-like-{trace.metadata.get('workload', 'trace')}",
    )


def core(name: str, **changes: object) -> Ycsb:
    if name.upper() not in CORE:
        hint = " (its scans are no part of a trace)" if name.upper() == "E" else ""
        raise TailraceError(f"no YCSB workload is called {name!r}{hint}; there are {', '.join(CORE)}")
    return replace(CORE[name.upper()], **changes)  # type: ignore[arg-type]


def _chosen(of: Ycsb, random: np.random.Generator, last: np.ndarray) -> np.ndarray:
    """The record of each operation; ``last``: the newest at that time."""
    rows, records = len(last), of.records
    if of.requests == "uniform":
        return random.integers(0, records, rows)
    if of.requests == "sequential":
        return np.arange(rows) % records
    if of.requests == "hotspot":
        hot = max(int(records * _HOT_RECORDS), 1)
        is_hot = (random.random(rows) < _HOT_OPERATIONS) | (hot == records)
        return np.where(is_hot, random.integers(0, hot, rows), random.integers(min(hot, records - 1), records, rows))
    if of.requests == "latest":
        newest: np.ndarray = last - _latest_ranks(random, last)
        return newest
    if of.requests == "exponential":
        rate = -math.log(1 - _PERCENTILE / 100) / (_FRACTION * records)
        return _drawn(last, lambda rows: last[rows] - (random.exponential(1 / rate, len(rows))).astype(np.int64))
    space = np.uint64(records + int(of.operations * of.insert * 2) + 1)
    return _drawn(last, lambda rows: (_fnv(_zipf(random.random(len(rows)), _ITEMS, _ZETA)) % space).astype(np.int64))


def _drawn(last: np.ndarray, draw) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Draws for each row until the record is there."""
    found = np.empty(len(last), np.int64)
    left = np.arange(len(last))
    while len(left):
        found[left] = draw(left)
        left = left[(found[left] < 0) | (found[left] > last[left])]
    return found


def _zipf(u: np.ndarray, items: float | np.ndarray, zeta: float | np.ndarray) -> np.ndarray:
    """Ranks from 0, after Gray et al. (1994), from uniform numbers."""
    zeta_2 = 1 + 0.5**THETA
    eta = (1 - (2 / items) ** (1 - THETA)) / (1 - zeta_2 / zeta)
    ranks = np.asarray(items * (eta * u - eta + 1) ** (1 / (1 - THETA)))
    scaled = u * zeta
    ranks = np.where(scaled < zeta_2, 1, ranks)
    return np.minimum(np.where(scaled < 1, 0, ranks), items - 1).astype(np.int64)


def _latest_ranks(random: np.random.Generator, last: np.ndarray) -> np.ndarray:
    items = np.maximum(last, 1)
    zetas = np.cumsum(np.arange(1, int(items.max()) + 1, dtype=np.float64) ** -THETA)
    u = random.random(len(last))
    with np.errstate(divide="ignore", invalid="ignore"):
        ranks = _zipf(u, items.astype(np.float64), zetas[items - 1])
    few = items <= 2  # the sampler divides by zero there
    return np.where(few, np.minimum((u * zetas[items - 1] >= 1).astype(np.int64), items - 1), ranks)


def _fnv(values: np.ndarray) -> np.ndarray:
    """64-bit FNV-1a over the eight bytes of each value, without its sign."""
    rest = values.astype(np.uint64)
    hashed = np.full(len(values), _OFFSET)
    with np.errstate(over="ignore"):
        for _ in range(8):
            hashed = (hashed ^ (rest & np.uint64(0xFF))) * _PRIME
            rest >>= np.uint64(8)
    return np.abs(hashed.view(np.int64)).view(np.uint64)
