"""``tailrace espbench send``: the open-loop sender by itself, to a broker that is there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from tailrace.cli.app import err, espbench
from tailrace.cli.console import progress_bar, show_table
from tailrace.cli.espbench.options import BrokerAddress, ConfigFile, Data, QueryKey, broker_of, given_config
from tailrace.cli.options import OutFile


@espbench.command(
    epilog="Examples:  tailrace espbench send q3 --broker 10.0.0.5:9092 --data data --rate 10000 --duration 5m  ·  "
    "tailrace espbench send q4 --config espbench.toml --data data"
)
def send(
    query: QueryKey,
    data: Data,
    broker: BrokerAddress = None,
    config: ConfigFile = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Messages a second and stream.")] = None,
    duration: Annotated[str | None, typer.Option(help="How long, as 30s or 5m.")] = None,
    run: Annotated[int | None, typer.Option(min=0, help="Number of the run, part of its topics' names.")] = None,
    out_file: OutFile = None,
) -> None:
    """Make a query's topics and send its streams at a fixed rate. The last line of output is a JSON object."""
    from tailrace.lab.espbench.broker import Broker  # lazy: see cli.app
    from tailrace.lab.espbench.names import QUERIES, Topics  # lazy: see cli.app
    from tailrace.lab.espbench.sender.result_row import result_row  # lazy: see cli.app
    from tailrace.lab.espbench.sender.senders import Senders, assignments  # lazy: see cli.app

    chosen = given_config(config, rate, duration)
    if run is not None:
        chosen = replace(chosen, benchmark_run=run)
    address = broker_of(broker, chosen)
    topics = Topics(chosen.topic_prefix, chosen.benchmark_run)
    of_run = assignments(chosen, QUERIES[query], topics, data, address)
    Broker(address).create(topics.of(QUERIES[query]))
    with Senders(of_run) as senders:
        senders.start()
        with progress_bar() as progress:
            streams = senders.wait(progress)
    faults = [fault for stream in streams if (fault := stream.fault(chosen.sender.lateness_bound_ms))]
    for fault in faults:
        err.print(Text(fault, style="red"))
    show_table(f"{query}: {sum(stream.sent for stream in streams):,} messages", {s.name: s.figures() for s in streams})
    sent = {str(stream.stream): stream.sent for stream in streams}
    result = {"query": query, "sent": sent, "valid": not faults, "faults": faults, **result_row(chosen, streams)}
    line = json.dumps(result, separators=(",", ":"))
    if out_file is not None:
        out_file.write_text(line + "\n", encoding="utf-8")
    print(line, flush=True)
    if faults:
        raise typer.Exit(1)
