"""The command and its groups, and where they print: results to standard output, all else to standard error."""

from __future__ import annotations

import typer
from rich.console import Console

LAZY = "Spark and the kernels take seconds to import; --help and wrong options must not wait for them"

app = typer.Typer(
    name="tailrace",
    help="Tailrace: a state engine for PySpark Structured Streaming.",
    epilog="Examples:  tailrace demo  ·  tailrace run bids-window  ·  tailrace bench rmw --batches 5",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

bench = typer.Typer(
    help="Measure Tailrace against Spark's own stores, in turns in one run. The last line of output is a JSON object.",
    epilog="Examples:  tailrace bench rmw  ·  tailrace bench rmw --rows 50000 --engines tailrace,spark-rocksdb",
    no_args_is_help=True,
)
app.add_typer(bench, name="bench")

checkpoint = typer.Typer(
    help="Inspect the checkpoint of a query.",
    epilog="Examples:  tailrace checkpoint inspect /data/checkpoints/counts",
    no_args_is_help=True,
)
app.add_typer(checkpoint, name="checkpoint")

gadget = typer.Typer(
    help="Measure any state store with the access patterns of streaming operators.",
    epilog="Examples:  tailrace gadget workloads  ·  tailrace gadget generate tumbling-incremental --out trace.parquet",
    no_args_is_help=True,
)
app.add_typer(gadget, name="gadget")

espbench = typer.Typer(
    help="ESPBench, the benchmark of enterprise streams: Kafka, PostgreSQL and five queries.",
    epilog="Examples:  tailrace espbench generate --scale 3 --out data",
    no_args_is_help=True,
)
app.add_typer(espbench, name="espbench")

out = Console()

err = Console(stderr=True)
