"""A cluster of three hosts: one of the driver and Spark's master, two of workers with two executors each.

Hosts are namespaces (``network``). Outside of them runs an S3 server, which all reach through the bridge. Checkpoints,
sources and sinks are in a folder that all share.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import psutil

from support.cluster.network import Host, Network
from support.cluster.standalone_spark import Standalone
from support.processes import TESTS, Sandbox
from tailrace.lab.servers.s3 import S3Server

CHILD = TESTS / "crash" / "child_query.py"
DRIVER, WORKERS = "driver", ("worker1", "worker2")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"


class Hosts:
    """Use as a context: nothing survives it. ``NotPermitted`` where there can be no namespaces."""

    def __enter__(self) -> Hosts:
        with ExitStack() as stack:
            self.sandbox = stack.enter_context(Sandbox())
            self.network = stack.enter_context(Network(self.sandbox.root, self.sandbox.temporary, [DRIVER, *WORKERS]))
            self.s3 = stack.enter_context(S3Server(host=self.network.gateway))
            self._spark = Standalone(
                self.sandbox.root,
                [self.network.hosts[name] for name in WORKERS],
                self._driver_host,
                self.sandbox.environment(self.s3.environment()),
                self.sandbox.root / "spark-log",
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def _driver_host(self) -> Host:
        return self.network.hosts[DRIVER]

    def start_driver(self, config: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """``child_query`` on the driver's host. ``config``: see there."""
        where = {"master": self._spark.master, "host": self._driver_host.address}
        environment = {**self.s3.environment(), "SPARK_LOCAL_IP": self._driver_host.address}
        return self.sandbox.start(CHILD, {**config, **where}, environment, self._driver_host.command)

    def executors(self) -> list[psutil.Process]:
        return self._running(_EXECUTOR)

    def driver_jvms(self) -> list[psutil.Process]:
        return self._running(_SUBMIT)

    def servers(self) -> list[psutil.Process]:
        return self.sandbox.servers()

    def _running(self, main: str) -> list[psutil.Process]:
        """The living JVMs of that main class."""
        found = []
        for process in self.sandbox.living():
            try:
                if main in process.cmdline():
                    found.append(process)
            except psutil.Error:
                continue
        return found
