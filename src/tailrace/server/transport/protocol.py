"""What travels between tasks, driver and state servers. Plain data as JSON; rows and emissions travel as Arrow.

No message is pickled: a server runs no code that a peer sends it. A user's function, if there is one, comes with its
configuration, by the standard input, from the process that started it and from nobody else. Nothing here imports
Flight, so that a task can start a server without opening gRPC first. Every request carries the run; what belongs to an
epoch carries the epoch and the try as well, because the server fences by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from tailrace.commit.manifest import Compaction
from tailrace.commit.objects import ObjectRef
from tailrace.ids import MIN_MICROS, NO_EPOCH

TOKEN_HEADER = "x-tailrace-token"
"""Header of every call. gRPC wants it in lower case."""

ERROR_PREFIX = b"tailrace:"
"""Begins the extra bytes of a Flight error that a server sent on purpose; the name of the error's type follows."""

UNIX = "unix"
UNIX_SCHEME = "grpc+unix://"
TCP = "tcp"

_Message = TypeVar("_Message")
_CHECKSUM_MASK = 2**64 - 1


def encode(message: Any) -> bytes:
    """A flat message as JSON; those that hold others have a ``to_json`` of their own."""
    return _dump(asdict(message))


def decode(kind: type[_Message], data: bytes | str) -> _Message:
    return kind(**json.loads(data))


def chain_checksum(before: int, checksum: int) -> int:
    """The checksum of a stream of frames: depends on each frame's own and on their order."""
    return (before * 0x100000001B3 + checksum + 1) & _CHECKSUM_MASK


@dataclass(frozen=True)
class StageKey:
    """Where staged frames belong. ``attempt`` is Spark's task attempt id, unique over all stages of an application."""

    run: str
    operator: str
    epoch: int
    try_: int
    attempt: int
    partition: int


@dataclass(frozen=True)
class StageReceipt:
    """What one attempt has staged on one server. The task hands it to the driver, which names it to the server."""

    frames: int
    rows: int
    bytes: int
    checksum: int

    def after(self, rows: int, nbytes: int, checksum: int) -> StageReceipt:
        """This receipt with one more frame."""
        return StageReceipt(
            self.frames + 1, self.rows + rows, self.bytes + nbytes, chain_checksum(self.checksum, checksum)
        )


NOTHING_STAGED = StageReceipt(0, 0, 0, 0)


class CommittedAttempt(NamedTuple):
    """A winning attempt as the driver names it to one server, with what it staged *there*."""

    partition: int
    attempt: int
    rows: int
    checksum: int


@dataclass(frozen=True)
class Applied:
    rows: int
    updated: int  # state records touched
    spilled_bytes: int  # of the rows, how much had gone to disk
    apply_ms: float


@dataclass(frozen=True)
class OutputInfo:
    """What an epoch emits: read it by ``StateClient.emission`` any number of times until the next epoch's advance."""

    epoch: int
    try_: int
    batches: int
    rows: int
    bytes: int
    advance_ms: float


