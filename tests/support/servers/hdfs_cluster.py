"""A name node and a data node of HDFS in one process, from Maven's artifacts: Hadoop's own small cluster for tests.

On free loopback ports.
"""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import pyspark

from support.servers.java_server import JavaServer
from tailrace.lab.servers.maven import Artifact, fetched

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


class HdfsCluster(JavaServer):
    """``with HdfsCluster() as hdfs:`` then ``hdfs.uri("path")``, or ``hdfs.hadoop_uri("path")`` for Spark."""

    start_s = 120.0
    pause_s = 0.3
    jvm = ("-Xmx400m",)

    def jars(self) -> list[Path]:
        return cluster_jars()

    def uri(self, path: str) -> str:
        return f"webhdfs://127.0.0.1:{self.port}/{path}"

    def hadoop_uri(self, path: str) -> str:
        """By Hadoop's own protocol. It names another port than the web interface's."""
        return f"hdfs://127.0.0.1:{self.hadoop_port}/{path}"

    def command(self) -> list[str]:
        with socket.socket() as free, socket.socket() as other:
            free.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port, self.hadoop_port = free.getsockname()[1], other.getsockname()[1]
        cluster = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"  # its data go to where it is started
        ports = ["-nnport", str(self.hadoop_port), "-nnhttpport", str(self.port)]
        return [cluster, "-nomr", "-format", *ports, "-D", "dfs.replication=1"]

    def serves(self) -> bool:
        """Whether it takes a file, which needs the data node."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("PUT", "/webhdfs/v1/ready?op=CREATE&overwrite=true")
        return connection.getresponse().status == 307
