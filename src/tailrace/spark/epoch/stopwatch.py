"""Where an epoch's time went: laps of the driver, put together with what tasks and servers tell of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.env import clock
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.spark.commit.commits import Commit
from tailrace.spark.epoch.ingest import Receipt
from tailrace.spark.query.progress import Durations


class Stopwatch:
    """Milliseconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.began = clock.now()
        self._last = clock.monotonic()

    def lap(self, name: str, now: float | None = None) -> float:
        """``now``: when it ended (monotonic), where that is a while ago."""
        now = clock.monotonic() if now is None else max(now, self._last)
        self.laps[name] = (now - self._last) * 1e3
        self._last = now
        return self.laps[name]


def durations_of(
    laps: Mapping[str, float],
    receipts: Sequence[Receipt],
    done: Sequence[EpochResult],
    failed_ms: float,
    last: Commit | None,
) -> Durations:
    """``failed_ms``: what tries took that failed. ``last``: the newest commit that is durable."""
    apply_ms = max(each.status.apply_ms for each in done)
    advance_ms = max(each.status.advance_ms for each in done)
    return Durations(
        plan=laps["plan"],
        ingest=laps["ingest"],
        combine=max((receipt.combine_ms for receipt in receipts), default=0.0),
        transfer=max((receipt.transfer_ms for receipt in receipts), default=0.0),
        apply=apply_ms,
        advance=advance_ms,
        commit=max(0.0, laps["servers"] - apply_ms - advance_ms) + laps["gate"],
        sink=laps["sink"],
        behind=last.behind_ms if last is not None else 0.0,
        retries=failed_ms,
        total=failed_ms + sum(laps.values()),
    )
