"""``tailrace serve``: real servers to try sinks and sources with."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer

from tailrace.cli.app import app, err


class Server(StrEnum):
    KAFKA = "kafka"
    POSTGRES = "postgres"


@app.command(epilog="Examples:  tailrace serve postgres  ·  tailrace serve kafka postgres")
def serve(
    servers: Annotated[list[Server], typer.Argument(help="Which of them to start.", show_default=False)],
) -> None:
    """Run a Kafka broker or a PostgreSQL server on free ports of this machine until Ctrl-C, and print their addresses.

    They are fetched once where the machine has none; what they hold is gone afterwards.
    """
    from tailrace.lab.servers.kafka import KafkaBroker  # lazy: see cli.app
    from tailrace.lab.servers.postgres import PostgresServer  # lazy: see cli.app

    with ExitStack() as running:
        for each in dict.fromkeys(servers):
            if each is Server.KAFKA:
                print(f"kafka.bootstrap.servers={running.enter_context(KafkaBroker()).bootstrap}", flush=True)
            else:
                print(f"url={running.enter_context(PostgresServer()).url}", flush=True)
        err.print("serving until Ctrl-C ...")
        signal.pause()  # Ctrl-C and SIGTERM are raised here
