"""Replays a trace on a store, one access or one micro-batch at a time, and measures it.

- *Throughput*: accesses over the seconds of a pass that does nothing but the calls. Answers are kept and checked after.
  Then, when no time is taken any more, keys are read once more: a store must also hold what no access has read.
- *Latency*: a second pass on a fresh store takes the time of every call. In batch mode a call is a micro-batch, and an
  access takes as long as the batch that it is in.
- *The harness itself*: the same loops with calls that do nothing are timed, too, and shown beside (``harness_ns``): so
  much of an access's time is not the store's.
- *Service rate*: calls are not begun before their time, so many accesses a second; latency then counts from that time,
  so that a store that falls behind cannot hide it.

Threads: `replay` uses the caller's; `together` one for each operator, with a lock where the store is not made for it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.replay.prepared import Prepared, prepare
from tailrace.lab.gadget.stores.contract import MEMORY_BYTES, Answers, Settings, Store, Values
from tailrace.lab.gadget.traces.trace import Operation, Trace, joined

PERCENTILES = (50.0, 99.0, 99.9)
BATCH = 50_000
_VALUE_BYTES_MAX = 448
"""Larger values do not lie in a record."""
_HARNESS_ACCESSES = 20_000
_LEFT_CALLS = 500
"""Keys that are read at the end, by single calls; in micro-batches all are."""


@dataclass(frozen=True)
class How:
    """``batch``: accesses of a micro-batch; None: one call for each access."""

    batch: int | None = None
    memory_bytes: int = MEMORY_BYTES
    rate: float | None = None
    """Accesses a second; None: as fast as the store is."""
    seconds: float | None = None
    """A pass stops after the call in which so many have passed."""

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise TailraceError(f"a micro-batch of {self.batch} accesses makes no sense: name 1 or more")
        if self.rate is not None and not self.rate > 0:
            raise TailraceError(f"a service rate of {self.rate:g} accesses a second makes no sense: name more than 0")


@dataclass(frozen=True)
class Pass:
    """One time through a trace, or its beginning."""

    accesses: int
    seconds: float

    @property
    def ops_per_s(self) -> float:
        return self.accesses / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Latencies:
    """Microseconds, by percentile; ``mean`` and ``max``."""

    us: dict[str, float]

    @classmethod
    def of(cls, ns: np.ndarray) -> Latencies:
        if not len(ns):
            return cls({})
        found = {f"p{q:g}": round(float(np.percentile(ns, q)) / 1e3, 3) for q in PERCENTILES}
        return cls({**found, "mean": round(float(ns.mean()) / 1e3, 3), "max": round(float(ns.max()) / 1e3, 3)})


_folders = count()


@contextmanager
def opened(kind: type[Store], prepared: Prepared, how: How, work: Path) -> Iterator[Store]:
    """A store in a folder of its own, both gone afterwards."""
    folder = work / f"{kind.name}-{next(_folders)}"
    folder.mkdir(parents=True)
    largest = int(prepared.sizes.max()) if len(prepared) else 0
    try:
        value_bytes = min(max(largest, 8), _VALUE_BYTES_MAX)
        store = kind(Settings(folder, how.memory_bytes, value_bytes, prepared.key_bytes, prepared.panes))
        try:
            yield store
        finally:
            store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def throughput(store: Store, prepared: Prepared, how: How, *, check_left: bool = True) -> Pass:
    """One pass, its answers checked; and with ``check_left`` what the store holds after it."""
    answers, done, seconds = _run(store, prepared, how, None)
    prepared.check(store.name, answers, prepared.preloaded + done)
    if check_left:
        _check_left(store, prepared, how, prepared.preloaded + done)
    return Pass(done, seconds)


def _check_left(store: Store, prepared: Prepared, how: How, accesses: int) -> None:
    keys, right = prepared.left(accesses)
    if how.batch is not None:
        prepared.check_left(store.name, keys, right, store.run(prepared.reading(keys)))
        return
    ends = np.cumsum(np.maximum(right.sizes, 0))
    chosen = np.unique(np.linspace(0, len(keys) - 1, _LEFT_CALLS).astype(np.int64)) if len(keys) else keys
    found = [store.get(prepared.names[key]) for key in (keys[chosen] + prepared.first_key).tolist()]
    parts = [right.data[end - max(size, 0) : end] for end, size in zip(ends[chosen], right.sizes[chosen])]
    data = np.concatenate(parts) if parts else right.data
    prepared.check_left(store.name, keys[chosen], Values(right.sizes[chosen], data), found)


def latencies(store: Store, prepared: Prepared, how: How) -> Latencies:
    ns: list[int] = []
    answers, done, _ = _run(store, prepared, how, ns)
    prepared.check(store.name, answers, prepared.preloaded + done)
    _check_left(store, prepared, how, prepared.preloaded + done)
    return Latencies.of(np.array(ns, np.int64))


def _run(
    store: Store, prepared: Prepared, how: How, ns: list[int] | None, lock: threading.Lock | None = None
) -> tuple[list[Answers], int, float]:
    """Answers, how many accesses were done, and seconds; where ``ns`` is given, it gets the time of every call.

    What the store holds from the start is loaded before, in no time.
    """
    with lock or nullcontext():
        prepared.load(store)
    first = prepared.preloaded
    if how.batch is not None:
        batches = prepared.batches(how.batch)
        sizes = [len(one) for one in batches]
        call = _locked(store.run, lock)
        return _batches(call, batches, sizes, how, ns)
    names = prepared.names
    keys = [names[key] for key in prepared.keys[first:].tolist()]
    calls = tuple(_locked(one, lock) for one in (store.get, store.put, store.merge, store.delete))
    operations, values = prepared.trace.operations[first:].tolist(), prepared.values[first:]
    if ns is None and how.rate is None:
        return _plain(calls, operations, keys, values, how.seconds)
    return _timed(calls, operations, keys, values, how, ns if ns is not None else [])


def _locked(call: Callable[..., Any], lock: threading.Lock | None) -> Callable[..., Any]:
    if lock is None:
        return call

    def alone(*arguments: Any) -> Any:
        with lock:
            return call(*arguments)

    return alone


_CLOCK_EVERY = 100
"""Accesses between two looks at the clock: one at each would be a part of what is measured."""


def _plain(
    calls: tuple[Callable[..., Any], ...],
    operations: list[int],
    keys: Sequence[Any],
    values: Sequence[bytes],
    seconds: float | None,
) -> tuple[list[Answers], int, float]:
    get, put, merge, delete = calls
    found: list[bytes | None] = []
    keep = found.append
    done, total = 0, len(operations)
    started = time.perf_counter()
    while done < total:
        end = min(done + _CLOCK_EVERY, total)
        for operation, key, value in zip(operations[done:end], keys[done:end], values[done:end]):
            if operation == 0:
                keep(get(key))
            elif operation == 1:
                put(key, value)
            elif operation == 2:
                merge(key, value)
            else:
                delete(key)
        done = end
        if seconds is not None and time.perf_counter() - started > seconds:
            break
    return [found], done, time.perf_counter() - started


def _timed(
    calls: tuple[Callable[..., Any], ...],
    operations: list[int],
    keys: Sequence[Any],
    values: Sequence[bytes],
    how: How,
    ns: list[int],
) -> tuple[list[Answers], int, float]:
    get, put, merge, delete = calls
    found: list[bytes | None] = []
    clock = time.perf_counter_ns
    started = clock()
    done = 0
    gap_ns = None if how.rate is None else 1e9 / how.rate
    for operation, key, value in zip(operations, keys, values):
        begun = clock() if gap_ns is None else _due(started + int(done * gap_ns), clock)
        if operation == 0:
            found.append(get(key))
        elif operation == 1:
            put(key, value)
        elif operation == 2:
            merge(key, value)
        else:
            delete(key)
        ended = clock()
        ns.append(ended - begun)
        done += 1
        if how.seconds is not None and ended - started > how.seconds * 1e9:
            break
    return [found], done, (clock() - started) / 1e9


def _batches(
    call: Callable[..., Any], batches: Sequence[Any], sizes: list[int], how: How, ns: list[int] | None
) -> tuple[list[Answers], int, float]:
    answers: list[Answers] = []
    clock = time.perf_counter_ns
    done = 0
    started = clock()
    for batch, size in zip(batches, sizes):
        # A micro-batch is full, and can begin, when its last access has come.
        begun = clock() if how.rate is None else _due(started + int((done + size) * 1e9 / how.rate), clock)
        answers.append(call(batch))
        ended = clock()
        done += size
        if ns is not None:
            ns.extend([ended - begun] * size)
        if how.seconds is not None and ended - started > how.seconds * 1e9:
            break
    return answers, done, (clock() - started) / 1e9


def _due(at_ns: int, clock: Callable[[], int]) -> int:
    """Waits until then, and gives that time: what starts late has waited since then."""
    left = at_ns - clock()
    if left > 2_000_000:
        time.sleep((left - 1_000_000) / 1e9)
    while clock() < at_ns:
        pass
    return at_ns


# The harness's own cost -----------------------------------------------------------------------------------------------


def harness_ns(prepared: Prepared, how: How) -> float:
    """Nanoseconds of an access that are the harness's own: the same loop with calls that do nothing."""
    trace = prepared.trace
    total = min(len(trace), _HARNESS_ACCESSES)
    if not total:
        return 0.0

    def nothing(*_: object) -> None:
        return None

    best = float("inf")
    for _ in range(3):
        if how.batch is not None:
            batches = prepared.batches(how.batch)
            _, done, seconds = _batches(nothing, batches, [len(one) for one in batches], How(how.batch), None)
        else:
            keys = prepared.keys[:total].tolist()
            calls = (nothing, nothing, nothing, nothing)
            _, done, seconds = _plain(calls, trace.operations[:total].tolist(), keys, prepared.values[:total], None)
        best = min(best, 1e9 * seconds / max(done, 1))
    return round(best, 1)


