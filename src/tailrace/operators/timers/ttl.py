"""Time-to-live of state, and the clocks it goes by. Nothing here touches Spark or Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.ids import Micros


class Clock(StrEnum):
    """What time is. The names are kept in checkpoints."""

    EVENT = "event"  # the watermark
    PROCESSING = "processing"  # the time at which an epoch began, as its manifest has recorded it


@dataclass(frozen=True)
class Ttl:
    """A record is forgotten that was not updated for ``span``."""

    span: Micros
    clock: Clock
