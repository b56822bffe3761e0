"""Compiled loops of benches: as the engine's own, but not among those that a server compiles before it starts.

Kept on disk in the same folder. Loops own no arrays and do without numba's memory manager: counting references to the
arrays they are given would cost them as much as an access to a store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import config as _config

from tailrace.env.compiled import cache_folder_of, copy_block, prefetch

__all__ = ["copy_block", "inlined", "kernel", "prefetch"]

_numba_config: Any = _config
_njit: Any = numba.njit
_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile on first call, without the interpreter lock."""
    return _compiled(function, force_inline=False)


def inlined(function: _Function) -> _Function:
    """A helper of kernels, folded into its callers."""
    return _compiled(function, force_inline=True)


def _compiled(function: _Function, force_inline: bool) -> _Function:
    before = _numba_config.CACHE_DIR
    _numba_config.CACHE_DIR = str(cache_folder_of(function))
    try:
        made: _Function = _njit(
            function, nogil=True, cache=True, error_model="numpy", forceinline=force_inline, _nrt=False
        )
        return made
    finally:
        _numba_config.CACHE_DIR = before
