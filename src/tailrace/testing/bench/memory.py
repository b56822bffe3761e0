"""Memory that stays with a process while something is measured: new pages cost more than what is compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.env import memory as kept_memory

_MOST_BYTES = 2 << 30


@contextmanager
def memory_kept() -> Iterator[None]:
    """Freed memory is not given back meanwhile, but afterwards. Another C library than glibc does as it likes."""
    kept_memory.keep(_MOST_BYTES)
    try:
        yield
    finally:
        kept_memory.keep_no_longer()
