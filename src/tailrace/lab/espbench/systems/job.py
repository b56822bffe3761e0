"""What a system under test is asked to run, and how its process is spoken to.

The process reads the job, one line of JSON, from standard input, so that the database's password is in no list of
processes. It answers ``ready`` when records that are sent now will be seen, and ends when its standard input closes.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.lab.espbench.names import QUERIES, Query


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


def asked() -> Job:
    given = json.loads(sys.stdin.readline())
    return Job(**{**given, "inputs": tuple(given["inputs"])})


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def until_asked_to_end(alive: Callable[[], str | None]) -> str | None:
    """Waits for the end of standard input; or until ``alive`` says why there is nothing more to wait for."""
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    while not ended.wait(0.2):
        if (why := alive()) is not None:
            return why
    return None
