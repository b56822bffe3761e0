"""The driver's requests for the steps of an epoch and its commit, and what a server answers.

Every request carries the run; what belongs to an epoch carries the epoch and the try as well, because the server fences
by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import pyarrow as pa

from tailrace.commit.manifest import Compaction, Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.ids import MIN_MICROS, NO_EPOCH
from tailrace.log.typed_json import parsed, typed
from tailrace.server.transport.server_config import ServerAddress
from tailrace.server.transport.server_status import ServerStatus
from tailrace.server.transport.stage_messages import CommittedAttempt
from tailrace.server.transport.wire import dump

Span = tuple[str, float, float]
"""A step of a commit, and when it began and ended, by the wall clock of its machine, in seconds."""


Slack = Mapping[str, tuple[tuple[float, float], ...]]
"""By point on the way to an operator: milliseconds, and how many rows had so many."""


@dataclass(frozen=True)
class Request:
    """One action of the driver. Fields that an action does not use keep their defaults.

    ``committed_attempts`` is None where an earlier ``prepare`` has named them. ``operator`` is empty for the only one.
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
    moving: bool = False  # of an opening: what is staged for the epoch that begins is kept
    manifest: Manifest | None = None  # the durable one to open shards of, or to compact
    deltas: tuple[str, ...] = ()  # names of objects to upload
    target: str = ""  # the operator that an exchange stages for
    number: int = 0  # of the asked server in the placement
    routes: tuple[tuple[ServerAddress, int, int], ...] = ()  # every server with its half-open range of shards

    @property
    def durable(self) -> Manifest:
        """The manifest of an action that has one."""
        assert self.manifest is not None
        return self.manifest

    def to_json(self) -> bytes:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["manifest"] = None if self.manifest is None else self.manifest.to_json()
        given["routes"] = [(asdict(address), low, high) for address, low, high in self.routes]
        return dump(given)

    @classmethod
    def from_json(cls, data: bytes) -> Request:
        raw = parsed(data)
        manifest = raw.pop("manifest", None) if isinstance(raw, dict) else None
        return replace(typed(cls, raw), manifest=None if manifest is None else Manifest.from_json(manifest))


@dataclass(frozen=True)
class Applied:
    rows: int
    updated: int  # state records touched
    spilled_bytes: int  # of the rows, how much had gone to disk
    apply_ms: float


@dataclass(frozen=True)
class OutputInfo:
    """What an epoch puts out: read it by ``StateClient.output`` any number of times until the next epoch's advance."""

    epoch: int
    try_: int
    batches: int
    rows: int
    bytes: int
    advance_ms: float


@dataclass(frozen=True)
class OutputTicket:
    """One of ``parts`` parts of an output, which may still be to come."""

    run: str
    operator: str
    epoch: int
    try_: int
    part: int
    parts: int


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
class EpochResult:
    """Answer of ``run_epoch``. ``batches`` is None where the output is too large to come along: ``output`` reads it.

    ``status``: after the steps, before the commit. ``slack``: by point on the way to the operator, as (milliseconds,
    rows): how long before the operator began its rows had passed the point.
    """

    applied: Applied
    output: OutputInfo
    committed: CommitResult | None
    status: ServerStatus
    batches: Sequence[pa.RecordBatch] | None
    slack: Slack = field(default_factory=dict)
    hints: int = 0  # that came for this epoch's rows
    hint_bytes: int = 0

    def to_parts(self) -> list[bytes | pa.Buffer]:
        """The answer without its batches, and those as an Arrow stream, where there are any."""
        committed = self.committed.to_json() if self.committed is not None else None
        head = dump(
            {
                "applied": asdict(self.applied),
                "output": asdict(self.output),
                "committed": committed,
                "status": asdict(self.status),
                "inline": self.batches is not None,
                "slack": self.slack,
                "hints": self.hints,
                "hint_bytes": self.hint_bytes,
            }
        )
        if not self.batches:
            return [head]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batches[0].schema) as stream:
            for batch in self.batches:
                stream.write_batch(batch)
        return [head, sink.getvalue()]

    @classmethod
    def from_parts(cls, parts: Sequence[bytes]) -> EpochResult:
        raw = json.loads(parts[0])
        inline = list(pa.ipc.open_stream(parts[1])) if len(parts) > 1 else []
        return cls(
            applied=Applied(**raw["applied"]),
            output=OutputInfo(**raw["output"]),
            committed=CommitResult.from_json(raw["committed"]) if raw["committed"] is not None else None,
            status=ServerStatus.from_json(raw["status"]),
            batches=inline if raw["inline"] else None,
            slack={point: tuple((ms, rows) for ms, rows in seen) for point, seen in raw["slack"].items()},
            hints=raw["hints"],
            hint_bytes=raw["hint_bytes"],
        )
