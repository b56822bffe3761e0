"""A time-to-live from the API to an operator's spec, and in a user's words."""

from __future__ import annotations

from tailrace.api.duration import format_duration
from tailrace.api.relations import StateTtl
from tailrace.operators.timers.ttl import Clock, Ttl

CLOCK_TEXTS = {Clock.EVENT: "in event time", Clock.PROCESSING: "in processing time"}


def plan_ttl(ttl: StateTtl | None) -> Ttl | None:
    return None if ttl is None else Ttl(ttl.span, clock_of(ttl.processing))


def clock_of(processing: bool) -> Clock:
    return Clock.PROCESSING if processing else Clock.EVENT


def ttl_lines(ttl: Ttl | None) -> list[str]:
    if ttl is None:
        return []
    mark = "the watermark" if ttl.clock is Clock.EVENT else "the time at which an epoch begins"
    span, clock = format_duration(ttl.span), CLOCK_TEXTS[ttl.clock]
    return [f"time-to-live {span} {clock}: a key is forgotten that was last updated {span} before {mark}"]


def ttl_clock_text(ttl: Ttl | None) -> str:
    """The span itself may change from one run to the next: records know when they were updated."""
    return "none" if ttl is None else CLOCK_TEXTS[ttl.clock]
