"""A process that becomes what a freshly started one would be: for servers that are forked from a warm parent.

A fork inherits everything from its parent. What another process may set for it is handed over (``Handover``) and taken
on by the child: process group, environment, folder, import path, standard output. What a process cannot change in
itself, or what libraries read once when they are loaded, must be the same in the parent: ``context`` names that, and
two processes of equal context may share a parent.

Linux only: ``context`` is None elsewhere. Call ``take_on`` in the child, before it has any thread.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

_LIBRARIES = ("tailrace", "numpy", "pyarrow", "numba", "llvmlite", "obstore", "zlib_ng", "cloudpickle")
"""What a warm parent has imported of what lies on the import path."""

_READ_ONCE = (
    *("ARROW_", "ACERO_", "GRPC_", "MALLOC_", "GLIBC_", "LD_", "NUMBA_", "LLVM", "OMP_", "OPENBLAS_", "MKL_"),
    *("PYTHON", "TAILRACE_", "XDG_CACHE_HOME", "HOME", "LANG", "LC_", "TMPDIR"),
)
"""How variables begin that an interpreter or a library reads when it is loaded. ``PYTHONPATH`` is not among them: the
import path is handed over, and where it leads to other libraries these are another context."""

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user")


@dataclass(frozen=True)
class Handover:
    """What a forked process takes on from the process that has asked for it."""

    environment: Mapping[str, str]
    folder: str
    import_path: Sequence[str]
    group: int
    umask: int
    processors: Sequence[int]

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str], folder: str) -> Handover:
        paths = [os.path.abspath(path) for path in sys.path]
        return cls(dict(environment), folder, paths, os.getpgid(0), _umask(), sorted(os.sched_getaffinity(0)))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Handover:
        return cls(**json.loads(text))


def context(without: Collection[str] = ()) -> str | None:
    """A digest of all that a process has from its birth on. None where processes cannot be forked as needed here.

    ``without``: variables that are not handed over.
    """
    try:
        found = {
            "interpreter": [sys.executable, sys.version, str(sys.flags)],
            "session": os.getsid(0),
            "owner": [*os.getresuid(), *os.getresgid(), *sorted(os.getgroups())],
            "namespaces": [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES],
            "cgroup": _text("/proc/self/cgroup"),
            "limits": [resource.getrlimit(each) for each in _limits()],
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "libraries": _libraries(),
            "variables": sorted(
                (name, value)
                for name, value in os.environ.items()
                if name.startswith(_READ_ONCE) and name not in ("PYTHONPATH", *without)
            ),
        }
    except (OSError, AttributeError):
        return None
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def take_on(given: Handover, standard_output: int, words: Sequence[str]) -> None:
    """Become what was handed over. ``words``: the command line that this process shows from now on."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgid(0, given.group)  # of the same session, which is part of the context
    for stream in (1, 2):
        os.dup2(standard_output, stream)
    os.close(standard_output)
    os.environ.clear()
    os.environ.update(given.environment)
    time.tzset()
    os.umask(given.umask)
    os.sched_setaffinity(0, given.processors)
    os.chdir(given.folder)
    sys.path[:] = list(dict.fromkeys([*given.import_path, *sys.path]))
    sys.path_importer_cache.clear()  # a folder may have got modules since the parent looked
    np.random.seed()  # Python sees to its own generator
    show_command(words)


def show_command(words: Sequence[str]) -> bool:
    """Rewrite this process's command line, as ``ps`` shows it, in place. Whether there was room for it.

    The room is that of the words with which the process, or the one it was forked from, was started.
    """
    try:
        fields = _text("/proc/self/stat").rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
    except (OSError, ValueError, IndexError):
        return False
    shown = b"".join(word.encode() + b"\0" for word in words)
    if not start or len(shown) > end - start:
        return False
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
    return True


def _libraries() -> list[tuple[str, str, int, int]]:
    """For each library the place that an import finds, and a mark that changes with what lies there."""
    found: list[tuple[str, str, int, int]] = []
    for entry in sys.path:
        path = os.path.abspath(entry)
        if os.path.isfile(path):  # an archive: what is in it is not looked at
            found.append(("", path, *_mark(path)))
    for library in _LIBRARIES:
        folders = (os.path.join(os.path.abspath(entry), library) for entry in sys.path)
        folder = next((each for each in folders if os.path.isdir(each)), "")
        # An installation changes as a whole; of our own sources, which may be worked on, each file counts.
        mark = _tree_mark(folder) if library == "tailrace" else _mark(os.path.join(folder, "__init__.py"))
        found.append((library, folder, *mark))
    return found


def _tree_mark(folder: str) -> tuple[int, int]:
    marks = hashlib.sha256()
    count = 0
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                count += 1
                marks.update(f"{path}/{name} {_mark(os.path.join(path, name))}\n".encode())
    return count, int.from_bytes(marks.digest()[:8], "big")


def _mark(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_size, found.st_mtime_ns


def _limits() -> list[int]:
    return sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


def _umask() -> int:
    """Read from the system: asking for it by setting it would disturb other threads."""
    lines = _text("/proc/self/status").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o022)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
