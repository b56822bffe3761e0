"""What ``tailrace bench prefetch`` runs: five workloads whose state is several times the memory, and the engines.

A case follows from the memory of a state server alone: so many keys that state is ``TIMES`` its size, and so many rows
of a batch as a query with a backlog takes, for half a second or so, but not more than have room for their spilled
records in the part of it that may hold prefetched records. A read takes a millisecond; how many are under way at once
follows from how many rows need one: a device that does not keep up with rows as Spark brings them is what every mode is
bound by, and nothing can be hidden behind that. ``--depth`` and ``--sweep rows`` show others. NEXMark's streams are
those of the Keyed Prefetching paper in small: auctions and people stay active for as long as the bench runs, and which
of them are hot changes all the time. To have their state without running for hours a stream is first *filled*: with the
same ids, but without hot keys, and where that makes no difference to the state with few active auctions at a time, so
that filling asks little of the disk. Then the same stream goes on as it is measured. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tailrace.lab.registry import OURS, UnknownNameError, Value
from tailrace.lab.workloads.nexmark.workloads import AS_TEXTS, PREFIX

TIMES = 12
"""State is planned to be so many times the memory; at least 8 is asked for, and stated in the result."""
TOUCHED = 32
"""Where all is to be in memory, a lookup table's cached rows take one part in so many of it: a row comes when it is
asked for, so the table must be so small that all rows were, in the batches before those that are measured."""
PEER = "spark-rocksdb"
HINTS = "hints"


@dataclass(frozen=True)
class Mode:
    """One way to run: an engine of the lab, and options of Tailrace."""

    name: str
    engine: str = OURS
    options: Mapping[str, str] = field(default_factory=dict)


def _mode(name: str, policy: str, prefetch: str) -> Mode:
    return Mode(name, OURS, {"cachePolicy": policy, "prefetch": prefetch})


MODES = {
    mode.name: mode
    for mode in (
        _mode("lru", "lru", "off"),
        _mode("clock", "clock", "off"),
        _mode("async-io", "lru", "async-io"),
        _mode(HINTS, "timestamp", "on"),
        Mode(PEER, PEER),
    )
}
BASELINES = ("lru", "clock", "async-io")
ALL_IN_CACHE = {mode.name: mode for mode in (_mode("on", "timestamp", "on"), _mode("off", "timestamp", "off"))}


@dataclass(frozen=True)
class Case:
    """``filling``: parameters that are others while the state is filled, in batches of ``fill_rows``."""

    name: str
    workload: str
    values: Mapping[str, Value]
    rows: int
    memory_bytes: int
    fill_events: int = 0
    fill_rows: int = 1
    filling: Mapping[str, Value] = field(default_factory=dict)
    table: str | None = None
    """The parameter that says how many rows the lookup table has, where that is the state."""
    skew: str = "hot_auctions"
    """The parameter that says how skewed keys are."""
    spilled: float = 1.0
    """Records that are not in memory, about, for each row that comes to the operator."""

    @property
    def table_rows(self) -> int:
        return int(self.values[self.table]) if self.table else 0

    @property
    def depth(self) -> int:
        """Reads under way at once, a power of two: of 1 ms each, those for such a row take ``_ROW_US`` at most."""
        return int(1 << math.ceil(math.log2(max(1.0, self.spilled * 1e3 / _ROW_US))))

    @property
    def query(self) -> str | None:
        """Of NEXMark."""
        name = self.workload.removesuffix(AS_TEXTS)
        return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


_HOT: dict[str, Value] = {"hot_auctions": 50, "hot_bidders": 75}
_EVEN: dict[str, Value] = {"hot_auctions": 0, "hot_bidders": 0}
_RATE = 10_000
_ROW_US = 4.0
"""On two cores Spark takes some 4 to 6 microseconds to bring a row: to read it, parse it and hand it over."""


def _q13(memory: int, table_bytes: int) -> Case:
    """A table of (auction, text). A copy of a row takes about 90 bytes; all memory is for copies."""
    table = table_bytes // 90
    values: dict[str, Value] = {
        **_HOT,
        "rate": _RATE,
        "side_rows": table,
        "auctions_in_flight": table,
        "hot_auction_batch": _RATE * 3 // 50,
        "first_event": (table // 3 + 1) * 50,
    }
    return Case("q13", f"{PREFIX}q13{AS_TEXTS}", values, memory // 175, memory, table="side_rows", spilled=0.44)


def _q18(memory: int, _: int) -> Case:
    """A bid for each pair of an auction and a bidder, 300 bytes: few of both, who meet again and again."""
    each = math.isqrt(TIMES * memory // 300)
    bids = 5_000
    fill = 5 * each * each // 2
    values: dict[str, Value] = {
        **_HOT,
        "rate": _RATE,
        "auctions": 1,
        "bids": bids,
        "auctions_in_flight": each,
        "active_people": each,
        "hot_auction_batch": 2,
        "hot_bidder_batch": 2,
        # Whoever bids has joined before: with so many rounds of events there are enough people and auctions.
        "first_event": each * (bids + 2) + fill,
    }
    filling = {**_EVEN, "first_event": each * (bids + 2)}
    return Case(
        "q18", f"{PREFIX}q18{AS_TEXTS}", values, memory // 262, memory, fill, fill // 3 + 1, filling, spilled=0.09
    )


def _q19(memory: int, _: int) -> Case:
    """Ten bids of each auction, 2 kB on disk and 3.6 kB in the cache: seven times the memory, so that they fit.

    While it is filled each auction has its bids soon after it opens.
    """
    memory = 7 * memory
    auctions, bids = 5, 60
    wanted = TIMES * memory // 2_200
    fill = wanted // auctions * (1 + auctions + bids)
    values: dict[str, Value] = {
        **_HOT,
        "rate": _RATE,
        "auctions": auctions,
        "bids": bids,
        "auctions_in_flight": wanted,
        "hot_auction_batch": _RATE // 10 * auctions // 66,
        "first_event": fill,
    }
    filling = {**_EVEN, "auctions_in_flight": max(1, wanted // 50), "first_event": 0}
    return Case(
        "q19", f"{PREFIX}q19{AS_TEXTS}", values, memory // 3_675, memory, fill, fill // 4 + 1, filling, spilled=0.4
    )


def _q20(memory: int, _: int) -> Case:
    """An auction of 650 bytes for each fifth one that opens. Filled by auctions, of which nearly all events are."""
    wanted = 5 * TIMES * memory // 650
    a_round = 48
    fill = wanted // a_round * (2 + a_round)
    values: dict[str, Value] = {
        **_HOT,
        "rate": _RATE,
        "auctions_in_flight": wanted,
        "auction_lead": 0,
        "hot_auction_batch": _RATE * 3 // 50,
        "first_event": (wanted // 3 + 1) * 50,
    }
    filling = {**_EVEN, "auctions": a_round, "bids": 1, "first_event": 0}
    return Case(
        "q20", f"{PREFIX}q20-kept{AS_TEXTS}", values, memory // 210, memory, fill, fill // 4 + 1, filling, spilled=0.09
    )


def _ysb(memory: int, table_bytes: int) -> Case:
    """Ads in Redis. A cached row takes about 170 bytes; the counts of views have the other half of the memory."""
    rows = memory // 175
    ads = table_bytes // 170
    values: dict[str, Value] = {"ads": ads, "rate": max(1, rows // 5), "skew": 1.0, "hot_events": rows * 4}
    return Case("ysb", "ysb", values, rows, memory, table="ads", skew="skew", spilled=0.46)


_CASES: dict[str, Callable[[int, int], Case]] = {"q13": _q13, "q18": _q18, "q19": _q19, "q20": _q20, "ysb": _ysb}
CASES = tuple(_CASES)


def case(name: str, memory_bytes: int, *, fits: bool = False) -> Case:
    """``fits``: there will be memory for everything, and lookup tables are to be in it soon (``TOUCHED``)."""
    if name not in _CASES:
        raise UnknownNameError(f"bench prefetch has no workload {name!r}; there are {', '.join(CASES)}")
    return _CASES[name](memory_bytes, memory_bytes // TOUCHED if fits else TIMES * memory_bytes)
