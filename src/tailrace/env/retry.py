"""Doing again what may succeed later, with pauses that grow, until a stated time has passed. Safe from any thread.

What takes long is logged, once: an address with a mistake in it looks like a store that is down.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

from tailrace.env import clock

FIRST_PAUSE_S, PAUSE_S_MAX = 0.05, 2.0
LOG_AFTER_S = 5.0
_log = logging.getLogger("tailrace")
_Answer = TypeVar("_Answer")


def keep_trying(
    work: Callable[[], _Answer],
    may_pass: Callable[[Exception], bool],
    explained: Callable[[Exception, str], Exception],
    retry_s: float,
) -> _Answer:
    """The first answer. ``explained(error, tried)`` is what is raised; ``tried`` is empty where trying is no use."""
    began = clock.monotonic()
    sent, logged = 0, False
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
            if spent > LOG_AFTER_S and not logged:
                logged = True
                said = str(error).strip().split("\n", 1)[0]
                _log.warning(
                    "no success after %d requests, trying on until %.0f s have passed: %s", sent, retry_s, said
                )
        pause = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2 ** min(sent - 1, 10)) * random.uniform(0.5, 1.0)
        clock.sleep(min(pause, max(0.0, retry_s - spent)))
