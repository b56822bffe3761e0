"""``tailrace espbench generate``: the files that a run reads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.app import espbench
from tailrace.cli.console import progress_bar, show_table
from tailrace.cli.options import Seed


@espbench.command(
    epilog="Examples:  tailrace espbench generate --scale 3 --out data  ·  "
    "tailrace espbench generate --sensors DEBS2012.txt --skip 100000 --out data"
)
def generate(
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the files.", file_okay=False)],
    scale: Annotated[int, typer.Option(min=1, help="TPC-C's warehouses: 30,000 orders each.")] = 3,
    sensors: Annotated[
        Path | None,
        typer.Option(help="A DEBS 2012 file, as published; else sensors are synthetic.", dir_okay=False, exists=True),
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="Rows of the DEBS file to pass over.")] = 0,
    rows: Annotated[int, typer.Option(min=500, help="Rows of a sensor file, which is looped.")] = 30_000,
    as_original: Annotated[
        bool, typer.Option("--as-original", help="Keep the slips of the original generator; see the docs.")
    ] = False,
    seed: Seed = 0,
    now: Annotated[datetime | None, typer.Option(help="The moment of all dates, in UTC; else this one.")] = None,
) -> None:
    """Make business tables, production times and sensor files."""
    from tailrace.lab.espbench.data.business import Business  # lazy: see cli.app
    from tailrace.lab.espbench.data.files import SensorSource, write_all  # lazy: see cli.app

    moment = datetime.now(UTC) if now is None else now.replace(tzinfo=UTC)
    business = Business(scale, seed, int(moment.timestamp()), as_original)
    source = SensorSource(sensors, skip, rows // 500 * 500)
    with progress_bar() as progress:
        written = write_all(business, source, out_folder, progress)
    show_table(f"{out_folder}: scale factor {scale}, seed {seed}", {"rows": dict(written)})
