"""The files of a run, in one folder: a CSV a table as PostgreSQL's COPY reads it, and one a stream as the sender does.

Each file gets its name when it is whole, so that a folder after Ctrl-C has no half file in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tailrace.lab.espbench.data import sensors
from tailrace.lab.espbench.data.business import Business
from tailrace.lab.espbench.data.production_times import production_times

MACHINES = (1, 2)
"""Both send the same rows, and differ in their workplace."""
PRODUCTION_TIMES = "production_times.csv"
NULL = "\\N"

Progress = Callable[[str, int, int], None]


def sensor_file(machine: int) -> str:
    return f"machine_{machine}.csv"


def table_file(table: str) -> str:
    return f"{table}.csv"


@dataclass(frozen=True)
class SensorSource:
    """Where sensors' rows come from: ``path``, a DEBS 2012 file, from row ``skip`` on; else they are synthetic."""

    path: Path | None = None
    skip: int = 0
    rows: int = sensors.ROWS

    def read(self, seed: int) -> pa.StringArray:
        if self.path is None:
            return sensors.synthetic_rows(seed, self.rows)
        return sensors.real_rows(self.path, self.rows, self.skip)


def write_all(business: Business, source: SensorSource, folder: Path, progress: Progress) -> dict[str, int]:
    """Writes every file of a run, and says how many rows each has."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, int] = {}
    steps = 7 + business.as_original + 1 + len(MACHINES)

    def write(name: str, table: pa.Table) -> None:
        progress(f"writing {name}", len(rows), steps)
        _write(folder / name, table)
        rows[name] = table.num_rows

    for name, table in business.tables():
        write(table_file(name), table)
        if name == "order":
            orders, lines = table["O_ID"].to_numpy(), table["O_OL_CNT"].to_numpy()
    write(PRODUCTION_TIMES, production_times(orders, lines, business.as_original))
    sensor_rows = source.read(business.seed)
    for machine in MACHINES:
        write(sensor_file(machine), pa.table({"row": sensors.of_workplace(sensor_rows, machine)}))
    return rows


def _write(path: Path, table: pa.Table) -> None:
    texts = [pc.fill_null(column.cast(pa.string()), NULL) for column in table.columns]
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    part = path.with_name(path.name + ".part")
    if table.num_columns == 1:  # Arrow refuses a value with the delimiter in it, which a sensor's row is full of
        options = csv.WriteOptions(include_header=False, delimiter="\x01", quoting_style="none")
    csv.write_csv(pa.table(texts, names=table.column_names), part, options)
    part.replace(path)
