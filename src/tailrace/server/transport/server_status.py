"""What a server reports about itself, for progress and for whoever asks whether it still works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    wants_hints: bool = False  # some state is spilled, and slow to read


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
