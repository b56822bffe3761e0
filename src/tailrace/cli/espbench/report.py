"""``tailrace espbench report``: a folder of results as a page, and as a record that `tailrace report` shows too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tailrace.cli.app import espbench, out
from tailrace.cli.espbench.options import ConfigFile, given_config
from tailrace.cli.options import Records


@espbench.command(
    epilog="Examples:  tailrace espbench report results  ·  tailrace espbench report results --out espbench.html"
)
def report(
    results: Annotated[Path, typer.Argument(help="Folder of results.", file_okay=False, exists=True)],
    out_file: Annotated[Path, typer.Option("--out", help="The page to write.", dir_okay=False)] = Path("espbench.html"),
    config: ConfigFile = None,
    records: Records = None,
) -> None:
    """Make one HTML page of all runs: tables, single latencies and load, beside what was published."""
    from tailrace.lab.espbench.results.files import ResultFolder  # lazy: see cli.app
    from tailrace.lab.espbench.results.summary import record_of  # lazy: see cli.app
    from tailrace.lab.records.record import folder, write  # lazy: see cli.app
    from tailrace.lab.report.page import write_report  # lazy: see cli.app

    record = record_of(ResultFolder(results.resolve()), given_config(config, None, None).topic_prefix)
    write_report([record], [], out_file)
    kept = write(record, folder(records))
    runs = record.parameters["runs"]
    out.print(Text(f"{out_file}: {runs} run{'s' if runs != 1 else ''}; record: {kept}"))
