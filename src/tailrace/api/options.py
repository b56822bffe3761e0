"""Tailrace's own options of ``writeStream``: their names, defaults and limits.

Names are compared without regard to case, as Spark does. What is not ours goes to the sink's format untouched, except
what looks like a misspelling of ours: silently passed on, it would leave a query with a setting its user did not mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tailrace.api.columns import closest
from tailrace.api.duration import parse_duration
from tailrace.errors import AnalysisError
from tailrace.ids import Micros


class Route(StrEnum):
    """How rows reach the server that owns their key."""

    DIRECT = "direct"  # each task sends to every server
    SHUFFLE = "shuffle"  # through Spark's shuffle, so that each task sends to one server


class Combine(StrEnum):
    """Whether a task merges rows of the same key before it sends them."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class WatermarkRule(StrEnum):
    """By which rule rows are late and windows close. The names are kept in checkpoints."""

    TAILRACE = "tailrace"  # late: all its windows ended before this epoch; closing by this epoch's rows included
    SPARK = "spark"  # as Spark's own aggregation: both by what was seen before this epoch


class Transport(StrEnum):
    """How a task talks to a server."""

    AUTO = "auto"
    UNIX = "unix"
    TCP = "tcp"


class CommitMode(StrEnum):
    """When an epoch is durable."""

    SYNC = "sync"  # before its rows reach the sink
    ASYNC_CHECKPOINT = "async-checkpoint"  # before the next epoch's do; its deltas are written before its own do
    ASYNC = "async"  # before the next epoch's do


class CachePolicy(StrEnum):
    """Which records leave memory first where the budget is used up."""

    TIMESTAMP = "timestamp"  # the longest not used in event time; what hints foretell stays
    LRU = "lru"
    CLOCK = "clock"


class Prefetch(StrEnum):
    """How state on disk, or in a table elsewhere, comes into memory."""

    ON = "on"  # while the batch that needs it still arrives
    OFF = "off"  # when it is needed
    ASYNC_IO = "async-io"  # when it is needed, while rows that need nothing go on


class ReadMode(StrEnum):
    """How state on disk is read."""

    MAPPED = "mapped"  # through the system's page cache
    DIRECT = "direct"  # around it


_NO_TIME = Micros(0)
_MARGIN = Micros(2_000)
_WORTH = Micros(20_000)


@dataclass(frozen=True)
class SpillAccess:
    """How state that is not in memory is brought there. The last two shape reads, for tests and benches."""

    policy: CachePolicy = CachePolicy.TIMESTAMP
    prefetch: Prefetch = Prefetch.ON
    reads: ReadMode = ReadMode.MAPPED
    read_time: Micros = _NO_TIME  # that reading one key takes, beside what it takes anyway
    read_depth: int = 32  # keys read at once


class HintSource(StrEnum):
    """Where hints come from."""

    AUTO = "auto"  # the latest point that is early enough
    STAGING = "staging"  # from nowhere ahead of the servers


@dataclass(frozen=True)
class Sketch:
    """The counters that tell which keys are hot: ``rows`` of ``width`` counters of ``bits``.

    A key is hot while all its counters exceed ``threshold``; after every ``interval`` rows all are halved.
    """

    rows: int = 4
    width: int = 4096
    bits: int = 8
    threshold: int = 32
    interval: int = 65_536


@dataclass(frozen=True)
class HintTuning:
    """How state is asked for ahead of the rows that need it.

    ``waste_max``: the share of it that may go unused. ``worth``: for how long an epoch's rows must wait before points
    upstream are used.
    """

    lookahead: HintSource = HintSource.AUTO
    sketch: Sketch = Sketch()
    margin: Micros = _MARGIN
    waste_max: float = 0.0
    worth: Micros = _WORTH

    @property
    def ahead(self) -> bool:
        return self.lookahead is HintSource.AUTO


