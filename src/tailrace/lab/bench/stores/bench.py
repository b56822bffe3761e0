"""``tailrace bench stores``: the state stores by themselves, under what NEXMark's bids ask of them.

No Spark and no server: stores are opened with ``tailrace.testing.bench.stores`` and fed what ``traces`` has made ahead,
packed and hashed, so that time measured is time in the store. State is many times as large as the memory given, so
that reads go to files; those may be in the system's page cache, which nobody can empty without being root.

- *ratio*: the share of lists that are read ahead, on sessions (Q11-Median). Once with a read for each session, as
  FlowKV's engine reads, and once with one read for all sessions that end in an epoch, as Tailrace reads.
- *amplification*: how much larger than its live rows the unaligned store may grow on disk.
- *window*: windows of several lengths, for each pattern of access, and where each store's processor time goes.

All settings of a sweep live at the same time and take turns, round by round (``turns``). The first rounds fill the
state and warm up and are not counted. What a store hands out in a round must be what the trace says, in every round.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import Report, facts, in_turns
from tailrace.lab.bench.options import StoreOptions
from tailrace.lab.bench.stores import traces as store_traces
from tailrace.lab.bench.stores.players import (
    RECORD_COLUMNS,
    SESSION_COLUMNS,
    AnyStore,
    Player,
    SessionFeed,
    SessionPlayer,
    WindowFeed,
    WindowPlayer,
    check,
)
from tailrace.lab.registry import Bench, Ratio, register
from tailrace.testing.bench.stores import AppendAligned, AppendUnaligned, Costs, ReadModifyWrite, Taken

SWEEPS = ("ratio", "amplification", "window")
RATIOS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
AMPLIFICATIONS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
RATIO = 0.02
"""Of Tailrace, and one of ``RATIOS``."""
BY_SESSION, BY_EPOCH = "a session a read", "an epoch a read"

_TYPES = {"dateTime": pa.timestamp("us", tz="UTC")}

Progress = Callable[[str, float], None]
"""Called with what is going on and which share of the sweep is done."""


register(
    Bench(
        "stores",
        "The state stores by themselves, under what NEXMark's bids ask of them. A ratio is the throughput with a "
        "fiftieth of all lists read ahead over that without reading ahead; series hold rounds, not epochs.",
        (
            Ratio(
                "read_ahead",
                "as fast as not ahead, by session",
                "ratio a session a read, 0",
                "ratio a session a read, 0.02",
            ),
            Ratio(
                "read_ahead_epoch",
                "as fast as not ahead, by epoch",
                "ratio an epoch a read, 0",
                "ratio an epoch a read, 0.02",
            ),
        ),
    )
)


@dataclass
class _Measured:
    """What a setting did in the rounds that count."""

    seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    costs: Costs = field(default_factory=Costs)
    rows_kept: int = 0
    memory_bytes: int = 0
    disk_bytes_max: int = 0

    def note(self, seconds: float, rows: int, spent: Costs, store: AnyStore) -> None:
        self.seconds.append(seconds)
        self.rows.append(rows)
        self.costs = Costs(*(sum(pair) for pair in zip(astuple(self.costs), astuple(spent))))
        self.rows_kept, self.memory_bytes = store.rows, store.memory_bytes

    @property
    def hit_ratio(self) -> float | None:
        asked = self.costs.hits + self.costs.misses
        return round(self.costs.hits / asked, 4) if asked else None

    @property
    def rows_per_s(self) -> int:
        return round(float(np.median(self.rates)))

    @property
    def rates(self) -> list[float]:
        return [rows / max(seconds, 1e-9) for rows, seconds in zip(self.rows, self.seconds)]

    @property
    def cpu_s(self) -> float:
        return self.costs.write_cpu_s + self.costs.read_cpu_s + self.costs.compaction_cpu_s

    def to_json(self) -> dict[str, Any]:
        costs = {name: round(value, 4) for name, value in asdict(self.costs).items()}
        return {
            "rows_per_s": self.rows_per_s,
            "spread": measure.spread(self.rates),
            "cpu_us_a_row": round(1e6 * self.cpu_s / max(sum(self.rows), 1), 3),
            "hit_ratio": self.hit_ratio,
            **costs,
            "rows_kept": self.rows_kept,
            "memory_bytes": self.memory_bytes,
            "disk_bytes_max": self.disk_bytes_max,
        }


Sweep = dict[str, dict[str, _Measured]]
"""Of the ratio sweep: how it was read, to setting. Of the window sweep: length, to pattern."""


def run_stores(options: StoreOptions, work: Path, report: Report) -> dict[str, Any]:
    sweeps = {"ratio": _ratio_sweep, "amplification": _amplification_sweep, "window": _window_sweep}
    found: dict[str, Sweep] = {}
    for number, name in enumerate(options.sweeps):

        def progress(what: str, share: float, before: int = number, sweep: str = name) -> None:
            report(f"{sweep}: {what}", round(100 * (before + share)), 100 * len(options.sweeps))

        folder = work / name
        folder.mkdir(parents=True)
        found[name] = sweeps[name](options, str(folder), progress)
        shutil.rmtree(folder)
    report("done", 100 * len(options.sweeps), 100 * len(options.sweeps))
    return _result(options, found)


# Sweeps --------------------------------------------------------------------------------------------------------------


def _ratio_sweep(options: StoreOptions, folder: str, progress: Progress) -> Sweep:
    fill = options.epochs(options.window_s)
    a_round = max(1, fill // 5)
    trace = _sessions(options, options.window_s, fill + (options.rounds + 1) * a_round, progress)
    found = {}
    for at, how in enumerate((BY_SESSION, BY_EPOCH)):
        stores = {f"{ratio:g}": _lists(options, folder, read_batch_ratio=ratio) for ratio in RATIOS}
        feed = SessionFeed(trace, next(iter(stores.values())))
        players = [SessionPlayer(name, feed, store, by_session=how is BY_SESSION) for name, store in stores.items()]

        def tell_part(what: str, share: float, part: int = at, name: str = how) -> None:
            progress(f"{name}: {what}", (part + share) / 2)

        found[how] = _rounds(players, fill, a_round, options.rounds, tell_part)
    return found


def _amplification_sweep(options: StoreOptions, folder: str, progress: Progress) -> Sweep:
    fill = options.epochs(options.window_s)
    a_round = max(1, fill // 2)  # long enough for most settings to compact in most rounds
    trace = _sessions(options, options.window_s, fill + (options.rounds + 1) * a_round, progress)
    stores = {f"{limit:g}": _lists(options, folder, max_space_amplification=limit) for limit in AMPLIFICATIONS}
    feed = SessionFeed(trace, next(iter(stores.values())))
    players = [SessionPlayer(name, feed, store) for name, store in stores.items()]
    return {BY_EPOCH: _rounds(players, fill, a_round, options.rounds, progress)}


def _window_sweep(options: StoreOptions, folder: str, progress: Progress) -> Sweep:
    """A round is one window long, so that every store reads one window's worth in it."""
    found = {}
    shares = np.cumsum([0.0, *options.factors]) / sum(options.factors)
    for at, factor in enumerate(options.factors):
        size_s = options.window_s * factor

        def tell_part(what: str, share: float, part: int = at, size: float = size_s) -> None:
            progress(f"{size:g} s: {what}", float(shares[part] + share * (shares[part + 1] - shares[part])))

        a_round = options.epochs(size_s)
        sessions = _sessions(options, size_s, (options.rounds + 2) * a_round, tell_part)
        windows = store_traces.windows(sessions.bids, size_s)
        lists = _lists(options, folder)
        rows = AppendAligned(_schema(SESSION_COLUMNS), ["bidder"], folder=folder, memory_bytes=options.memory_bytes)
        records = ReadModifyWrite(
            _schema(RECORD_COLUMNS), ["bidder", "auction"], folder=folder, memory_bytes=options.memory_bytes
        )
        players: list[Player] = [
            WindowPlayer("AAR", WindowFeed(windows, rows), rows),
            SessionPlayer("AUR", SessionFeed(sessions, lists), lists),
            WindowPlayer("RMW", WindowFeed(windows, records), records),
        ]
        found[f"{size_s:g}"] = _rounds(players, a_round, a_round, options.rounds, tell_part)
    return found


