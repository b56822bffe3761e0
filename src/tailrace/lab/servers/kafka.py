"""A Kafka broker on this machine for tests and benches: a real one, from Maven's artifacts.

A single node that is its own controller, on free loopback ports; topics are made when they are first written to. See
`RestartableServer` for its life: topics outlive ``restart``. Whoever reads its log files should know that what was not
synced is lost with the machine, not with the broker.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from tailrace.lab.servers.guarded import HOST, RestartableServer, free_ports
from tailrace.lab.servers.maven import Artifact, fetched, java, up_to_spark

PARTITIONS = 2
"""Of each topic, unless it is made with another number."""
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
# What `kafka-storage format` would write, without another JVM: ids of 16 bytes, in Base64 without its padding.
_IDENTITY = {
    "version": "1",
    "cluster.id": "dGFpbHJhY2UtdGVzdHMtMQ",
    "node.id": "1",
    "directory.id": "dGFpbHJhY2UtZm9sZGVyLQ",
}


def broker_jars() -> list[Path]:
    return fetched(
        "kafka-broker",
        [Artifact("org.apache.kafka", "kafka_2.13", "4.1.0"), Artifact("org.slf4j", "slf4j-simple", "1.7.36")],
    )


def connector_jars() -> list[Path]:
    """Spark's source and sink, and the client they use. Named one by one: not every version of each is published."""
    return fetched(
        "kafka-connector",
        [
            up_to_spark("org.apache.spark", "spark-sql-kafka-0-10_2.13"),
            up_to_spark("org.apache.spark", "spark-token-provider-kafka-0-10_2.13"),
            Artifact("org.apache.kafka", "kafka-clients", "3.9.1", alone=True),
            Artifact("org.apache.commons", "commons-pool2", "2.12.1", alone=True),
        ],
    )


class KafkaBroker(RestartableServer):
    """``with KafkaBroker() as kafka:`` then ``kafka.bootstrap``. ``properties``: more of the broker's own settings."""

    program = "kafka"

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._properties = dict(properties or {})
        self._controller = 0

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def _start(self) -> None:
        jars = broker_jars()
        if not self.port:
            self.port, self._controller = free_ports(2)
        data, temporary = Path(self._properties.get("log.dirs", self.folder / "data")), self.folder / "tmp"
        data.mkdir(exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _write(data / "meta.properties", _IDENTITY)
        config = self.folder / "server.properties"
        _write(config, {**self._settings(data), **self._properties})
        options = [*_JVM, f"-Djava.io.tmpdir={temporary}", f"-XX:ErrorFile={self.folder}/jvm.log"]
        self._launch([java(), *options, "-cp", os.pathsep.join(map(str, jars)), "kafka.Kafka", str(config)])
        self._wait_until(lambda: socket.create_connection((HOST, self.port), 2).close())

    def _settings(self, data: Path) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(data),
            "num.partitions": str(PARTITIONS),
            # What is kept three times by default needs three brokers.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2000000",
        }


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