CHECKPOINT_LOCATION = "checkpointLocation"
STATE_LOCATION = "stateLocation"
LOCAL_LOCATION = "localLocation"
RECORD_ACCESSES = "recordAccesses"
SHARDS_MAX = 4096
MEMORY_BYTES_MIN = 1 << 20
FUNCTION_TIMEOUT = Micros(600_000_000)
HEARTBEAT_TIMEOUT = Micros(5_000_000)
COMMIT_TIMEOUT = Micros(600_000_000)
_NAMES = (
    CHECKPOINT_LOCATION,
    STATE_LOCATION,
    LOCAL_LOCATION,
    "shards",
    "route",
    "combine",
    "watermark",
    "memory",
    "transport",
    "commit",
    "retain",
    "epochTries",
    "functionTimeout",
    "heartbeatTimeout",
    "commitTimeout",
    "readBatchRatio",
    "maxSpaceAmplification",
    "cachePolicy",
    "prefetch",
    "coldReads",
    "coldReadTime",
    "coldReadDepth",
    "lookahead",
    "hintMargin",
    "hintWaste",
    "hintWorth",
    "sketchRows",
    "sketchWidth",
    "sketchBits",
    "sketchThreshold",
    "sketchInterval",
    RECORD_ACCESSES,
)
_BY_LOWER = {name.lower(): name for name in _NAMES}
_SPARK_ONLY = "asyncprogresstracking"
_TYPO_CUTOFF = 0.75
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MEMORY = re.compile(r"(\d{1,20})\s*([kmgt]?)(?:i?b)?", re.ASCII)
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True)
class Options:
    """How a query runs. Only ``shards`` and ``watermark`` may not change between two runs on one checkpoint.

    >>> Options().shards
    64
    """

    shards: int = 64
    route: Route = Route.DIRECT
    combine: Combine = Combine.AUTO
    watermark: WatermarkRule = WatermarkRule.TAILRACE
    memory_bytes: int = 1 << 30  # of each state server
    transport: Transport = Transport.AUTO
    commit: CommitMode = CommitMode.ASYNC
    retain: int = 2  # durable versions kept
    epoch_tries: int = 3  # of one epoch inside one run
    function_timeout: Micros = FUNCTION_TIMEOUT  # of one call of a function of the user's in a state server
    heartbeat_timeout: Micros = HEARTBEAT_TIMEOUT  # a state server that is silent for so long is given up
    commit_timeout: Micros = COMMIT_TIMEOUT  # an epoch that is not durable after this ends the query
    copies: bool = True  # of a far state location's objects on the executors' machines
    local_location: str | None = None  # where they lie; the temporary folder by default
    read_batch_ratio: float = 0.02  # of the lists on disk, the share that one look at the index reads ahead
    max_space_amplification: float = 1.5  # bytes on disk to bytes needed, beyond which stores compact
    spilled: SpillAccess = SpillAccess()
    hints: HintTuning = HintTuning()
    record_folder: str | None = None  # where state servers record their accesses; None: they do not


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
    default = Options()
    return Options(
        shards=_integer(ours, "shards", default.shards, 1, SHARDS_MAX),
        route=_choice(ours, "route", default.route),
        combine=_choice(ours, "combine", default.combine),
        watermark=_choice(ours, "watermark", default.watermark),
        memory_bytes=_memory(ours, default.memory_bytes),
        transport=_choice(ours, "transport", default.transport),
        commit=_choice(ours, "commit", default.commit),
        retain=_integer(ours, "retain", default.retain, 2, 1000),
        epoch_tries=_integer(ours, "epochTries", default.epoch_tries, 1, 100),
        function_timeout=_span(ours, "functionTimeout", default.function_timeout),
        heartbeat_timeout=_span(ours, "heartbeatTimeout", default.heartbeat_timeout),
        commit_timeout=_span(ours, "commitTimeout", default.commit_timeout),
        copies=ours.get(LOCAL_LOCATION, "").strip().lower() != "off",
        local_location=_local(ours),
        record_folder=_record(ours),
        read_batch_ratio=_number(ours, "readBatchRatio", default.read_batch_ratio, 0, 1),
        max_space_amplification=_number(ours, "maxSpaceAmplification", default.max_space_amplification, 1.05, 1000),
        spilled=SpillAccess(
            policy=_choice(ours, "cachePolicy", default.spilled.policy),
            prefetch=_choice(ours, "prefetch", default.spilled.prefetch),
            reads=_choice(ours, "coldReads", default.spilled.reads),
            read_time=_span(ours, "coldReadTime", default.spilled.read_time),
            read_depth=_integer(ours, "coldReadDepth", default.spilled.read_depth, 1, 1 << 20),
        ),
        hints=HintTuning(
            lookahead=_choice(ours, "lookahead", default.hints.lookahead),
            sketch=_sketch(ours, default.hints.sketch),
            margin=_span(ours, "hintMargin", default.hints.margin),
            waste_max=_number(ours, "hintWaste", default.hints.waste_max, 0, 1),
            worth=_span(ours, "hintWorth", default.hints.worth, zero_ok=True),
        ),
    )


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


