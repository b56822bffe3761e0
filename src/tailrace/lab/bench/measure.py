"""Numbers out of series of timings, and the facts about the machine that they were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from importlib import metadata

import numpy as np

_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def median(series: Sequence[float]) -> float:
    return round(float(np.median(series)), 2)


def percentile(series: Sequence[float], q: float) -> float:
    return round(float(np.percentile(series, q)), 2)


def ratio(a: float, b: float) -> float:
    return round(a / b, 3)


def spread(series: Sequence[float]) -> float:
    """Interquartile range over median: how far a median can be trusted. Above 0.25 the machine was busy."""
    low, mid, high = np.percentile(series, [25, 50, 75])
    return round(float((high - low) / mid), 3)


def cores() -> int:
    """The cores this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def session_cpu_s(session: int) -> float | None:
    """Seconds of processor time that all processes of a session have used, and those they have waited for.

    None where the system does not say.
    """
    facts = _session(session)
    return None if facts is None else sum(sum(map(int, each[11:15])) for each in facts.values()) / _TICKS_A_S


def session_memory_bytes(session: int) -> int | None:
    """Bytes of memory that all processes of a session hold; a page that several share is counted once."""
    return _session_sum(session, lambda process: _kilobytes(f"{process}/smaps_rollup", "Pss:"))


def session_peak_bytes(session: int, module: str) -> int | None:
    """The largest resident memory, so far, of a session's processes that run this Python module: of all together."""

    def peak(process: str) -> int:
        with open(f"{process}/cmdline", "rb") as file:
            if module.encode() not in file.read().split(b"\0"):
                return 0
        return _kilobytes(f"{process}/status", "VmHWM:")

    return _session_sum(session, peak)


def _kilobytes(path: str, field: str) -> int:
    with open(path, encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) << 10


def _session_sum(session: int, of: Callable[[str], int]) -> int | None:
    """The sum over the session's processes, each given by its folder in ``/proc``."""
    facts = _session(session)
    if facts is None:
        return None
    size = 0
    for name in facts:
        try:
            size += of(f"/proc/{name}")
        except (OSError, StopIteration):
            continue  # it has just ended
    return size


def _session(session: int) -> dict[str, list[str]] | None:
    """Process to its facts, from its state on, for the processes of a session."""
    if not os.path.isdir("/proc/self"):
        return None
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                facts = file.read().rpartition(")")[2].split()  # a process's name may hold anything
        except OSError:
            continue  # it has just ended
        if int(facts[3]) == session:
            found[name] = facts
    return found


def machine() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": cores(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "java": _java_version()}
    for name in ("tailrace", "pyspark", "pyarrow", "numpy", "numba"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _java_version() -> str:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except OSError:
        return "not found"
    return said.splitlines()[0] if said else "unknown"
