"""Run every kernel once, on next to nothing, so that no epoch waits for a compiler.

The first time on a machine this compiles and fills the disk cache; later it loads from there. Importing this module
imports every operator and so every module with kernels, which is also why compiled code that nobody uses any more is
removed here.
"""

from __future__ import annotations

from tailrace.env.kernels.compile import remember_compiled, remove_unused_code
from tailrace.operators.nested import warm_up_nested
from tailrace.operators.registry import KINDS
from tailrace.state.append.warm_up import warm_up_rows
from tailrace.state.cache.warm_up import warm_up_cache

_RUNTIMES = [kind.runtime() for kind in KINDS]


def warm_up() -> None:
    warm_up_cache()
    warm_up_rows()
    warm_up_nested()
    for runtime in _RUNTIMES:
        runtime.warm_up()
    remember_compiled()
    remove_unused_code()