def _sessions(options: StoreOptions, gap_s: float, epochs: int, progress: Progress) -> store_traces.Sessions:
    progress("making events", 0)
    made = store_traces.bids(epochs * options.batch, options.batch, options.rate, options.seed)
    return store_traces.sessions(made, gap_s)


def _lists(options: StoreOptions, folder: str, **settings: float) -> AppendUnaligned:
    schema = _schema(SESSION_COLUMNS)
    return AppendUnaligned(
        schema,
        ["bidder"],
        folder=folder,
        memory_bytes=options.memory_bytes,
        **settings,  # type: ignore[arg-type]
    )


def _schema(columns: list[str]) -> pa.Schema:
    return pa.schema([(name, _TYPES.get(name, pa.int64())) for name in columns])


# Rounds --------------------------------------------------------------------------------------------------------------


def _rounds(
    players: Sequence[Player], fill: int, a_round: int, rounds: int, progress: Progress
) -> dict[str, _Measured]:
    """The first epochs fill the state, one round warms up, and the others count."""
    by_name = {player.name: player for player in players}
    measured = {name: _Measured() for name in by_name}
    edges = [0, *(fill + number * a_round for number in range(rounds + 2))]
    try:
        for number, (first, end) in enumerate(pairwise(edges)):
            counts = number >= 2
            progress("measuring" if counts else "filling the state", number / (rounds + 2))
            for name in in_turns(tuple(by_name), number):
                player, before = by_name[name], by_name[name].store.costs
                player.feed.load(first, end)
                seconds, rows, taken, disk_bytes = _played(player, first, end)
                if counts:
                    measured[name].note(seconds, rows, player.store.costs - before, player.store)
                    measured[name].disk_bytes_max = max(measured[name].disk_bytes_max, disk_bytes)
                check(player, taken, player.feed.expected())
    finally:
        for player in players:
            player.store.close()
    return measured


