"""Compiled loops of benches: as the engine's own, but not among those that a server compiles before it starts.

Kept on disk in the same folder. Loops own no arrays and do without numba's memory manager: counting references to the
arrays they are given would cost them as much as an access to a store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tailrace.env.kernels.compile import compiled, copy_block, inlined, prefetch

__all__ = ["copy_block", "inlined", "kernel", "prefetch"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile on first call, without the interpreter lock."""
    return compiled(function, force_inline=False)
