"""When the steps of an epoch ran, for the picture in which commits overlap the epochs after them. Pure.

Times are by the driver's wall clock, those of steps in a server by that machine's. An epoch's own steps are reported
with it; those of a commit with the epoch that found it durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.server.transport.epoch_messages import Span


class Step(NamedTuple):
    """``name``: ingest, apply, advance, gate, sink; of a commit seal, local, upload, log; snapshot (a compaction)."""

    epoch: int
    name: str
    began: float  # seconds since 1970
    ended: float


def epoch_steps(epoch: int, began: float, laps: Mapping[str, float], apply_ms: float, advance_ms: float) -> list[Step]:
    """``laps``: milliseconds of what the driver does one after the other, from ``began`` on."""
    steps: list[Step] = []
    at = began
    for name, took_ms in laps.items():
        if name == "servers":  # what is left of it is calls
            steps.append(Step(epoch, "apply", at, at + apply_ms / 1e3))
            steps.append(Step(epoch, "advance", at + apply_ms / 1e3, at + (apply_ms + advance_ms) / 1e3))
        else:
            steps.append(Step(epoch, name, at, at + took_ms / 1e3))
        at += took_ms / 1e3
    return steps


def commit_steps(epoch: int, spans: Iterable[Span]) -> list[Step]:
    return [Step(epoch, name, began, ended) for name, began, ended in spans]
