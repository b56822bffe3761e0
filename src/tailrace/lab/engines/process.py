"""One engine in one process of its own: so engines can take turns in one run and share no heap, cache or JIT.

An engine that is compared with itself, in several *ways* that differ by options alone, is one process with a query for
each: what its JVM has compiled and collected is then no difference between them.

The parent holds an ``EngineProcess``; the child runs ``child``. They exchange JSON lines: commands on the child's
standard input, answers on its standard output. The child's own noise (Spark's log, stack traces) goes to a file.
The child is in a session of its own: Ctrl-C reaches the parent only, which then ends its children in order. A parent
that dies leaves a closed standard input behind, and that ends the child too. Not thread-safe: one command at a time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.bench import measure
from tailrace.lab.registry import Value

_STOP_TIMEOUT_S = 30
ONLY = "query"
"""The way of a process that has one query."""


class EngineError(TailraceError):
    """An engine in the lab failed or ended: the run cannot go on."""


class EngineProcess:
    def __init__(
        self,
        workload: str,
        engine: str,
        work: Path,
        extra_confs: dict[str, str],
        values: Mapping[str, Value] | None = None,
        options: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        checkpoint: str | None = None,
        environment: Mapping[str, str] | None = None,
        ways: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """``options``: of Tailrace's ``writeStream``; other engines are not given them. ``name``: where there are
        several processes of one engine. ``checkpoint``: Spark's, where not in the child's folder. ``environment``:
        added to ours. ``ways``: instead of one query, several; name to what it adds to the options."""
        assert checkpoint is None or ways is None, "every query has a checkpoint of its own"
        self.engine = engine
        self.name = name or engine
        self.work = work / self.name
        self.work.mkdir(parents=True)
        self.log = self.work / "log.txt"
        self.confs: dict[str, str] = {}
        arguments = {
            "workload": workload,
            "engine": engine,
            "values": dict(values or {}),
            "work": str(self.work),
            "confs": extra_confs,
            "ways": {
                way: {
                    "options": {**(options or {}), **added},
                    "folder": str(self.work / way),
                    "checkpoint": checkpoint or str(self.work / way / "checkpoint"),
                }
                for way, added in (ways or {ONLY: {}}).items()
            },
        }
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tailrace.lab.engines.child", json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=self.work,
                env={**os.environ, **(environment or {})},
            )

    def wait_ready(self) -> None:
        """Waits for the child's Spark session. Several children are started first, then waited for."""
        self.confs = self.answer()["confs"]

    def send(self, do: str, way: str = ONLY, **arguments: object) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps({"do": do, "way": way, **arguments}) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.name} failed: {answer['error']}")
        return answer

    def ask(self, do: str, way: str = ONLY, **arguments: object) -> dict[str, Any]:
        self.send(do, way, **arguments)
        return self.answer()

    def cpu_s(self) -> float | None:
        """Processor time of the child and all that it has started, so far; None where the system does not say."""
        return measure.session_cpu_s(self._child.pid)

    def memory_bytes(self) -> int | None:
        """Memory of the child and all that it has started, what they share counted once; None as above."""
        return measure.session_memory_bytes(self._child.pid)

    def peak_memory_bytes(self, module: str) -> int | None:
        """The largest resident memory of those of its processes that run a Python module; None as above."""
        return measure.session_peak_bytes(self._child.pid, module)

    def kill(self) -> None:
        """Ends the child now. ``close`` must still be called."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        """Ends the child: by closing its standard input, and by signal where that does not help in time."""
        if self._child.stdin is not None and not self._child.stdin.closed:
            try:
                self._child.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._child.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        # Also after a clean end: whatever the child started and left (its JVM, Python workers) is in its session.
        self.kill()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def _ended(self) -> EngineError:
        self._child.wait()
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return EngineError(
            f"{self.name} ended early with code {self._child.returncode}; the end of its log:\n" + "\n".join(lines)
        )
