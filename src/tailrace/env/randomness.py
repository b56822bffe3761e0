"""Names that nobody else has, and secrets that nobody guesses. Safe from any thread.

``use`` puts names of a seed in their place; for tests that run nothing else meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from tailrace.env.replaceable import Replaceable
from tailrace.ids import RunId

_hex = Replaceable[Callable[[int], str]](secrets.token_hex)  # so many random bytes, as hex digits
use = _hex.use


def new_run_id() -> RunId:
    """16 hex digits.

    Runs of one state location are distinguished by this alone, so it comes from the system's generator.
    """
    return RunId(_hex.current(8))


def short_id() -> str:
    """8 hex digits, to distinguish objects that one run may write twice under the same numbers."""
    return _hex.current(4)


def new_uuid() -> str:
    """A random one, as Spark names queries."""
    digits = _hex.current(16)
    digits = f"{digits[:12]}4{digits[13:16]}{'89ab'[int(digits[16], 16) % 4]}{digits[17:]}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def fraction() -> float:
    """Between 0 and 1: to spread over time what many would do at the same moment."""
    return int(_hex.current(4), 16) / (1 << 32)


def new_token() -> str:
    """A per-query secret, for requests to state servers."""
    return secrets.token_urlsafe(32)
