"""How long before an operator begins to work on an epoch's rows they had passed each point on their way to it.

A point reports its own passings (``HintMessage``), the service those of staging, as frames arrive. When the operator
begins, the time since each passing is its slack. Only the newest try of the newest epochs counts; what comes later is
of no use any more and is refused.

Threads: any; one lock, held for bookkeeping only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.env.clock import SYSTEM, Clock
from tailrace.ids import NO_EPOCH, Attempt

STAGING_POINT = "staging"
_SAMPLES_MAX = 24
"""What is reported of one point and epoch: as many pairs at most."""

Sample = tuple[float, float]


@dataclass
class _Passings:
    """Of one operator and one try of an epoch: when how many rows passed, by point."""

    at: Attempt
    points: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    hints: int = 0
    hint_bytes: int = 0


class SlackMeter:
    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, _Passings] = {}  # by operator, of the newest try that is known
        self._begun: dict[str, Attempt] = {}  # by operator, the newest that it has begun to work on

    def passed(self, operator: str, at: Attempt, point: str, passings: Sequence[tuple[float, int]]) -> bool:
        """Rows have passed a point, each so many milliseconds ago. Whether that is of an epoch that is still ahead."""
        now = self._clock.monotonic()
        with self._lock:
            found = self._passings(operator, at)
            if found is None:
                return False
            if passings:
                found.points.setdefault(point, []).extend((now - ago_ms / 1e3, rows) for ago_ms, rows in passings)
            return True

    def hinted(self, operator: str, at: Attempt, hints: int, nbytes: int) -> None:
        """What came as hints."""
        with self._lock:
            found = self._passings(operator, at)
            if found is not None:
                found.hints += hints
                found.hint_bytes += nbytes

    def begins(self, operator: str, at: Attempt) -> tuple[dict[str, tuple[Sample, ...]], int, int]:
        """The operator begins. Slack by point, as (milliseconds, rows); and how many hints came, in how many bytes."""
        now = self._clock.monotonic()
        with self._lock:
            if at > self._begun.get(operator, Attempt(NO_EPOCH, 0)):
                self._begun[operator] = at
            found = self._open.get(operator)
            if found is None or found.at != at:
                return {}, 0, 0
            del self._open[operator]
        return (
            {
                point: _thinned([((now - when) * 1e3, rows) for when, rows in seen])
                for point, seen in found.points.items()
            },
            found.hints,
            found.hint_bytes,
        )

    def _passings(self, operator: str, at: Attempt) -> _Passings | None:
        begun = self._begun.get(operator)
        found = self._open.get(operator)
        if (begun is not None and at <= begun) or (found is not None and at < found.at):
            return None
        if found is None or found.at < at:
            found = self._open[operator] = _Passings(at)
        return found


def _thinned(samples: list[tuple[float, int]]) -> tuple[Sample, ...]:
    """Neighbours put together until there are few: the least of each part stands for it, so that none gains slack.

    The first part is a hundredth of the rows at most: by it candidates are judged.
    """
    samples.sort()
    if len(samples) <= _SAMPLES_MAX:
        return tuple(samples)
    total = sum(rows for _, rows in samples)
    parts: list[Sample] = []
    least, held, limit = samples[0][0], 0, total / 100
    for slack_ms, rows in samples:
        if held and held + rows > limit:
            parts.append((least, held))
            least, held, limit = slack_ms, 0, total / (_SAMPLES_MAX - 4)
        held += rows
    return (*parts, (least, held))
