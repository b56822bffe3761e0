"""The command and its groups, and where they print: results to standard output, all else to standard error.

Commands import what they run when they run it (``# lazy: see cli.app``): Spark and the kernels take seconds to import,
and ``--help`` and wrong options must not wait for them.
"""

from __future__ import annotations

import typer
from rich.console import Console

app = typer.Typer(
    name="tailrace",
    help="Tailrace: a state engine for PySpark Structured Streaming.",
    epilog="Examples:  tailrace demo  ·  tailrace run bids-window  ·  tailrace bench rmw --batches 5",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _group(name: str, help_: str, examples: str) -> typer.Typer:
    group = typer.Typer(help=help_, epilog=f"Examples:  {examples}", no_args_is_help=True)
    app.add_typer(group, name=name)
    return group


bench = _group(
    "bench",
    "Measure Tailrace against Spark's own stores, in turns in one run. The last line of output is a JSON object.",
    "tailrace bench rmw  ·  tailrace bench rmw --rows 50000 --engines tailrace,spark-rocksdb",
)
checkpoint = _group(
    "checkpoint", "Inspect the checkpoint of a query.", "tailrace checkpoint inspect /data/checkpoints/counts"
)
savepoint = _group(
    "savepoint",
    "Name an epoch of a query to keep it, copy it elsewhere, and start queries from it.",
    "tailrace savepoint create /data/checkpoints/counts before-deploy  ·  tailrace savepoint list s3://bucket/saved",
)
gadget = _group(
    "gadget",
    "Measure any state store with the access patterns of streaming operators.",
    "tailrace gadget workloads  ·  tailrace gadget generate tumbling-incremental --out trace.parquet",
)
espbench = _group(
    "espbench",
    "ESPBench, the benchmark of enterprise streams: Kafka, PostgreSQL and five queries.",
    "tailrace espbench generate --scale 3 --out data",
)

out = Console()

err = Console(stderr=True)
