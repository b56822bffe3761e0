"""Compiled code on disk, found by what it was made of and not by where its source lies.

Numba looks for a function's code by the path and the time of its source file, so that no other machine or environment
would find it. Here the place is the digest of the sources (``source_digest``) alone. Code may therefore be compiled
once, be packed with an environment, and be used wherever that is unpacked, by processors of the same kind: numba's own
index names the processor, the versions of numba and Python, and the function's bytecode.

Two places are looked at: the cache, which this process may write to, and the archive, which it never does: ``kernels``
in ``share/tailrace`` of the environment, or ``TAILRACE_KERNEL_ARCHIVE``. What is in neither is compiled into the cache.

Threads: numba calls this under its own lock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core import caching as _caching

from tailrace.env.kernels import source_digest

_numba: Any = _caching  # its base classes have no types


def cache_folder() -> Path:
    chosen = os.environ.get("TAILRACE_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace" / "kernels"


def archive_folder() -> Path:
    chosen = os.environ.get("TAILRACE_KERNEL_ARCHIVE")
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "tailrace" / "kernels"


def cache_folder_of(function: Callable[..., Any]) -> Path:
    """Where its compiled code lies: elsewhere as soon as anything that is inlined into it changes."""
    return cache_folder() / source_digest.digest(function.__module__)


class _Place(_numba._CacheLocator):
    """Of a function of this package: the folder of its digest."""

    def __init__(self, folder: Path, line: int) -> None:
        self._folder, self._line = folder, line

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Place | None:
        if not source_digest.digest(function.__module__):
            return None  # a stranger's, whose code numba finds by its file
        return cls(cache_folder_of(function), function.__code__.co_firstlineno)


class _Code(_numba.CompileResultCacheImpl):
    _locator_classes = (_Place, *_numba.CompileResultCacheImpl._locator_classes)


class CodeCache(_numba.FunctionCache):
    """The compiled code of one function."""

    _impl_class = _Code

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        place = self._impl.locator
        self._archived = None
        if isinstance(place, _Place):
            folder = archive_folder() / place.get_source_stamp()
            self._archived = _numba.IndexDataCacheFile(str(folder), self._impl.filename_base, place.get_source_stamp())

    def load_overload(self, signature: Any, target: Any) -> Any:
        found = super().load_overload(signature, target)
        if found is None and self._archived is not None:
            packed = self._archived.load(self._index_key(signature, target.codegen()))
            found = None if packed is None else self._impl.rebuild(target, packed)
        return found
