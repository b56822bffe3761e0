"""A name node and a data node of HDFS in one process, from Maven's artifacts: Hadoop's own small cluster for tests.

On free loopback ports, in a temporary folder; ``lab/guard.py`` ends it also when the test's process is killed. Where it
does not start, tests fail.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

from tailrace.lab import guard
from tailrace.lab.maven import Artifact, fetched, java

_START_S = 120.0
_NEEDED = (  # by the cluster's class, which is one for tests
    ("org.junit.jupiter", "junit-jupiter-api", "5.12.2"),
    ("org.junit.platform", "junit-platform-commons", "1.12.2"),
    ("org.opentest4j", "opentest4j", "1.3.0"),
)


def cluster_jars() -> list[Path]:
    theirs = Path(pyspark.__file__).parent / "jars"
    hadoop = next(theirs.glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")
    wanted = [("org.apache.hadoop", "hadoop-client-minicluster", hadoop), *_NEEDED]
    return [*fetched("hdfs-cluster", [Artifact(*each, alone=True) for each in wanted]), theirs / "*"]


class HdfsCluster:
    """``with HdfsCluster() as hdfs:`` then ``hdfs.uri("path")``."""

    def __enter__(self) -> HdfsCluster:
        jars = cluster_jars()
        self._folder = Path(tempfile.mkdtemp(prefix="tr-hdfs-"))
        try:
            self._start(jars)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        started: subprocess.Popen[bytes] | None = getattr(self, "_guard", None)
        if started is not None:
            assert started.stdin is not None
            started.stdin.close()
            started.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def uri(self, path: str) -> str:
        return f"webhdfs://127.0.0.1:{self.port}/{path}"

    def _start(self, jars: list[Path]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [java(), "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Djava.io.tmpdir={self._folder}"]
        command += ["-cp", os.pathsep.join(map(str, jars)), "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"]
        command += ["-nomr", "-format", "-nnport", "0", "-nnhttpport", str(self.port), "-D", "dfs.replication=1"]
        with (self._folder / "log.txt").open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(self._folder), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,  # where its data go
                start_new_session=True,
            )

    def _wait(self) -> None:
        """Until it takes a file, which needs the data node."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("PUT", "/webhdfs/v1/ready?op=CREATE&overwrite=true")
                if connection.getresponse().status == 307:
                    return
            except OSError:
                pass
            if self._guard.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("HDFS did not start: " + (self._folder / "log.txt").read_text()[-3000:])
            time.sleep(0.3)
