"""Programs and shared libraries of Debian packages, for servers and stores of the lab.

What the system has is used; otherwise the project's scripts fetch the package and unpack it without root, once, into
this Python's environment. Where there is no source tree there are no scripts, and the user is asked to install the
package.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tailrace.errors import TailraceError

_SCRIPTS = Path(__file__).parents[4] / "scripts"
_FETCH_TIMEOUT_S = 300


class NotFetchedError(TailraceError):
    """Neither the system nor Debian's archive has it: the user installs the package, or goes on without it."""


def program(name: str, variable: str) -> str:
    """The path of a program. ``variable``: of the environment; it may name one. Fetched by ``scripts/<name>.sh``."""
    folder = Path(sys.prefix) / name.partition("-")[0]
    for candidate in (os.environ.get(variable), shutil.which(name), str(folder / name)):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    return by_script(f"{name.replace('-', '_')}.sh", folder, missing=f"install {name}, or point {variable} to one")


def library(soname: str, *packages: str) -> ctypes.CDLL:
    """A shared library. ``packages``: what its package is called in releases of Debian and Ubuntu."""
    try:
        return ctypes.CDLL(soname)
    except OSError:  # not on this system
        folder = Path(sys.prefix) / "libraries" / soname
        missing = f"install {soname}: in Debian and Ubuntu the package {packages[-1]} has it"
        return ctypes.CDLL(by_script("debian_library.sh", folder, soname, *packages, missing=missing))


def by_script(script: str, folder: Path, *arguments: str, missing: str) -> str:
    """The path that one of the project's scripts prints when it has fetched or made what is asked for."""
    path = _SCRIPTS / script
    if not path.exists():
        raise NotFetchedError(missing)
    command = [str(path), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise NotFetchedError(f"{missing}; it could not be fetched:\n{done.stderr[-2000:]}")
    return done.stdout.strip()
