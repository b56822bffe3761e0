"""A user's function as text, for the way to the state servers.

By value, with what it uses of its own module: that module is often a script or a notebook's file, which executors do
not have. What is installed is left by name.
"""

from __future__ import annotations

import base64
import sys
import sysconfig
from types import ModuleType

import cloudpickle


def packed(given: object) -> str:
    """A function, or an object of a user's class."""
    modules = [module for module in _modules(given) if _of_the_user(module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return _text(given)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _modules(given: object) -> list[ModuleType]:
    """Where it is written; of an object, where its classes are."""
    written = [given] if hasattr(given, "__qualname__") else type(given).__mro__
    names = dict.fromkeys(getattr(each, "__module__", None) or "" for each in written)
    return [sys.modules[name] for name in names if name in sys.modules]


def _text(function: object) -> str:
    return base64.b64encode(cloudpickle.dumps(function)).decode()


def _of_the_user(module: ModuleType) -> bool:
    """Whether the module is a file of the user's own. ``__main__`` goes by value anyway; servers have what is ours."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] in ("__main__", "tailrace"):
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(file.startswith(path) for path in installed)
