"""The eleven workloads: names, operators and what they need. Parameters are those of the paper unless given.

Those with one input have a variant over the whole stream: all events have one key then (`NON_KEYED`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.gadget.operators.continuous import Aggregation, ContinuousJoin, IntervalJoin
from tailrace.lab.gadget.operators.sessions import Sessions
from tailrace.lab.gadget.operators.windows import Windows

SECOND = 1_000_000


class UnknownWorkloadError(TailraceError):
    """No workload has this name."""


@dataclass(frozen=True)
class Parameters:
    """Of operators, in microseconds."""

    window: int = 5 * SECOND
    slide: int = SECOND
    gap: int = 120 * SECOND
    lower: int = -120 * SECOND
    upper: int = 180 * SECOND
    lateness: int = 0
    bucket: int = 1_000
    """Events of a key within one bucket share an entry of an interval join's buffer: Flink counts milliseconds."""


Operator = Callable[[Parameters], Any]


@dataclass(frozen=True)
class Workload:
    name: str
    paper_name: str
    """What the paper's tables call it."""
    artifact_name: str
    """What the paper's own configurations call it (``operator.type``)."""
    inputs: int
    """Streams that the operator reads."""
    pattern: str
    """What a store sees most."""
    operator: Operator
    keyed: bool = True
    """Otherwise the operator is over the whole stream, whatever keys its events have."""


_UPDATE, _APPEND = "read-modify-write", "append"


def _tumbling(holistic: bool) -> Operator:
    return lambda p: Windows(p.window, p.window, holistic, p.lateness)


def _sliding(holistic: bool) -> Operator:
    return lambda p: Windows(p.window, p.slide, holistic, p.lateness)


def _session(holistic: bool) -> Operator:
    return lambda p: Sessions(p.gap, holistic, p.lateness)


def _interval_join(p: Parameters) -> IntervalJoin:
    return IntervalJoin(p.lower, p.upper, p.bucket)


_VALUES, _LISTS = False, True
"""What an operator keeps for a key: a value that is updated, or a list that is added to (holistic)."""
_ALL = (
    Workload("tumbling-incremental", "Tumbling-Incr", "tumbling.keyed.incremental", 1, _UPDATE, _tumbling(_VALUES)),
    Workload("sliding-incremental", "Sliding-Incr", "sliding.keyed.incremental", 1, _UPDATE, _sliding(_VALUES)),
    Workload("session-incremental", "Session-Incr", "session.incremental", 1, _UPDATE, _session(_VALUES)),
    Workload("tumbling-holistic", "Tumbling-Hol", "tumbling.keyed.holistic", 1, _APPEND, _tumbling(_LISTS)),
    Workload("sliding-holistic", "Sliding-Hol", "sliding.keyed.holistic", 1, _APPEND, _sliding(_LISTS)),
    Workload("session-holistic", "Session-Hol", "session.holistic", 1, _APPEND, _session(_LISTS)),
    Workload("tumbling-join", "Tumbling-Join", "join.tumbling", 2, _APPEND, _tumbling(_LISTS)),
    Workload("sliding-join", "Sliding-Join", "join.sliding", 2, _APPEND, _sliding(_LISTS)),
    Workload("interval-join", "Join-Interval", "join.interval", 2, _UPDATE, _interval_join),
    Workload("continuous-join", "Join-Cont", "continuous.join", 2, _UPDATE, lambda p: ContinuousJoin()),
    Workload("aggregation", "Aggregation", "continuous.aggregation", 1, _UPDATE, lambda p: Aggregation()),
)

WORKLOADS: dict[str, Workload] = {one.name: one for one in _ALL}
_SUFFIX = "-all"
NON_KEYED: dict[str, Workload] = {
    one.name + _SUFFIX: replace(
        one,
        name=one.name + _SUFFIX,
        paper_name="",
        # The artifact has them for tumbling and sliding windows.
        artifact_name=one.artifact_name.replace(".keyed.", ".all.") if ".keyed." in one.artifact_name else "",
        keyed=False,
    )
    for one in _ALL
    if one.inputs == 1
}


def workload(name: str) -> Workload:
    """By its name here or in the artifact's configurations."""
    for one in (*_ALL, *NON_KEYED.values()):
        if name and name in (one.name, one.artifact_name):
            return one
    raise UnknownWorkloadError(
        f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}, and over the whole stream "
        + ", ".join(NON_KEYED)
    )


def of_one_key(name: str) -> str:
    """The workload that a variant over the whole stream is one of; others are their own."""
    return name.removesuffix(_SUFFIX)
