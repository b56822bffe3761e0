"""Freed memory that a process keeps, and when it gives it back.

Large arrays come and go with every batch. An allocator that asks the system for each of them pays for every page at its
first use: a few microseconds for 4 KiB, in a virtual machine many times that, so that a batch may spend more on getting
memory than on its rows. So processes that work batch by batch keep what they free, up to a limit.

What is kept is no array's: it counts in the process's resident memory, not in the state's budget. glibc gives back by
itself what is free at the end of its heap, beyond the limit; ``Resident`` also what is free in between, once a process
has become larger than it may be. Other C libraries do as they like: all of this then does nothing.

Threads: any may call.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
"""Of glibc's ``mallopt``."""
_MALLOC_VARIABLES = {
    "MALLOC_TRIM_THRESHOLD_": _TRIM_THRESHOLD,
    "MALLOC_TOP_PAD_": _TOP_PAD,
    "MALLOC_MMAP_THRESHOLD_": _MMAP_THRESHOLD,
    "MALLOC_MMAP_MAX_": _MMAP_MAX,
}
"""Without the number of arenas: a warm parent is started with that."""
_MAPPED_MOST, _MAPPED_FROM, _PAD = 65_536, 32 << 20, 128 << 10
"""What glibc itself comes to in a process that frees large arrays."""
_INT_MAX = (1 << 31) - 1

_GROWTH_BYTES = 24 << 20
"""What is free is given back again once a process has grown by so much since the last time."""
_KEPT_LEAST = 64 << 20
"""What a server keeps, however small its budget: batches do not become smaller with that."""
BESIDE_BUDGET_BYTES = 350 << 20
"""What a server takes beyond its budget, at most: stated in docs/explanation/stores.md, which says with what epochs.
About 200 of these are Python, its libraries and the compiled kernels."""
_SPIKE_BYTES = 128 << 20
"""Of these, what is left to the temporary arrays of one step, between two looks at the process's size."""


def server_variables(memory_bytes: int) -> dict[str, str]:
    """For the environment of a process that may hold so much state."""
    kept = kept_bytes(memory_bytes)
    return {
        # One heap: what one thread frees, the next one uses. A second one could hold no more than 64 MB.
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(kept),
        "MALLOC_TOP_PAD_": str(min(kept // 4, 64 << 20)),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def apply_variables(variables: Mapping[str, str]) -> None:
    """What the C library reads of ``server_variables`` when a process starts, for one that was forked."""
    if _mallopt is None:
        return
    for name, parameter in _MALLOC_VARIABLES.items():
        with suppress(KeyError, ValueError):
            _mallopt(parameter, min(int(variables[name]), _INT_MAX))


def kept_bytes(memory_bytes: int) -> int:
    """What such a process keeps of what it frees, at most."""
    return max(memory_bytes // 4, _KEPT_LEAST)


def upkeep(memory_bytes: int) -> Callable[[], None]:
    """What such a process does after each step of an epoch."""
    return Resident(memory_bytes + BESIDE_BUDGET_BYTES - _SPIKE_BYTES).check


def keep(most_bytes: int, *, single_bytes: int | None = None) -> bool:
    """From now on this process keeps about so much of what it frees. Whether the C library can.

    ``single_bytes``: what is larger than this by itself is given back all the same; at most 32 MB. So where a process
    is not ours alone, nothing large stays behind that others have freed.
    """
    if _mallopt is None:
        return False
    most = min(most_bytes, _INT_MAX)
    if single_bytes is None:
        _mallopt(_MMAP_MAX, 0)
    else:
        _mallopt(_MMAP_THRESHOLD, min(single_bytes, _MAPPED_FROM))
    _mallopt(_TRIM_THRESHOLD, most)
    _mallopt(_TOP_PAD, most // 4)
    return True


def keep_no_longer() -> None:
    """As the C library does it; what is free now goes back."""
    if _mallopt is None:
        return
    _mallopt(_MMAP_MAX, _MAPPED_MOST)
    _mallopt(_MMAP_THRESHOLD, _MAPPED_FROM)
    _mallopt(_TRIM_THRESHOLD, 2 * _MAPPED_FROM)
    _mallopt(_TOP_PAD, _PAD)
    give_back()


def give_back() -> None:
    """All free memory, as far as it is whole pages. Others that want memory wait meanwhile."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def resident_bytes() -> int | None:
    """Of this process; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            return int(os.read(descriptor, 200).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        finally:
            os.close(descriptor)
    return None


class Resident:
    """Sees to it that a process does not stay larger than it may be, by what is merely free.

    What is in use cannot be given back, and what is given back is asked for again by the next batch: so it is not
    tried again before the process has grown.

    >>> sizes = iter([90, 150, 120, 121, 140, 130])
    >>> resident = Resident(100, growth_bytes=20, resident=lambda: next(sizes), give_back=lambda: print("given back"))
    >>> resident.check()  # 90
    >>> resident.check()  # 150, and 120 after it: the rest is in use
    given back
    >>> resident.check()  # 121
    >>> resident.check()  # 140
    given back
    """

    def __init__(
        self,
        most_bytes: int,
        growth_bytes: int = _GROWTH_BYTES,
        resident: Callable[[], int | None] = resident_bytes,
        give_back: Callable[[], None] = give_back,
    ) -> None:
        """``most_bytes``: of the process, with all that it is made of."""
        self._resident = resident
        self._give_back = give_back
        self._most = most_bytes
        self._growth = growth_bytes
        self._after = 0  # the process's size when free memory was last given back
        self._lock = threading.Lock()

    def check(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread is at it
        try:
            now = self._resident()
            if now is None:
                return
            self._after = min(self._after, now)
            if now > self._most and now >= self._after + self._growth:
                self._give_back()
                self._after = self._resident() or now
        finally:
            self._lock.release()


def _function(name: str) -> Callable[..., int] | None:
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # a system whose C library is not found so
        return None


_mallopt, _malloc_trim = _function("mallopt"), _function("malloc_trim")
