"""What a system under test is asked to run, and how its process is spoken to.

The process reads the job, one line of JSON, from standard input, so that the database's password is in no list of
processes. It answers ``ready`` when records that are sent now will be seen, and ends when its standard input closes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.lab.espbench.names import QUERIES, Query

_LOOK_S = 0.2
JARS = "ESPBENCH_JARS"
"""A variable: connectors that the process cannot fetch by itself, as a list in JSON."""


@dataclass(frozen=True)
class Job:
    """``settings``: of a query, as ``set_wise`` or ``low_mf03``."""

    system: str
    query_key: str
    bootstrap: str
    inputs: tuple[str, ...]
    output: str
    database: str
    work: str
    settings: dict[str, Any]

    @property
    def query(self) -> Query:
        return QUERIES[self.query_key]


class Parent:
    """Who asked: the other end of standard input and output.

    A parent that is gone before the system is ready leaves nothing to end in order: this process's session is killed,
    whatever it has started by then.
    """

    def __init__(self) -> None:
        self._ready = False
        self._gone = threading.Event()

    def job(self) -> Job:
        given = json.loads(sys.stdin.readline())
        threading.Thread(target=self._watch, daemon=True).start()
        return Job(**{**given, "inputs": tuple(given["inputs"])})

    def say_ready(self) -> None:
        self._ready = True
        _say(ready=True)

    def wait(self, alive: Callable[[], str | None]) -> str | None:
        """Until the parent asks for the end; or until ``alive`` says why there is nothing more to wait for."""
        while not self._gone.wait(_LOOK_S):
            if (why := alive()) is not None:
                return why
        return None

    def serve(self, system: Callable[[], str | None]) -> int:
        """Run the system, which says why it ended where nobody asked for it. The exit status of the process."""
        try:
            why = system()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            _say(error=why)
        return 0 if why is None else 1

    def _watch(self) -> None:
        sys.stdin.read()
        if not self._ready:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        self._gone.set()


def _say(**answer: object) -> None:
    try:
        print(json.dumps(answer), flush=True)
    except BrokenPipeError:
        pass  # the parent is gone, and needs no answer