# While a trace is made ------------------------------------------------------------------------------------------------


def online(store: Store, pieces: Iterable[Trace], how: How) -> Pass:
    """Replays every piece as soon as it is made; the seconds are those of the store, not of the making."""
    made: list[Trace] = []
    answers: list[Answers] = []
    accesses, seconds = 0, 0.0
    for piece in pieces:
        part = prepare(piece, first_access=accesses)
        found, done, took = _run(store, part, replace(how, seconds=None), None)
        made.append(piece)
        answers += found
        accesses += done
        seconds += took
        if how.seconds is not None and seconds > how.seconds:
            break
    whole = prepare(joined(made))
    whole.check(store.name, answers)
    _check_left(store, whole, how, accesses)
    return Pass(accesses, seconds)


# Several operators on one store ---------------------------------------------------------------------------------------


@dataclass
class _Operator:
    prepared: Prepared
    result: Pass | None = None
    error: BaseException | None = None
    latencies: Latencies = field(default_factory=lambda: Latencies({}))


def together(store: Store, operators: Sequence[Prepared], how: How) -> list[tuple[Pass, Latencies]]:
    """Every operator in a thread of its own, on one store; their state keys must differ (``Prepared.first_key``)."""
    lock = None if store.concurrent else threading.Lock()
    ready = threading.Barrier(len(operators))
    all_of_them = [_Operator(one) for one in operators]

    def work(one: _Operator) -> None:
        try:
            ready.wait()
            ns: list[int] = []
            answers, done, seconds = _run(store, one.prepared, how, ns, lock)
            one.prepared.check(store.name, answers, one.prepared.preloaded + done)
            with lock or nullcontext():
                _check_left(store, one.prepared, how, one.prepared.preloaded + done)
            one.result, one.latencies = Pass(done, seconds), Latencies.of(np.array(ns, np.int64))
        except BaseException as error:
            one.error = error

    threads = [threading.Thread(target=work, args=(one,), name="gadget-operator") for one in all_of_them]
    for prepared in operators:
        assert prepared.values is not None and prepared.key_words is not None  # made before the clock runs
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = []
    for one in all_of_them:
        if one.error is not None:
            raise one.error
        assert one.result is not None
        found.append((one.result, one.latencies))
    return found


assert [*map(int, Operation)] == [0, 1, 2, 3]  # loops compare plain numbers: members of an enum take much longer
