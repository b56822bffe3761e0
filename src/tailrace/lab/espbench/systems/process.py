"""The parent's side of a system under test: it starts it, kills it where a run asks for that, and ends it for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.lab.espbench.names import Query
from tailrace.lab.espbench.systems import flink_environment
from tailrace.lab.espbench.systems.job import Job

READY_S = 240
END_S = 60
_SPARK = "tailrace.lab.espbench.systems.spark_job"
_FLINK = "tailrace.lab.espbench.systems.flink_job"
MODULES = {"tailrace": _SPARK, "spark": _SPARK, "flink": _FLINK, "spark-real-time": _SPARK}
SYSTEMS = tuple(MODULES)
_ONLY = {"spark-real-time": ("q3", "identity")}
"""What a system can express, where that is not all."""


def expresses(system: str, query: Query) -> bool:
    return system not in _ONLY or query.base in _ONLY[system]


class SystemFailedError(TailraceError):
    """A system under test did not start, or ended by itself: its run says so, and others go on."""


class System(AbstractContextManager["System"]):
    """A session of processes of its own: Ctrl-C reaches the parent alone, which ends them in order."""

    def __init__(self, job: Job) -> None:
        if not expresses(job.system, job.query):
            raise SystemFailedError(
                f"{job.system} has no words for {job.query.key}: it runs {', '.join(_ONLY[job.system])}"
            )
        self.job = job
        self.log = Path(job.work) / "log.txt"
        Path(job.work).mkdir(parents=True, exist_ok=True)
        python, variables = sys.executable, dict(os.environ)
        if MODULES[job.system] == _FLINK:
            python, variables = flink_environment.python(), flink_environment.variables(Path(job.work))
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [python, "-m", MODULES[job.system]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=variables,
            )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asdict(job)) + "\n")
        self._child.stdin.flush()

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_ready(self) -> None:
        timer = threading.Timer(READY_S, self.kill)
        timer.start()
        try:
            assert self._child.stdout is not None
            line = self._child.stdout.readline()
        finally:
            timer.cancel()
        answer = json.loads(line) if line else {"error": f"it ended before it was ready; see {self.log}"}
        if "error" in answer:
            raise SystemFailedError(f"{self.job.system}, {self.job.query.key}: {answer['error']}")

    def check(self) -> None:
        if self._child.poll() is not None:
            assert self._child.stdout is not None
            line = self._child.stdout.readline()
            why = json.loads(line)["error"] if line else f"exit code {self._child.returncode}; see {self.log}"
            raise SystemFailedError(f"{self.job.system}, {self.job.query.key} ended by itself: {why}")

    def kill(self) -> None:
        """All its processes, at once, as a crash would."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def __exit__(self, *exception: object) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            pass
        self.kill()  # what it may have left
        self._child.wait()
        self._child.stdout.close()
