"""How long a call of a user's function may take in this process.

Python cannot end a thread. So a call with a limit runs in a thread of its own, and who waits for it in vain goes on
without it: the epoch fails, the driver ends the query, and with it this process. A call that never lets go of the
interpreter, so that nobody could wait for anything, ends the process by itself a little later.

Threads: the limit is set once, before any call. Calls may come from any thread, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.env import processes

GRACE_S = 5.0
"""So much later the process ends, where the interpreter is stuck."""

_limit_s: float | None = None


class NotReturned(Exception):
    """A call took longer than it may."""


def set_limit(seconds: float | None) -> None:
    """None: no limit, as where a function runs in the user's own process."""
    global _limit_s
    _limit_s = seconds


def within_limit(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """What the function returns, or what it raises, or ``NotReturned``."""
    if _limit_s is None:
        return function(*arguments)
    returned: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(function(*arguments))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="user-function", daemon=True)
    with processes.ended_after(_limit_s + GRACE_S):
        thread.start()
        thread.join(_limit_s)
    if raised:
        raise raised[0]
    if not returned:
        raise NotReturned(f"did not return within {_limit_s:g} s (option functionTimeout)")
    return returned[0]