def _played(player: Player, first: int, end: int) -> tuple[float, int, list[Taken], int]:
    """Seconds in the store, rows brought, what was handed out, and the most bytes on disk after an epoch."""
    seconds, rows, disk_bytes = 0.0, 0, 0
    taken: list[Taken] = []
    for epoch in range(first, end):
        started = time.perf_counter()
        got = player.play(epoch)
        seconds += time.perf_counter() - started
        rows += player.feed.rows(epoch)
        taken += [one for one in got if len(one)]
        disk_bytes = max(disk_bytes, player.store.disk_bytes)
    return seconds, rows, taken, disk_bytes


# Result --------------------------------------------------------------------------------------------------------------


def _result(options: StoreOptions, found: dict[str, Sweep]) -> dict[str, Any]:
    result: dict[str, Any] = {"bench": "stores"}
    series: dict[str, list[float]] = {}
    if "ratio" in found:
        result |= {"hit_ratio": {}, "read_ahead_cpu": {}}
        for how, name in ((BY_SESSION, "read_ahead"), (BY_EPOCH, "read_ahead_epoch")):
            off, on = found["ratio"][how]["0"], found["ratio"][how][f"{RATIO:g}"]
            result[name] = measure.ratio(on.rows_per_s, off.rows_per_s)
            result["hit_ratio"][how] = on.hit_ratio
            result["read_ahead_cpu"][how] = measure.ratio(off.cpu_s, on.cpu_s)
        ends = {how: {name: each[name] for name in ("0", f"{RATIO:g}")} for how, each in found["ratio"].items()}
        series = _all_series(ends, "ratio")
    elif "amplification" in found:
        series = _all_series(found["amplification"], "amplification")
    else:
        series = _all_series(found["window"], "window")
    return {
        **result,
        "sweeps": {
            name: {group: {setting: one.to_json() for setting, one in each.items()} for group, each in sweep.items()}
            for name, sweep in found.items()
        },
        "median_ms": {name: measure.median(each) for name, each in series.items()},
        "spread": {name: measure.spread(each) for name, each in series.items()},
        "series_ms": series,
        **facts(options, "rate", "batch", "window_s", "memory_bytes", "rounds", "seed"),
        "answers_equal": True,
    }


_SHOWN = {
    "ratio": ("rows_per_s", "cpu_us_a_row", "hit_ratio", "index_scans", "spread"),
    "amplification": ("rows_per_s", "compaction_cpu_s", "compactions", "disk_bytes_max", "spread"),
    "window": ("rows_per_s", "write_cpu_s", "read_cpu_s", "compaction_cpu_s", "disk_bytes_max", "spread"),
}


def tables(sweeps: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """For a person: a title to columns of numbers, each by setting."""
    found = {}
    for name, sweep in sweeps.items():
        for group, each in sweep.items():
            title = f"windows of {group} s" if name == "window" else f"{name}, {group}"
            found[title] = {
                column: {setting: one[column] for setting, one in each.items() if one[column] is not None}
                for column in _SHOWN[name]
            }
    return found


def _all_series(sweep: Sweep, name: str) -> dict[str, list[float]]:
    return {
        f"{name} {group}, {setting}": [round(1e3 * seconds, 2) for seconds in one.seconds]
        for group, each in sweep.items()
        for setting, one in each.items()
    }
