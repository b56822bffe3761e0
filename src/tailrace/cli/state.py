"""``tailrace sql``: ask a query's state."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from tailrace.cli.app import app, err, out

ROWS_SHOWN = 100


@app.command(
    "sql",
    epilog='Examples:  tailrace sql /data/checkpoints/counts "SELECT count(*) FROM aggregate"  ·  tailrace sql '
    's3://bucket/counts "DESCRIBE aggregate" --epoch 41 --json',
)
def state_sql(
    location: Annotated[
        str,
        typer.Argument(help="The query's checkpointLocation or stateLocation: a path, s3://, gs:// or az://."),
    ],
    query: Annotated[str, typer.Argument(help="SQL as DuckDB has it. Each operator is a table.")] = "SHOW TABLES",
    epoch: Annotated[int | None, typer.Option(help="An epoch that is kept.", show_default="the newest")] = None,
    savepoint: Annotated[
        str | None, typer.Option(help="A savepoint that lies there, by its name.", show_default=False)
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(help="An older epoch that is kept: adds tables OPERATOR_changes.", show_default=False),
    ] = None,
    records: Annotated[
        bool, typer.Option("--records", help="What aggregates are made of, and panes in place of windows.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out shards that need a damaged object, and name it.")
    ] = False,
    rows: Annotated[int, typer.Option(help="How many rows to print.", min=0)] = ROWS_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows, as JSON objects, one a line.")] = False,
) -> None:
    """Ask a query's state with SQL. Changes nothing; the query may be running."""
    from tailrace.state_table.checkpoint import open_state  # lazy: see cli.app

    try:
        from tailrace.state_table.sql import sql  # lazy: see cli.app
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{error}: install it with pip install 'tailrace[sql]'") from error
    state = open_state(location, epoch=epoch, savepoint=savepoint, skip_damaged=skip_damaged)
    with sql(state, query, records=records, since=since) as found:
        if as_json:
            for batch in found:
                for row in batch.to_pylist():
                    print(json.dumps(row, default=_plain))
        else:
            _print(found, rows)
    for damage in state.damage:
        shards = ", ".join(map(str, damage.shards))
        err.print(
            f"Left out: shards {shards}, which need {damage.object}. {damage.error}", style="yellow", markup=False
        )


def _print(found: Any, rows: int) -> None:
    table = Table(*(Column(Text(name)) for name in found.schema.names))
    shown = more = 0
    for batch in found:
        for row in batch.slice(0, rows - shown).to_pylist():
            table.add_row(*(Text(_text(value)) for value in row.values()))
        more += max(0, len(batch) - (rows - shown))
        shown += min(len(batch), rows - shown)
    out.print(table)
    out.print(f"{shown:,} rows" + (f", {more:,} more: --rows {shown + more}, or --json" if more else ""))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=_plain).strip('"')


def _plain(value: Any) -> Any:
    """What JSON does not have."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