@dataclass(frozen=True)
class Exchanged:
    """What one server has staged for the next operator of a chain. ``staged`` is by server, as the placement has it."""

    number: int  # of the sender in the placement: its partition and its attempt
    rows: int
    late_rows: int
    staged: tuple[StageReceipt, ...]

    def to_json(self) -> bytes:
        return _dump(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Exchanged:
        raw = json.loads(data)
        raw["staged"] = tuple(StageReceipt(**each) for each in raw["staged"])
        return cls(**raw)


Span = tuple[str, float, float]
"""A step of a commit, and when it began and ended, by the wall clock of its machine, in seconds."""


Slack = Mapping[str, tuple[tuple[float, float], ...]]
"""By point on the way to an operator: milliseconds, and how many rows had so many."""


@dataclass(frozen=True)
class CommitResult:
    """``delta`` is None where no record was touched. ``horizons``, by operator, go into the manifest with it.

    ``uploaded``: the delta is in the state store, else only on the server's disk. ``spans``: see ``Span``.
    """

    delta: ObjectRef | None
    compactions: tuple[Compaction, ...]
    horizons: Mapping[str, int]
    commit_ms: float
    uploaded: bool = True
    spans: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "delta": self.delta.to_json() if self.delta is not None else None,
            "compactions": [compact.to_json() for compact in self.compactions],
            "horizons": dict(self.horizons),
            "commit_ms": self.commit_ms,
            "uploaded": self.uploaded,
            "spans": self.spans,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CommitResult:
        return cls(
            delta=ObjectRef.from_json(raw["delta"]) if raw["delta"] is not None else None,
            compactions=tuple(Compaction.from_json(compact) for compact in raw["compactions"]),
            horizons=raw["horizons"],
            commit_ms=raw["commit_ms"],
            uploaded=raw["uploaded"],
            spans=tuple((name, began, ended) for name, began, ended in raw["spans"]),
        )


@dataclass(frozen=True)
class Uploaded:
    """Which of the deltas asked for are in the state store now."""

    names: tuple[str, ...]
    span: Span

    @classmethod
    def from_json(cls, data: bytes) -> Uploaded:
        raw = json.loads(data)
        name, began, ended = raw["span"]
        return cls(tuple(raw["names"]), (name, began, ended))


@dataclass(frozen=True)
class OperatorStatus:
    """One operator of a server. What was done is of its newest epoch, and ``metrics`` since it was made."""

    name: str
    rows: int  # state records
    state_bytes: int  # in memory
    state_disk_bytes: int  # and beyond it
    input_rows: int
    updated: int  # state records touched
    spilled_bytes: int  # of the input rows, how much had gone to disk
    output_rows: int
    apply_ms: float
    advance_ms: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    wants_hints: bool = False  # some state is cold, and slow to read


@dataclass(frozen=True)
class ServerStatus:
    """What is said of the state, and of steps, is of all operators together."""

    server: str
    run: str
    pid: int
    epoch: int  # the newest applied one
    shards: int
    rows: int  # state records
    state_bytes: int  # in memory
    state_disk_bytes: int  # and beyond it
    staged_bytes: int  # in memory and spilled
    spilled_bytes: int  # on disk
    output_bytes: int
    memory_bytes_max: int
    staging_bytes_max: int
    apply_ms: float  # of the newest epoch
    advance_ms: float
    commit_ms: float
    warm_up_ms: float
    busy: bool = False  # a step is under way; the numbers of the state are those from before it
    operators: tuple[OperatorStatus, ...] = ()

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ServerStatus:
        return cls(**{**raw, "operators": tuple(OperatorStatus(**each) for each in raw["operators"])})


@dataclass(frozen=True)
class ServerAddress:
    """One server as the driver and the tasks know it."""

    server: str
    uri: str
    host: str
    pid: int
    executor_pid: int
    log_path: str
    started: str = ""  # the start of the process ``pid``: only both together name it


@dataclass(frozen=True)
class Access:
    """What opens a run's servers. ``tls_roots`` is PEM text, needed only for certificates of a private authority."""

    run: str
    token: str = field(repr=False)
    tls_roots: str | None = field(default=None, repr=False)
    timeout_s: float = 600.0  # of one step of an epoch
    transfer_timeout_s: float = 3600.0  # of what lasts as long as its rows: staging streams, emissions, loading shards


@dataclass(frozen=True)
class ServerConfig:
    """What every server of a run has in common. Goes to tasks in their closure and to the server by its stdin."""

    run: str
    token: str = field(repr=False)
    operators: tuple[str, ...] = field(repr=False)  # their descriptions as JSON, with what a table's connection needs
    store_uri: str
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    proof: tuple[str, str] | None = None  # an object, and a text in it: who reads it has the driver's store before it
    transport: str = UNIX
    memory_bytes: int = 1 << 30
    read_batch_ratio: float = 0.02
    max_space_amplification: float = 1.5
    cache_policy: str = "timestamp"
    prefetch: str = "on"
    reader: str = "mapped"
    cold_read_s: float = 0.0  # that a read takes beside what it takes anyway
    cold_read_depth: int = 32
    tls_cert_path: str | None = None  # on the executors
    tls_key_path: str | None = None
    tls_roots: str | None = field(default=None, repr=False)
    copies: bool = True  # of a far store's objects are kept on the executors' machines
    copies_location: str | None = None  # there; the user's temporary folder by default
    scratch: str | None = None  # a folder for spilled rows; the server's own by default
    bind_host: str | None = None  # the executor's advertised host by default
    start_timeout_s: float = 60.0
    open_timeout_s: float = 300.0  # a server that no driver opens within this ends itself
    function_timeout_s: float = 600.0  # of one call of a user's function
    record_folder: str | None = None  # on the executors, for records of the accesses to state; None: there are none

    @property
    def access(self) -> Access:
        return Access(self.run, self.token, self.tls_roots)


@dataclass(frozen=True)
class ProcessConfig:
    """The one line of JSON that a server process reads."""

    server: str
    directory: str
    host: str
    executor_pid: int
    executor_started: str
    common: ServerConfig

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ProcessConfig:
        raw = json.loads(text)
        common = raw.pop("common")
        common["operators"] = tuple(common["operators"])
        common["proof"] = common["proof"] and tuple(common["proof"])
        return cls(common=ServerConfig(**common), **raw)


@dataclass(frozen=True)
class Request:
    """One action of the driver. Fields that an action does not use keep their defaults.

    ``winners`` is None where an earlier ``prepare`` has named them. ``operator`` is empty for the only one.
    """

    run: str
    epoch: int = NO_EPOCH
    try_: int = 0
    operator: str = ""
    committed_attempts: tuple[CommittedAttempt, ...] | None = None
    late_before: int = 0
    watermark: int = 0
    now: int = 0  # when the epoch began
    forget_before: int = MIN_MICROS  # what was last updated at or before is forgotten
    commit: bool = False
    upload: bool = False  # of a commit: the delta, too, and not only saved
    keep: bool = False  # of a shutdown: the copies of objects on this machine
    inline_bytes: int = 0
    shards: tuple[int, ...] = ()
    refs: tuple[ObjectRef, ...] = ()
    horizons: Mapping[str, int] = field(default_factory=dict)
    target: str = ""  # the operator that a relay stages for
    number: int = 0  # of the asked server in the placement
    routes: tuple[tuple[ServerAddress, int, int], ...] = ()  # every server with its half-open range of shards

    def to_json(self) -> bytes:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["refs"] = [ref.to_json() for ref in self.refs]
        given["routes"] = [(asdict(address), low, high) for address, low, high in self.routes]
        return _dump(given)

    @classmethod
    def from_json(cls, data: bytes) -> Request:
        raw = json.loads(data)
        if raw["committed_attempts"] is not None:
            raw["committed_attempts"] = tuple(
                CommittedAttempt(*committed_attempt) for committed_attempt in raw["committed_attempts"]
            )
        raw["shards"] = tuple(raw["shards"])
        raw["refs"] = tuple(ObjectRef.from_json(ref) for ref in raw["refs"])
        raw["routes"] = tuple((ServerAddress(**address), low, high) for address, low, high in raw["routes"])
        return cls(**raw)


@dataclass(frozen=True)
class OutputTicket:
    """One of ``parts`` parts of an emission, which may still be to come."""

    run: str
    operator: str
    epoch: int
    try_: int
    part: int
    parts: int


@dataclass(frozen=True)
class EpochResult:
    """Answer of ``run_epoch``. ``inline``: the whole emission follows in the same answer.

    ``slack``: by point on the way to the operator, as (milliseconds, rows): how long before it began rows had passed.
    """

    applied: Applied
    output: OutputInfo
    committed: CommitResult | None
    status: ServerStatus
    inline: bool
    slack: Slack = field(default_factory=dict)
    hints: int = 0  # that came for this epoch's rows
    hint_bytes: int = 0

    def to_json(self) -> bytes:
        committed = self.committed.to_json() if self.committed is not None else None
        return _dump(
            {
                "applied": asdict(self.applied),
                "output": asdict(self.output),
                "committed": committed,
                "status": asdict(self.status),
                "inline": self.inline,
                "slack": self.slack,
                "hints": self.hints,
                "hint_bytes": self.hint_bytes,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> EpochResult:
        raw = json.loads(data)
        return cls(
            applied=Applied(**raw["applied"]),
            output=OutputInfo(**raw["output"]),
            committed=CommitResult.from_json(raw["committed"]) if raw["committed"] is not None else None,
            status=ServerStatus.from_json(raw["status"]),
            inline=raw["inline"],
            slack={point: tuple((ms, rows) for ms, rows in seen) for point, seen in raw["slack"].items()},
            hints=raw["hints"],
            hint_bytes=raw["hint_bytes"],
        )


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
