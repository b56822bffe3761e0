"""The broker and the database of runs: those that the configuration names, else started here and stopped again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tailrace.lab.espbench.config import Config
from tailrace.lab.servers.kafka import KafkaBroker
from tailrace.lab.servers.postgres import PostgresServer

BROKER = {"log.message.timestamp.type": "LogAppendTime", "num.partitions": "1", "auto.create.topics.enable": "false"}


@dataclass(frozen=True)
class Servers:
    """Addresses; and the process ids of what was started here, for their utilisation."""

    bootstrap: str
    database: str
    pids: Mapping[str, int]


@contextmanager
def servers(config: Config, with_database: bool) -> Iterator[Servers]:
    with ExitStack() as started:
        bootstrap, database = config.kafka_bootstrap_servers, config.database
        pids = {}
        if not bootstrap:
            broker = started.enter_context(KafkaBroker(BROKER))
            bootstrap, pids["broker"] = broker.bootstrap, broker.pid
        if with_database and not database:
            server = started.enter_context(PostgresServer(durable=True))
            database, pids["database"] = server.url, server.pid
        yield Servers(bootstrap, database, pids)
