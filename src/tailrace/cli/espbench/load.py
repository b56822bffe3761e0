"""``tailrace espbench import``: the business data into a database that is there."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tailrace.cli.app import espbench
from tailrace.cli.console import progress_bar, show_table
from tailrace.cli.espbench.options import ConfigFile, Data, Database, database_of, given_config
from tailrace.cli.options import names_of


@espbench.command(
    name="import",
    epilog="Examples:  tailrace espbench import --data data --database postgresql://bench@10.0.0.7/bench  ·  "
    "tailrace espbench import --data data --config espbench.toml --tables workplace",
)
def load_data(
    data: Data,
    database: Database = None,
    config: ConfigFile = None,
    tables: Annotated[str | None, typer.Option(help="Tables with commas; else all.")] = None,
) -> None:
    """Make the tables where they are missing, empty them, and copy the files in. Ctrl-C leaves them as they were."""
    from tailrace.lab.espbench.data.load import TABLES, load  # lazy: see cli.app

    url = database_of(database, given_config(config, None, None))
    names = tuple(TABLES) if tables is None else names_of(tables, TABLES, "--tables")
    with progress_bar() as progress:
        rows = load(url, data, names, progress)
    show_table("imported", {"rows": dict(rows)})
    print(json.dumps({"imported": rows}, separators=(",", ":")), flush=True)
