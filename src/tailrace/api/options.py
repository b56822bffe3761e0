"""Tailrace's own options of ``writeStream``, each declared once: name, values, default and one sentence.

Names are compared without regard to case, as Spark does. An option that is not ours goes to the sink's format
untouched, unless it looks like a misspelling of ours: passed on silently, it would leave the query with a setting that
its user did not mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tailrace.api.columns import closest
from tailrace.api.option_values import (
    Choice,
    Duration,
    ExecutorFolder,
    Integer,
    IntegerOrAuto,
    Location,
    Number,
    Option,
    PemFile,
    Size,
    declared,
    option,
    parsed,
)
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.state.tuning import DEFAULT_TUNING


class Route(StrEnum):
    """How rows reach the server that owns their key."""

    DIRECT = "direct"  # each task sends to every server
    SHUFFLE = "shuffle"  # through Spark's shuffle, so that each task sends to one server


class Combine(StrEnum):
    """Whether a task merges rows of the same key before it sends them."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class WatermarkPolicy(StrEnum):
    """Which of several streams' watermarks counts: ``spark.sql.streaming.multipleWatermarkPolicy``."""

    MIN = "min"  # of the slowest stream: no row is lost
    MAX = "max"  # of the fastest one: rows of others may be late


class WatermarkRule(StrEnum):
    """By which rule rows are late and windows close. The names are kept in checkpoints."""

    TAILRACE = "tailrace"  # late: all its windows ended before this epoch; closing by this epoch's rows included
    SPARK = "spark"  # as Spark's own aggregation: both by what was seen before this epoch


class Changelog(StrEnum):
    """Whether rows also say what is no longer so."""

    OFF = "off"
    ON = "on"


class Transport(StrEnum):
    """How a task talks to a server."""

    AUTO = "auto"
    UNIX = "unix"
    TCP = "tcp"


class TlsMode(StrEnum):
    """Whether calls between machines are encrypted, and with whose certificate."""

    AUTO = "auto"  # one made for the run and shipped with its token, unless files are given
    SPARK = "spark"  # the one of Spark's own settings, spark.ssl.rpc or spark.ssl
    OFF = "off"


class CommitMode(StrEnum):
    """When an epoch is durable."""

    SYNC = "sync"  # before its rows reach the sink
    ASYNC_CHECKPOINT = "async-checkpoint"  # before the next epoch's do; its deltas are written before its own do
    ASYNC = "async"  # before the next epoch's do


class CachePolicy(StrEnum):
    """Which records are evicted first where the memory budget is used up."""

    TIMESTAMP = "timestamp"  # the longest not used in event time; records that hints name stay
    LRU = "lru"
    CLOCK = "clock"


class Prefetch(StrEnum):
    """How spilled state, or rows of a lookup table, come into memory."""

    ON = "on"  # while the batch that needs them still arrives
    OFF = "off"  # when they are needed
    ASYNC_IO = "async-io"  # when they are needed, while rows that need nothing go on


class ReadMode(StrEnum):
    """How spilled state is read from disk."""

    MAPPED = "mapped"  # through the system's page cache
    DIRECT = "direct"  # around it


class HintSource(StrEnum):
    """Where prefetch hints come from."""

    AUTO = "auto"  # the latest point that is early enough
    STAGING = "staging"  # only the rows that have arrived at a server


@dataclass(frozen=True)
class SpillAccess:
    """How state that is not in memory is brought there. The last two shape reads, for tests and benches."""

    policy: CachePolicy = option(
        "cachePolicy",
        Choice(CachePolicy),
        CachePolicy(DEFAULT_TUNING.spilled.policy),
        "Which records are evicted first where the memory budget is used up.",
    )
    prefetch: Prefetch = option(
        "prefetch",
        Choice(Prefetch),
        Prefetch(DEFAULT_TUNING.spilled.prefetch),
        "How spilled state, or rows of a lookup table, come into memory.",
    )
    reads: ReadMode = option(
        "spillReads",
        Choice(ReadMode),
        ReadMode(DEFAULT_TUNING.spilled.reads),
        "Whether spilled state is read through the system's page cache or around it.",
    )


@dataclass(frozen=True)
class HintTuning:
    """How state is fetched before the rows that need it are applied."""

    lookahead: HintSource = option(
        "lookahead", Choice(HintSource), HintSource.AUTO, "From which point of the query prefetch hints come."
    )
    sketch_bytes: int = option(
        "sketchMemory", Size(1 << 10), 16 << 10, "Memory of each sketch that finds hot keys, which need no hints."
    )
    margin: Micros = option(
        "hintMargin", Duration(), Micros(2_000), "How much earlier than a fetch takes a hint has to come."
    )
    waste_max: float = option("hintWaste", Number(0, 1), 0.05, "The share of fetched records that may go unused.")

    @property
    def upstream(self) -> bool:
        return self.lookahead is HintSource.AUTO


