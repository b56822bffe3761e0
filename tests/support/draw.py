"""What a run of the tests draws before any test runs: which of several cases the quick profile takes this time.

One seed for the run, printed at its top. The processes that share a run collect the same tests, since they inherit it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

_Case = TypeVar("_Case")
_VARIABLE = "TAILRACE_TEST_DRAW"

DRAW = os.environ.setdefault(_VARIABLE, str(random.randrange(2**32)))


def drawn(cases: Sequence[_Case], place: str, count: int = 1) -> list[_Case]:
    """So many of the cases, in their order. ``place``: where, so that two places draw independently."""
    chosen = random.Random(f"{DRAW} {place}").sample(range(len(cases)), count)
    return [cases[i] for i in sorted(chosen)]
