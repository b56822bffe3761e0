"""The ``tailrace`` command. Results go to standard output, everything else (progress, errors) to standard error.

Exit codes: 0, 1 for an error, 2 for wrong options, 130 after Ctrl-C. Whatever a command started or put in a temporary
folder is gone when it ends, also after Ctrl-C or a SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from rich.panel import Panel
from rich.text import Text

from tailrace.cli import checkpoint, espbench, savepoint, serve, state, workloads
from tailrace.cli.app import app, err
from tailrace.cli.bench import commands, prefetch
from tailrace.cli.gadget import analysis, generate, replay
from tailrace.errors import TailraceError

__all__ = [
    "analysis",
    "app",
    "checkpoint",
    "commands",
    "espbench",
    "generate",
    "main",
    "prefetch",
    "replay",
    "savepoint",
    "serve",
    "state",
    "workloads",
]


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # unwinds, so that sessions are stopped and folders removed


def main() -> None:
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except TailraceError as error:
        err.print(Panel(Text(str(error)), title=type(error).__name__, title_align="left", border_style="red"))
        sys.exit(1)
