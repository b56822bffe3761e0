"""Operating-system processes: who started whom, who still lives, news of an end; and how a Python process is started.

A pid alone proves nothing, since pids are reused: a process is known by its pid *and* its start time.
Linux reads ``/proc``; elsewhere ``ps`` is asked, and ends are found by polling.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

_STDERR = 2
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ProcessFacts:
    pid: int
    parent: int
    name: str
    started: str  # opaque; equal for the same process, written without blanks
    zombie: bool


def facts(pid: int) -> ProcessFacts | None:
    """What is known of a process, or None where there is none."""
    if os.path.exists("/proc/self/stat"):
        return _facts_from_proc(pid)
    return _facts_from_ps(pid)


def alive(pid: int, started: str) -> bool:
    """Whether exactly this process still runs. A zombie does not."""
    found = facts(pid)
    return found is not None and found.started == started and not found.zombie


def cpu_seconds(pid: int) -> float | None:
    """Processor time that a process has used; None where it cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            after_name = file.read().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def ancestors(pid: int) -> Iterator[ProcessFacts]:
    """The parent of a process, its parent, and so on."""
    here = facts(pid)
    while here is not None and here.parent > 0:
        here = facts(here.parent)
        if here is not None:
            yield here


def kill(pid: int, started: str) -> bool:
    """SIGKILL to exactly this process; False, and nothing is done, where the pid is another's by now."""
    descriptor = open_pidfd(pid)  # first: what it names cannot change any more while we look
    try:
        if not alive(pid, started):
            return False
        if descriptor is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def end_with_parent() -> None:
    """This process is killed as soon as the one that has forked it ends. Where the system cannot do that: nothing."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError, TypeError):
        pass


def command(pid: int) -> list[str]:
    """The words a process was started with; none where they cannot be read."""
    if os.path.exists("/proc/self/cmdline"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return file.read().decode(errors="replace").split("\0")[:-1]
        except OSError:
            return []
    answer = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.split()


def option_of(pid: int, name: str) -> str | None:
    """The word behind this one among those that a process was started with."""
    words = command(pid)
    return words[words.index(name) + 1] if name in words[:-1] else None


def start_interpreter(
    words: Sequence[str],
    line: str,
    folder: str,
    environment: Mapping[str, str],
    log: BinaryIO,
    *,
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """A Python process with these arguments, which reads one ``line`` from its standard input and writes to ``log``.

    Where it has ended before it could read, its code and its log say why. ``own_group``: it gets a process group.
    """
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        close_fds=True,
        cwd=folder,
        env=dict(environment),
        process_group=0 if own_group else None,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.close()
    except BrokenPipeError:
        pass
    return process


def open_pidfd(pid: int) -> int | None:
    """A file descriptor that becomes readable when the process ends; None where the system has no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _facts_from_proc(pid: int) -> ProcessFacts | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may itself hold blanks and brackets: cut at the last one.
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    return ProcessFacts(pid, parent=int(rest[1]), name=name, started=rest[19], zombie=rest[0] in "ZX")


def _facts_from_ps(pid: int) -> ProcessFacts | None:
    answer = subprocess.run(
        ["ps", "-o", "ppid=,stat=,lstart=,comm=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    words = answer.stdout.split()
    if answer.returncode != 0 or len(words) < 8:
        return None
    started = "".join(character for character in "".join(words[2:7]) if character.isalnum())
    return ProcessFacts(pid, int(words[0]), os.path.basename(" ".join(words[7:])), started, words[1].startswith("Z"))


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """This process ends if what is inside takes longer, even if it never lets go of the interpreter's lock.

    One at a time in a process. Where all of its threads were goes to the standard error.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
