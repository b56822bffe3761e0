"""Counts the calls that a piece of work makes, of Python functions and of C functions, by their names."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable


def calls(work: Callable[[], object]) -> Counter[str]:
    counted: Counter[str] = Counter()

    def count(frame: object, event: str, argument: object) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1  # type: ignore[attr-defined]
        elif event == "c_call":
            counted[getattr(argument, "__qualname__", "c function")] += 1

    gc.disable()  # others hang callbacks on the collector
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted
