"""``tailrace espbench validate``: the verdict on topics that are there, whoever ran the query."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from tailrace.cli.app import espbench
from tailrace.cli.console import show_table
from tailrace.cli.espbench.options import (
    BrokerAddress,
    ConfigFile,
    Database,
    QueryKey,
    broker_of,
    database_of,
    given_config,
)
from tailrace.cli.options import OutFile


@espbench.command(
    epilog="Examples:  tailrace espbench validate q3 --broker 10.0.0.5:9092 --run 4  ·  "
    "tailrace espbench validate q5 --broker 10.0.0.5:9092 --database postgresql://bench@10.0.0.7/bench"
)
def validate(
    query: QueryKey,
    broker: BrokerAddress = None,
    database: Database = None,
    run: Annotated[int | None, typer.Option(min=0, help="Number of the run, part of its topics' names.")] = None,
    low_mf03: Annotated[int, typer.Option(help="q4's limit; 7992 for a real file from its start.")] = 8_105,
    config: ConfigFile = None,
    out_file: OutFile = None,
) -> None:
    """Work out every result anew from the input topics, and compare. Exits with 1 where one is not right."""
    from tailrace.lab.espbench.broker import Broker  # lazy: see cli.app
    from tailrace.lab.espbench.names import OF_DATABASE, QUERIES, Topics  # lazy: see cli.app
    from tailrace.lab.espbench.run.judge import judged  # lazy: see cli.app
    from tailrace.lab.espbench.run.outcome import percentiles  # lazy: see cli.app

    chosen = given_config(config, None, None)
    if run is not None:
        chosen = replace(chosen, benchmark_run=run)
    asked, topics = QUERIES[query], Topics(chosen.topic_prefix, chosen.benchmark_run)
    if asked.settings.get("changes_s"):
        raise typer.BadParameter(f"{query} changes downtimes while it runs, and only its own run knows when: use q4")
    url = database_of(database, chosen) if asked.base in OF_DATABASE else ""
    there = Broker(broker_of(broker, chosen))
    inputs = {number: there.read(topics.input(number)) for number in asked.inputs}
    output = there.read(topics.output(asked)) if asked.to_topic else None
    found = judged(asked, inputs, output, url, low_mf03=low_mf03)
    verdict, pairs = found.verdict, found.pairs
    result = {
        "query": query,
        "run": chosen.benchmark_run,
        "inputs": sum(table.num_rows for table in inputs.values()),
        "expected": pairs.expected,
        "results": pairs.actual,
        "correct": pairs.correct,
        "correctness": pairs.correctness,
        "exactly_once": verdict.exactly_once,
        "missing": verdict.missing,
        "doubled": verdict.doubled,
        "wrong": verdict.wrong + verdict.unexpected,
        "out_of_order": verdict.out_of_order,
        **percentiles(list(verdict.latencies_ms.values())),
    }
    show_table(
        f"{query}, run {chosen.benchmark_run}", {"": {k: v for k, v in result.items() if isinstance(v, int | float)}}
    )
    line = json.dumps(result, separators=(",", ":"))
    if out_file is not None:
        out_file.write_text(line + "\n", encoding="utf-8")
    print(line, flush=True)
    if not (pairs.correct and verdict.exactly_once):
        raise typer.Exit(1)
