"""Doing again what may succeed later, with pauses that grow, until a stated time has passed. Safe from any thread."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from tailrace.env import clock

FIRST_PAUSE_S, PAUSE_S_MAX = 0.05, 2.0
_Answer = TypeVar("_Answer")


def keep_trying(
    work: Callable[[], _Answer],
    may_pass: Callable[[Exception], bool],
    explained: Callable[[Exception, str], Exception],
    retry_s: float,
) -> _Answer:
    """The first answer. ``explained(error, tried)`` is what is raised; ``tried`` is empty where trying is no use."""
    began = clock.monotonic()
    sent = 0
    while True:
        sent += 1
        try:
            return work()
        except Exception as error:
            spent = clock.monotonic() - began
            again = may_pass(error)
            if not again or spent >= retry_s:
                tried = f"{sent} requests in {spent:.0f} s had no success" if again else ""
                raised = explained(error, tried)
                raise raised from (None if raised is error else error)
        pause = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2 ** min(sent - 1, 10)) * random.uniform(0.5, 1.0)
        clock.sleep(min(pause, max(0.0, retry_s - spent)))
