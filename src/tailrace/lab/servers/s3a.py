"""What Spark needs to keep a checkpoint in S3: Hadoop's S3A client, and the confs that lead it to the lab's server.

Spark's own wheel has no S3A: ``hadoop-aws`` of the very version of its Hadoop is fetched, and of the AWS SDK only the
parts that it calls (20 MB, not the 690 MB of the bundle), each by itself: what those need besides, Spark has, and two
versions of Netty on one class path would be worse than one.

Offsets, commits and state files need to appear at once or not at all. S3 has no rename that is atomic, so Spark's
default managers of checkpoint files are wrong there; the one Spark documents for S3A is in ``spark-hadoop-cloud``: it
writes under the final name, and an upload that is not finished shows nothing.

Credentials come by environment: neither a conf nor a log has them. Pure but for the fetching.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

from tailrace.errors import TailraceError
from tailrace.lab.servers.maven import Artifact, fetched, up_to_spark

SDK_VERSION = "2.35.4"
"""What hadoop-aws 3.5 was built with; older versions of the 3.4 line run with it too."""

_SDK_PARTS = (
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
)
_FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_CREDENTIALS = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"


def s3a_confs(endpoint: str, region: str, work: Path) -> dict[str, str]:
    """Confs of a session in local mode whose ``checkpointLocation`` may be ``s3a://``. Uploads wait below ``work``.

    The process must have ``environment()`` of the S3 server before its JVM starts.
    """
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, s3a_jars())),
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.aws.credentials.provider": _CREDENTIALS,
        "spark.hadoop.fs.s3a.buffer.dir": str(work / "s3a"),
    }


def s3a_jars() -> list[Path]:
    """The jars, fetched where this is the first time."""
    theirs = Path(pyspark.__file__).parent / "jars"
    hadoop = next(theirs.glob("hadoop-client-api-*.jar"), None)
    if hadoop is None:
        raise TailraceError(f"There is no hadoop-client-api among Spark's jars in {theirs}: install pyspark from PyPI.")
    return fetched(
        "s3a",
        [
            Artifact("org.apache.hadoop", "hadoop-aws", hadoop.stem.removeprefix("hadoop-client-api-"), alone=True),
            up_to_spark("org.apache.spark", "spark-hadoop-cloud_2.13"),
            *(Artifact("software.amazon.awssdk", part, SDK_VERSION, alone=True) for part in _SDK_PARTS),
            Artifact("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1", alone=True),
            Artifact("software.amazon.eventstream", "eventstream", "1.0.1", alone=True),
            Artifact("org.reactivestreams", "reactive-streams", "1.0.4", alone=True),
        ],
    )
