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


def packed(function: object) -> str:
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or not _of_the_user(module):
        return _text(function)
    cloudpickle.register_pickle_by_value(module)
    try:
        return _text(function)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _text(function: object) -> str:
    return base64.b64encode(cloudpickle.dumps(function)).decode()


def _of_the_user(module: ModuleType) -> bool:
    """Whether the module is a file of the user's own. ``__main__`` goes by value anyway; servers have what is ours."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] in ("__main__", "tailrace"):
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(file.startswith(path) for path in installed)