@dataclass(frozen=True)
class Encryption:
    """How calls between machines are encrypted. Those within one machine do not leave it."""

    mode: TlsMode = option(
        "tls", Choice(TlsMode), TlsMode.AUTO, "How calls to state servers on other machines are encrypted."
    )
    certificate: str | None = option(
        "tlsCertificate",
        PemFile("the executors' machines"),
        None,
        "The certificate, and its chain, that state servers show; one made for the run unless given.",
    )
    key: str | None = option("tlsKey", PemFile("the executors' machines"), None, "The private key of `tlsCertificate`.")
    roots: str | None = option(
        "tlsRoots",
        PemFile("the driver's machine"),
        None,
        "The authorities that have signed `tlsCertificate`; those that the machine trusts unless given.",
    )

    def check(self) -> None:
        """Refuse options that do not go together."""
        if (self.certificate is None) != (self.key is None):
            there, missing = ("tlsCertificate", "tlsKey") if self.key is None else ("tlsKey", "tlsCertificate")
            raise AnalysisError(f"option {there!r} goes with {missing!r}: give both, or neither")
        if self.roots is not None and self.certificate is None:
            raise AnalysisError("option 'tlsRoots' says who signed 'tlsCertificate': give that too, or remove it")
        if self.certificate is not None and self.mode is not TlsMode.AUTO:
            raise AnalysisError(
                f"option 'tls' is {self.mode.value!r}, and 'tlsCertificate' is given: remove one of them"
            )


CHECKPOINT_LOCATION = "checkpointLocation"
STATE_LOCATION = "stateLocation"
RECORD_ACCESSES = "recordAccesses"
_SPARK_ONLY = "asyncprogresstracking"
_TYPO_CUTOFF = 0.75


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a query runs.

    >>> Options().shards
    64
    """

    shards: int = option(
        "shards", Integer(1, 4096), 64, "Key groups that state is divided into, spread over the servers.", fixed=True
    )
    watermark: WatermarkRule = option(
        "watermark",
        Choice(WatermarkRule),
        WatermarkRule.TAILRACE,
        "By which rule rows are late and windows close.",
        fixed=True,
    )
    changelog: Changelog = option(
        "changelog",
        Choice(Changelog),
        Changelog.OFF,
        "Whether sessions in update mode are given as changes, with a column `_change_type`, absorbed ones as deleted.",
        fixed=True,
    )
    memory_bytes: int = option("memory", Size(1 << 20), 1 << 30, "State that each state server keeps in memory.")
    state_servers: int | None = option(
        "stateServers",
        IntegerOrAuto(1, 4096),
        None,
        "On how many executors state is kept; `auto`: on all, as they come and go.",
    )
    idle_timeout: Micros | None = option(
        "idleTimeout",
        Duration(),
        None,
        "A stream without rows for so long holds the watermark back no more; where all are silent, event time goes on "
        "with the clock. Off unless given.",
        fixed=True,
    )
    commit: CommitMode = option("commit", Choice(CommitMode), CommitMode.ASYNC, "When an epoch is durable.")
    retain: int = option("retain", Integer(2, 1000), 2, "Durable epochs that are kept.")
    recovery_timeout: Micros = option(
        "recoveryTimeout",
        Duration(),
        Micros(600_000_000),
        "A query that loses state servers ends when no epoch was done for so long.",
    )
    function_timeout: Micros = option(
        "functionTimeout",
        Duration(),
        Micros(600_000_000),
        "How long one call of a user's function may take in a state server.",
    )
    heartbeat_timeout: Micros = option(
        "heartbeatTimeout",
        Duration(),
        Micros(5_000_000),
        "A state server that is silent for so long is given up.",
    )
    commit_timeout: Micros = option(
        "commitTimeout",
        Duration(),
        Micros(600_000_000),
        "A query ends when an epoch is not durable after so long.",
    )
    max_clock_jump: Micros = option(
        "maxClockJump",
        Duration(),
        Micros(7 * 86_400_000_000),
        "Where state expires by processing time, a start this long after the newest epoch, or later, is refused: the "
        "clock may be wrong.",
    )
    local_location: str | None = option(
        "localLocation",
        ExecutorFolder(" for copies of a remote state location's objects", off="off"),
        None,
        "Where executors keep copies of a remote state location's objects; their temporary folder unless given.",
    )
    route: Route = option("route", Choice(Route), Route.DIRECT, "How rows reach the server that owns their key.")
    combine: Combine = option(
        "combine", Choice(Combine), Combine.AUTO, "Whether a task merges rows of the same key before it sends them."
    )
    transport: Transport = option("transport", Choice(Transport), Transport.AUTO, "How tasks reach a state server.")
    encryption: Encryption = Encryption()
    read_batch_ratio: float = option(
        "readBatchRatio",
        Number(0, 1),
        DEFAULT_TUNING.read_batch_ratio,
        "The share of the lists on disk that one scan of their index reads ahead.",
    )
    max_space_amplification: float = option(
        "maxSpaceAmplification",
        Number(1.05, 1000),
        DEFAULT_TUNING.max_space_amplification,
        "Bytes on disk, over bytes needed, beyond which a store compacts.",
    )
    spilled: SpillAccess = SpillAccess()
    hints: HintTuning = HintTuning()
    record_folder: str | None = option(
        RECORD_ACCESSES,
        ExecutorFolder(", in which state servers record their accesses", absolute=True),
        None,
        "Where state servers record every access to state, for `tailrace gadget`; they do not unless given.",
    )

    @property
    def keeps_copies(self) -> bool:
        """Whether executors keep copies of a remote state location's objects."""
        return self.local_location != ""


