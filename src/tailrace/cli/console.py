"""What commands share while they work and when they are done: a folder, a progress bar, tables, the last line."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tailrace.cli.app import err, out
from tailrace.errors import TailraceError


@contextmanager
def work_folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        if work.exists() and any(work.iterdir()):
            raise TailraceError(
                f"{work} is not empty: give --work a new folder, so that nothing of yours is overwritten"
            )
        work.mkdir(parents=True, exist_ok=True)
        yield work.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="tailrace-lab-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def progress_bar() -> Iterator[Any]:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def report(what: str, done: int, steps: int) -> None:
            bar.update(task, description=what, completed=done, total=steps)

        yield report


@contextmanager
def epoch_watcher(engine: str) -> Iterator[Any]:
    """As `progress_bar`, with the newest epoch's rate and state."""
    with progress_bar() as report:

        class Watcher:
            def stage(self, what: str, done: int, steps: int) -> None:
                report(what, done, steps)

            def epoch(self, epoch: Any, done: int, steps: int) -> None:
                state = "" if epoch.state_rows is None else f", {epoch.state_rows:,} state rows"
                report(f"{engine}: epoch {epoch.epoch}, {epoch.rows_per_s:,.0f} rows/s{state}", done, steps)

        yield Watcher()


def show_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    """A table of named columns of named numbers."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    for name in names:
        values = [column.get(name) for column in columns.values()]
        table.add_row(name, *("" if value is None else f"{value:,}" for value in values))
    out.print(table)


def give(result: dict[str, Any], path: Path | None, record: Any, records: Path | None) -> None:
    from tailrace.lab.records.record import folder, write  # lazy: see cli.app

    line = json.dumps(result, separators=(",", ":"))
    if path is not None:
        path.write_text(line + "\n", encoding="utf-8")
    try:
        err.print(Text(f"record: {write(record, folder(records))}", style="dim"))
    finally:  # minutes of measuring are not lost for want of a folder
        print(line, flush=True)  # not through rich, which would fold it