def _local(ours: Mapping[str, str]) -> str | None:
    """A path on the machines of the executors, or None for their temporary folder."""
    if LOCAL_LOCATION not in ours:
        return None
    given = ours[LOCAL_LOCATION].strip()
    if given.lower() == "off":
        return None
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", given)
    if not given or scheme is not None:
        raise AnalysisError(
            f"option {LOCAL_LOCATION!r} must be a path on the executors' machines, or 'off' for no copies there, but "
            f"is {ours[LOCAL_LOCATION]!r}"
        )
    return given


def _record(ours: Mapping[str, str]) -> str | None:
    """A folder on the machines of the executors, or None."""
    if RECORD_ACCESSES not in ours:
        return None
    given = ours[RECORD_ACCESSES].strip()
    if not given.startswith("/"):
        raise AnalysisError(
            f"option {RECORD_ACCESSES!r} must be the absolute path of a folder on the executors' machines, in which "
            f"state servers record their accesses, but is {ours[RECORD_ACCESSES]!r}"
        )
    return given


def _sketch(ours: Mapping[str, str], default: Sketch) -> Sketch:
    bits = _integer(ours, "sketchBits", default.bits, 2, 16)
    if bits not in (2, 4, 8, 16):
        raise AnalysisError(f"option 'sketchBits' must be 2, 4, 8 or 16, but is {bits}")
    return Sketch(
        rows=_integer(ours, "sketchRows", default.rows, 1, 16),
        width=_integer(ours, "sketchWidth", default.width, 1, 1 << 24),
        bits=bits,
        # A counter that is full can exceed no threshold.
        threshold=_integer(ours, "sketchThreshold", min(default.threshold, (1 << bits) - 2), 0, (1 << bits) - 2),
        interval=_integer(ours, "sketchInterval", default.interval, 1, 1 << 40),
    )


def _choice(ours: Mapping[str, str], name: str, default: _Choice) -> _Choice:
    if name not in ours:
        return default
    choices = type(default)
    try:
        return choices(ours[name].strip().lower())
    except ValueError:
        raise AnalysisError(
            f"option {name!r} must be one of {', '.join(repr(c.value) for c in choices)}, but is {ours[name]!r}"
        ) from None


def _integer(ours: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    if name not in ours:
        return default
    text = ours[name].strip()
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) or not least <= int(text) <= most:
        raise AnalysisError(f"option {name!r} must be an integer from {least} to {most}, but is {ours[name]!r}")
    return int(text)


def _number(ours: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    if name not in ours:
        return default
    try:
        found = float(ours[name])
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise AnalysisError(f"option {name!r} must be a number from {least:g} to {most:g}, but is {ours[name]!r}")
    return found


def _span(ours: Mapping[str, str], name: str, default: Micros, *, zero_ok: bool = False) -> Micros:
    return parse_duration(ours[name], f"option {name!r}", zero_ok=zero_ok) if name in ours else default


def _memory(ours: Mapping[str, str], default: int) -> int:
    if "memory" not in ours:
        return default
    found = _MEMORY.fullmatch(ours["memory"].strip().lower())
    if found is None:
        raise AnalysisError(f"option 'memory' must be a size such as '512MB' or '4GB', but is {ours['memory']!r}")
    size = int(found.group(1)) * _UNITS[found.group(2)]
    if not MEMORY_BYTES_MIN <= size < 1 << 60:
        raise AnalysisError(
            f"option 'memory' must be at least 1MB, but is {ours['memory']!r}: for example '512MB' or '4GB'"
        )
    return size
