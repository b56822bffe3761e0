"""A standalone Spark cluster: each worker is a host of its own to Spark.

``local-cluster`` puts all executors on one host, and Spark never runs a speculative copy of a task on the host that
runs the original. Hosts are loopback addresses, or hosts of a ``Network``. Only ever started inside a ``Sandbox``,
which ends its processes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

import pyspark

from support.class_archive import jvm_options

READY_S = 60.0
_DEPLOY = "org.apache.spark.deploy"
_PATIENT = "-Dspark.deploy.maxExecutorRetries=-1"
"""Else the master ends an application whose executors were killed often."""


class Place(Protocol):
    """Where a process runs: ``command`` makes of a command the one that runs there."""

    @property
    def address(self) -> str: ...
    def command(self, words: Sequence[str]) -> list[str]: ...


class Loopback:
    """A loopback address of this machine."""

    def __init__(self, address: str) -> None:
        self.address = address

    def command(self, words: Sequence[str]) -> list[str]:
        return list(words)


LOOPBACKS = (Loopback("127.0.0.1"), Loopback("127.0.0.2"))


class Standalone:
    """A master, and a worker on each of ``workers``. Their output goes where this process's goes, or to ``log``."""

    def __init__(
        self,
        root: Path,
        workers: Sequence[Place] = LOOPBACKS,
        master: Place = LOOPBACKS[0],
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        cores: int = 2,
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = dict(environment or os.environ)
        self._log = log
        port, ui_port = _free_port(), _free_port()
        self.master = f"spark://{master.address}:{port}"
        self._ui = f"http://{master.address}:{ui_port}/json/"
        self._start(master, f"{_DEPLOY}.master.Master", "--port", str(port), "--webui-port", str(ui_port))
        self._wait(0)
        self._root, self._workers = root, 0
        for place in workers:
            self.add_worker(place, cores)
        self._wait(len(workers))

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(20)

    def add_worker(self, place: Place, cores: int = 2) -> subprocess.Popen[bytes]:
        """A worker more; whoever ends it, ends its executors. By SIGPWR it leaves in peace."""
        folder = self._root / f"w{self._workers}"
        self._workers += 1
        options = ["-c", str(cores), "-m", "2g", "-d", str(folder), "--webui-port", "0", self.master]
        return self._start(place, f"{_DEPLOY}.worker.Worker", *options)

    def _start(self, place: Place, main: str, *options: str) -> subprocess.Popen[bytes]:
        daemon = {
            "SPARK_LOCAL_IP": place.address,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": f"{jvm_options()} {_PATIENT} -Dspark.decommission.enabled=true",
        }
        words = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), main, "--host", place.address, *options]
        with open(self._log, "ab") if self._log is not None else nullcontext() as log:
            started = subprocess.Popen(
                place.command(words),
                env={**self._environment, **daemon},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us only, and we end it
            )
        self._processes.append(started)
        return started

    def _wait(self, workers: int) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(self._ui, timeout=2) as answer:
                    alive = [w for w in json.load(answer)["workers"] if w["state"] == "ALIVE"]
                if len(alive) >= workers:
                    return
            except (OSError, ValueError):
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"{workers} workers were not there within {READY_S} s")
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
