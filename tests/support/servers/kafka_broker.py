"""A Kafka broker for a test: a real one, from Maven's artifacts, in a process and a temporary folder of its own.

A single node that is its own controller, on free loopback ports; topics are made when they are first written to.

``python tests/support/servers/kafka_broker.py`` fetches what is needed into the virtual environment, where it is
kept; with an argument it also serves, until it is killed.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from support.servers.java_server import JavaServer
from tailrace.lab.servers.maven import Artifact, fetched, up_to_spark

PARTITIONS = 2
"""Of each topic."""


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


class KafkaBroker(JavaServer):
    """``with KafkaBroker() as kafka:`` then ``kafka.bootstrap``."""

    jvm = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

    def jars(self) -> list[Path]:
        return broker_jars()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        self._port, controller = _free_ports(2)
        data = self.folder / "data"
        data.mkdir()
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(data),
            "num.partitions": str(PARTITIONS),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2000000",
        }
        config = self.folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        # What `kafka-storage format` would write, without another JVM: ids of 16 bytes, in Base64 without its padding.
        identity = {"version": "1", "cluster.id": "dGFpbHJhY2UtdGVzdHMtMQ", "node.id": "1"}
        (data / "meta.properties").write_text(
            "".join(
                f"{name}={value}\n" for name, value in {**identity, "directory.id": "dGFpbHJhY2UtZm9sZGVyLQ"}.items()
            )
        )
        return ["kafka.Kafka", str(config)]

    def serves(self) -> bool:
        socket.create_connection(("127.0.0.1", self._port), 2).close()
        return True


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


if __name__ == "__main__":
    print(f"{len(broker_jars())} jars of the broker, {len(connector_jars())} of Spark's connector")
    if len(sys.argv) > 1:
        with KafkaBroker() as served:
            print(f"serves at {served.bootstrap}", flush=True)
            time.sleep(600)
