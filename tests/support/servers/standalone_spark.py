"""A standalone Spark cluster on loopback addresses: each worker is a host of its own to Spark.

``local-cluster`` puts all executors on one host, and Spark never runs a speculative copy of a task on the host that
runs the original. Only ever started inside a ``Sandbox``, which ends its processes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pyspark

READY_S = 60.0


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Standalone:
    """A master and one worker for each of ``hosts``."""

    def __init__(self, root: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.2"), cores: int = 2) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        port, ui_port = _free_port(), _free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self._root = root
        deploy = "org.apache.spark.deploy"
        self._start("127.0.0.1", f"{deploy}.master.Master", "--port", str(port), "--webui-port", str(ui_port))
        self._wait(ui_port, 0)
        for number, host in enumerate(hosts):
            work = root / f"w{number}"
            options = ["-c", str(cores), "-m", "1g", "-d", str(work), "--webui-port", "0", self.master]
            self._start(host, f"{deploy}.worker.Worker", *options)
        self._wait(ui_port, len(hosts))

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(20)

    def _start(self, host: str, main: str, *options: str) -> None:
        environment = {**os.environ, "SPARK_LOCAL_IP": host, "SPARK_NO_DAEMONIZE": "1"}
        command = [str(self._spark_class), main, "--host", host, *options]
        self._processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))

    def _wait(self, ui_port: int, workers: int) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{ui_port}/json/", timeout=2) as answer:
                    alive = [w for w in json.load(answer)["workers"] if w["state"] == "ALIVE"]
                if len(alive) >= workers:
                    return
            except (OSError, ValueError):
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"{workers} workers were not there within {READY_S} s")
            time.sleep(0.2)