LOCATIONS = (
    Option(CHECKPOINT_LOCATION, Location(), None, "Where Spark keeps the query's offsets and commits.", fixed=True),
    Option(
        STATE_LOCATION,
        Location(),
        None,
        "Where state is kept; in the folder `tailrace` of a local checkpoint location unless given.",
        fixed=True,
    ),
)
OPTIONS = (*LOCATIONS, *(declaration for declaration, _ in declared(Options())))
"""Every option of ``writeStream`` that is Tailrace's own, in the order in which the reference page has them."""

_NAMES = tuple(declaration.name for declaration in OPTIONS)
_BY_LOWER = {name.lower(): name for name in _NAMES}


def split_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Ours (by their proper spelling), and the rest, which is the sink's.

    >>> split_options({"SHARDS": "8", "compression": "zstd"})
    ({'shards': '8'}, {'compression': 'zstd'})
    """
    ours: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in given.items():
        proper = _BY_LOWER.get(name.lower())
        if proper is not None:
            ours[proper] = value
            continue
        if name.lower().startswith(_SPARK_ONLY):
            raise AnalysisError(f"option {name!r} belongs to Spark's own engine and has no effect here: remove it")
        near = closest(name, _NAMES, _TYPO_CUTOFF)
        if near is not None:
            raise AnalysisError(
                f"there is no option {name!r}; did you mean {near!r}? Tailrace's are: {', '.join(_NAMES)}"
            )
        rest[name] = value
    return ours, rest


def parse_options(ours: Mapping[str, str]) -> Options:
    """Values checked. ``ours`` has proper names, as :func:`split_options` gives them; locations are left alone.

    >>> parse_options({"memory": "512MB", "route": "shuffle"}).memory_bytes
    536870912
    """
    options = parsed(Options(), ours)
    options.encryption.check()
    return options


def changed_options(options: Options) -> list[tuple[Option, str]]:
    """The options that have not their default, with their values as a user would write them.

    >>> [(option.name, value) for option, value in changed_options(parse_options({"memory": "2GB"}))]
    [('memory', '2GB')]
    """
    return [(each, each.values.show(value)) for each, value in declared(options) if value != each.default]


def parse_locations(ours: Mapping[str, str]) -> tuple[str, str]:
    """Where Spark's checkpoint and our state lie. State of a local checkpoint lies in a folder of it by default.

    >>> parse_locations({"checkpointLocation": "/data/q1"})
    ('/data/q1', '/data/q1/tailrace')
    """
    checkpoint = ours.get(CHECKPOINT_LOCATION, "").strip()
    if not checkpoint:
        raise AnalysisError(
            f"a query needs a {CHECKPOINT_LOCATION}, a folder of its own that outlives it: "
            f'.option("{CHECKPOINT_LOCATION}", "/path/of/this/query")'
        )
    if STATE_LOCATION in ours:
        state = ours[STATE_LOCATION].strip()
        if not state:
            raise AnalysisError(
                f'option "{STATE_LOCATION}" is empty: give a path or the URI of an object store, or remove it'
            )
        return checkpoint, state
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", checkpoint)
    if scheme is not None and scheme.group(1).lower() != "file":
        raise AnalysisError(
            f"{CHECKPOINT_LOCATION} is {checkpoint!r}, which is not a local path, so Tailrace cannot tell where to "
            f"keep its state: "
            f'add .option("{STATE_LOCATION}", ...), a local path or s3://, gs:// or az:// URI of this query alone'
        )
    return checkpoint, default_state_location(checkpoint)


def default_state_location(checkpoint: str) -> str:
    """Where the state of a local checkpoint lies unless the user says otherwise."""
    return checkpoint.rstrip("/") + "/tailrace"
