"""What each bench can be asked for: every option once, with its type, default, limits and one sentence.

The command line is made from these classes (``cli/bench``). They import neither Spark nor Arrow, so that ``--help``
does not wait for either. Whether names are known is checked by the bench, before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

OURS, ROCKSDB, MEMORY, PLAIN = "tailrace", "spark-rocksdb", "spark-memory", "tailrace-plain"
FLOORS = ("shuffle-floor", "transfer-floor")


@dataclass(frozen=True)
class Flag:
    """How the command line takes a field. A field of type int that is a ``size`` may be written as 500k or 10M."""

    help: str
    least: float | None = None
    name: str | None = None
    size: bool = False


Rows = Annotated[int, Flag("Rows of a micro-batch.", 1)]
Keys = Annotated[int, Flag("Different keys.", 1)]
Batches = Annotated[int, Flag("Micro-batches measured.", 1)]
Warmup = Annotated[int, Flag("Micro-batches before that, which are not counted.", 0)]
Turn = Annotated[int, Flag("Batches that an engine takes in a row; of several, the first is not counted.", 1)]
Engines = Annotated[tuple[str, ...], Flag("Which engines take part, separated by commas.")]
Seed = Annotated[int, Flag("The same seed makes the same events.", 0)]
Check = Annotated[bool, Flag("Compare every engine's answer with the right one at the end.")]
Commit = Annotated[
    Literal["sync", "async-checkpoint", "async"], Flag("When Tailrace's epochs are durable: its option commit.")
]
Confs = Annotated[
    Mapping[str, str], Flag("A Spark conf for all engines, as name=value. May be repeated.", name="--conf")
]
Given = Annotated[tuple[str, ...], Flag("A parameter of the workloads, as name=value. May be repeated.", name="--set")]
Sink = Annotated[Literal["collect", "parquet", "noop"], Flag("Where rows go, for all engines alike.")]


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """Of benches that run queries. A field without a `Flag` is for tests."""

    warmup: Warmup = 5
    seed: Seed = 1
    confs: Confs = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(QueryOptions):
    """Of benches whose engines take turns."""

    known_engines: ClassVar[tuple[str, ...]] = (ROCKSDB, MEMORY, OURS)

    engines: Engines = (ROCKSDB, OURS)
    commit: Commit = "async"


@dataclass(frozen=True, kw_only=True)
class RmwOptions(ComparisonOptions):
    known_engines: ClassVar[tuple[str, ...]] = (ROCKSDB, MEMORY, OURS, *FLOORS)

    rows: Rows = 500_000
    keys: Keys = 3_000_000
    batches: Batches = 20
    warmup: Warmup = 12
    turn: Turn = 3
    engines: Engines = known_engines
    check: Check = True


@dataclass(frozen=True, kw_only=True)
class OverheadOptions(ComparisonOptions):
    known_engines: ClassVar[tuple[str, ...]] = RmwOptions.known_engines

    rows: Rows = 100
    keys: Keys = 1_000
    batches: Batches = 60
    warmup: Warmup = 20
    sink: Sink = "collect"
    check: Check = True


@dataclass(frozen=True, kw_only=True)
class StartOptions(ComparisonOptions):
    starts: Annotated[int, Flag("New queries that are started, each of them twice.", 1)] = 9
    warmup: Annotated[int, Flag("Starts before that, which are not counted.", 0)] = 3
    rows: Rows = 1_000
    keys: Keys = 1_000


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(QueryOptions):
    keys: Keys = 1_000_000
    rows: Rows = 100_000
    batches: Batches = 12
    warmup: Warmup = 4
    commit: Commit = "async"
    turn: int = 3
    check: Check = True


@dataclass(frozen=True, kw_only=True)
class NexmarkOptions(ComparisonOptions):
    queries: Annotated[tuple[str, ...], Flag("Which queries, as q5,q7-session; FlowKV's by default.")] = (
        *("q5", "q5-append", "q7", "q7-session"),
        *("q8", "q11", "q11-median", "q12"),
    )
    rows: Annotated[int, Flag("Events of a micro-batch, as 750k; more for light queries.", 1, size=True)] = 750_000
    turns: Annotated[int, Flag("Turns of each engine that are measured.", 1)] = 3
    turn: Turn = 3
    sink: Sink = "noop"
    given: Given = ()
    check: Check = True

    @property
    def measured(self) -> int:
        return self.warmup + self.turns * self.turn

    @property
    def further(self) -> int:
        """Batches whose rows are kept and checked: in some of them windows end."""
        return max(2, self.turn) if self.check else 0


@dataclass(frozen=True, kw_only=True)
class PortOptions(QueryOptions):
    queries: Annotated[tuple[str, ...], Flag("Which workloads; all that have both queries by default.")] = ()
    rows: Annotated[int | None, Flag("Rows of a micro-batch; the workload's own by default.", 1)] = None
    turns: Annotated[int, Flag("Turns of each engine that are measured.", 1)] = 4
    turn: Turn = 4
    warmup: Warmup = 8
    commit: Commit = "async"
    check: Check = True


@dataclass(frozen=True, kw_only=True)
class ProcessorsOptions(QueryOptions):
    known_programs: ClassVar[tuple[str, ...]] = ("count", "session", "buffer", "maps")
    known_forms: ClassVar[tuple[str, ...]] = ("spark-pandas", "spark-rows", "tailrace-pandas", "tailrace-rows")

    programs: Annotated[tuple[str, ...], Flag("Which programs.")] = known_programs
    forms: Annotated[tuple[str, ...], Flag("Which engines, with rows or with pandas frames.")] = known_forms
    keys: Annotated[int, Flag("Different keys of a micro-batch, half of all that there are.", 1)] = 100_000
    rows: Rows = 200_000
    batches: Batches = 3
    warmup: Warmup = 3
    commit: Commit = "async"
    check: Check = True


@dataclass(frozen=True, kw_only=True)
class CommitOptions(QueryOptions):
    queries: Annotated[tuple[str, ...], Flag("Which queries.")] = ("lr2", "lr4", "cm1", "cm2")
    targets: Annotated[tuple[str, ...], Flag("What to compare; all that the store can serve by default.")] = ()
    batches: Annotated[int, Flag("Rounds measured.", 1)] = 36
    warmup: Annotated[int, Flag("Rounds before that, in which all targets run side by side.", 0)] = 20
    rate: Annotated[int, Flag("Records of a second; the paper has 1500 and 2500.", 1)] = 1_500
    store: Annotated[
        Literal["proxy", "shaped"],
        Flag("One shaping proxy before an S3 server for all, or, without Spark's engine, a slow folder."),
    ] = "proxy"
    latency_ms: Annotated[float, Flag("Milliseconds that the store waits with each request.", 0, "--latency")] = 50
    mb_per_s: Annotated[float, Flag("Megabytes that the store takes a second; 0: any.", 0, "--bandwidth")] = 20
    deadline_s: Annotated[float, Flag("Of the target buffered, in seconds.", 0, "--deadline")] = 3
    trigger_s: Annotated[float, Flag("A round takes so many seconds at least; the paper: 3.", 0, "--trigger")] = 0
    turn: Annotated[int, Flag("Batches in a row, without a pause; of several, the first is not counted.", 1)] = 1
    sink: Sink = "noop"
    given: Given = ()
    check: Check = True
    batch_s: int = 3
    gap_s: float = 0.1
    """Between two targets, so that what one does behind its batch is not in the next one's time."""


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    known_sweeps: ClassVar[tuple[str, ...]] = ("ratio", "amplification", "window")

    sweeps: Annotated[
        tuple[str, ...], Flag("Which sweeps: shares read ahead, space amplifications, window lengths.")
    ] = known_sweeps
    window_s: Annotated[int, Flag("Gap of sessions and base of window lengths, in seconds.", 1, "--window")] = 100
    rate: Annotated[int, Flag("Events of a second of event time, as 10k.", 1, size=True)] = 10_000
    batch: Annotated[int, Flag("Events of an epoch, as 10k; 46 of 50 are bids.", 1, size=True)] = 10_000
    memory_bytes: Annotated[int, Flag("Bytes that a store may hold in memory, as 4M.", 1, "--memory", size=True)] = (
        4_000_000
    )
    rounds: Annotated[int, Flag("Rounds measured, after those that fill the state.", 1)] = 5
    seed: Seed = 1

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    """Lengths of the window sweep, as multiples of ``window_s``."""

    def epochs(self, seconds: float) -> int:
        """How many it takes for so many seconds of event time."""
        return max(1, round(seconds * self.rate / self.batch))
