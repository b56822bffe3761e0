"""What a compiled kernel is made of: a digest of its module and of all modules of this package that it takes from.

Helpers and constants of other files are inlined into a kernel, but numba looks only at the kernel's own file to tell
whether compiled code on disk is still right. The digest is a part of that code's place: what was compiled from other
sources is not found.

Invariants: pure but for reading the package's own files, each once a process. Threads: any number.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT.name
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(%(p)b[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+(%(p)b[\w.]*))"
    % {b"p": _PACKAGE.encode()},
    re.MULTILINE,
)
_NAME = re.compile(rb"(\w+)(?:[ \t]+as[ \t]+\w+)?")


def digest(module: str) -> str:
    """Of a module's source and of everything of this package that it imports, however far; "" of a stranger's."""
    if _path(module) is None:
        return ""
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(name)
    made = hashlib.sha256()
    for name in sorted(found):
        made.update(hashlib.sha256(_source(name)).digest())
    return made.hexdigest()[:16]


def _path(module: str) -> Path | None:
    first, *rest = module.split(".")
    if first != _PACKAGE:
        return None
    place = _ROOT.joinpath(*rest)
    for path in (place.with_suffix(".py") if rest else place, place / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def _source(module: str) -> bytes:
    path = _path(module)
    return b"" if path is None else path.read_bytes()


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Modules of this package that a module names in its imports; a name may be a module or something in one."""
    names = []
    for where, what, whole in _IMPORT.findall(_source(module)):
        origin = (where or whole).decode()
        names.append(origin)
        bare = re.sub(rb"#[^\n]*", b"", what)
        names += [f"{origin}.{name.decode()}" for name in _NAME.findall(bare)]
    return tuple(dict.fromkeys(name for name in names if _path(name) is not None))
