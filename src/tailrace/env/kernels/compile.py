"""``kernel``: compile a free function over arrays once per machine, and let it run without the interpreter lock.

Compiled code is cached on disk, outside the package since an installation may be read-only. The folder is
``TAILRACE_KERNEL_CACHE`` or ``tailrace/kernels`` in the user's cache folder; in it, a folder for each digest of what
a kernel is made of (`code_cache`), held while this process lives; those that nobody uses any more are removed
(`cache_folders`). All of it may be removed at any time. Only our own functions are sent there: a user's numba code in
the same process keeps its settings.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.core import config as _config
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from tailrace.env.kernels import cache_folders as kernel_folders
from tailrace.env.kernels.code_cache import CodeCache, cache_folder, cache_folder_of

_numba_config: Any = _config
_njit: Any = numba.njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def remove_unused_code() -> None:
    """Compiled code that nobody has used for long. To be called once all modules with kernels are imported."""
    kernel_folders.remove_unused(cache_folder())


KERNELS: list[Any] = []
"""Every kernel of the process. Each should know one signature only: a second one means a second compilation."""


def remember_compiled() -> None:
    """Of modules all of whose kernels were compiled, or loaded, by this process."""
    machine = _machine()
    for folder, kernels in _by_folder().items():
        if not kernel_folders.is_whole(folder, machine) and all(each.signatures for each in kernels):
            kernel_folders.mark_whole(folder, machine)


def are_compiled() -> bool:
    """Whether every kernel of this process is in the cache, so that it can be loaded and no compiler is needed.

    Where somebody has removed single files it is compiled nevertheless.
    """
    machine = _machine()
    return all(kernel_folders.is_whole(folder, machine) for folder in _by_folder())


def _by_folder() -> dict[Path, list[Any]]:
    kernels: dict[Path, list[Any]] = defaultdict(list)
    for each in KERNELS:
        kernels[cache_folder_of(each.py_func)].append(each)
    return kernels


def _machine() -> str:
    """What numba compares before it loads compiled code: compilers, Python and the processor."""
    compilers = f"{numba.__version__} {llvmlite.__version__} {sys.implementation.cache_tag}"
    processor = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    return hashlib.sha256(f"{compilers} {processor}".encode()).hexdigest()[:16]


def kernel(function: _Function) -> _Function:
    """Compile on first call, cached on disk, without the interpreter lock."""
    made = compiled(function, force_inline=False)
    KERNELS.append(made)
    return made


def inlined(function: _Function) -> _Function:
    """A helper of kernels, inlined into its callers: a call would pass every field of every array."""
    return compiled(function, force_inline=True)


def compiled(function: _Function, force_inline: bool) -> _Function:
    """As ``kernel``, but not among those that a server compiles before it starts."""
    folder = cache_folder_of(function)
    kernel_folders.hold(folder)
    before = _numba_config.CACHE_DIR
    _numba_config.CACHE_DIR = str(folder)
    try:
        # Without numba's memory manager: kernels own no arrays, and counting references to those they are given costs
        # more than the work on a row.
        made: _Function = _njit(function, nogil=True, error_model="numpy", forceinline=force_inline, _nrt=False)
        made._cache = CodeCache(function)  # type: ignore[attr-defined]
        return made
    finally:
        _numba_config.CACHE_DIR = before


@intrinsic
def prefetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Ask the processor to fetch item ``at`` of a contiguous array, counted over all its dimensions. Never faults."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = ir.IntType(32)
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = builder.module.globals.get("llvm.prefetch.p0") or ir.Function(
            builder.module, kind, "llvm.prefetch.p0"
        )
        builder.call(function, [pointer, word(0), word(3), word(1)])  # for reading, into every cache, data
        return context.get_dummy_value()

    return types.void(array, types.int64), code


@intrinsic
def copy_block(typing_context: Any, source: Any, at: Any, target: Any, to: Any, size: Any) -> Any:
    """``target[to : to + size] = source[at : at + size]`` of contiguous byte arrays, whose parts must not overlap.

    One move: a loop over bytes stays one, since the compiler cannot know that the arrays are apart. Nothing is checked.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(array: int, offset: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.gep(data, [arguments[offset]])

        cgutils.raw_memcpy(builder, place(2, 3), place(0, 1), arguments[4], 1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), code


@intrinsic
def copy_from(typing_context: Any, address: Any, target: Any, to: Any, size: Any) -> Any:
    """As ``copy_block``, from an address in memory."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[1])(context, builder, arguments[1]).data
        source = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        cgutils.raw_memcpy(builder, builder.gep(data, [arguments[2]]), source, arguments[3], 1)
        return context.get_dummy_value()

    return types.void(types.int64, target, types.int64, types.int64), code


@intrinsic
def uint32_at(typing_context: Any, address: Any) -> Any:
    """The number at an address in memory, wherever it begins."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()), align=1)

    return types.uint32(types.int64), code


def _array_at(kind: Any) -> Any:
    @intrinsic
    def array_at(typing_context: Any, address: Any, length: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.return_type)(context, builder)
            size = context.get_constant(types.intp, kind.bitwidth // 8)
            data = builder.inttoptr(arguments[0], array.data.type)
            populate_array(array, data=data, shape=[arguments[1]], strides=[size], itemsize=size, meminfo=None)
            return array._getvalue()

        return types.Array(kind, 1, "C")(types.int64, types.int64), code

    return array_at


int64s_at, uint32s_at = _array_at(types.int64), _array_at(types.uint32)
"""``int64s_at(address, length)``: the numbers that lie there, as long as somebody holds them. Nothing is checked."""
