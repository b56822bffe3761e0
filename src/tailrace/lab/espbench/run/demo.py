"""``tailrace espbench demo``: queries 1 and 4 on Tailrace, live, with a broker, a database and a sender of their own.

Query 1 gives a row a second. In query 4 the planned downtime of machine 1's workplace begins and ends in the database
every few seconds, so its reports stop and go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.data.business import Business
from tailrace.lab.espbench.data.files import SensorSource, write_all
from tailrace.lab.espbench.names import QUERIES
from tailrace.lab.espbench.run.one_run import Conduct, RunOptions, one_run
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.run.reader import ResultReader
from tailrace.lab.espbench.run.servers import servers

SHOWN = {"q1": "average, least, most and count of a sensor in each second", "q4-copies": "records of low power"}
_SHOWN_ROWS = 6
_TEXT = 96
_LOOK_S = 0.25


class Screen:
    """What is under way, and the newest results. Told by the run, drawn by ``Live``."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._what = "starting"
        self._results: ResultReader | None = None
        self._rows: list[str] = []
        self._lock = threading.Lock()

    def progress(self, what: str, done: int, steps: int) -> None:
        self._what = f"{what}, {done} of {steps}" if steps > 1 else what

    def follow(self, results: ResultReader) -> None:
        self._results = results

    def look(self) -> None:
        last = self._results.last if self._results is not None else None
        with self._lock:
            if last is not None and (text := _shortened(last)) not in self._rows[-1:]:
                self._rows = [*self._rows, text][-_SHOWN_ROWS:]

    def __rich__(self) -> Table:
        count = self._results.count if self._results is not None else 0
        table = Table(title=f"{self._title}: {self._what}; {count:,} results", title_justify="left", expand=True)
        table.add_column("newest results", no_wrap=True)
        with self._lock:
            for row in self._rows:
                table.add_row(row)
        return table


def run_demo(rate: int, seconds: int, work: Path, console: Console) -> list[Outcome]:
    data = work / "data"
    console.print("making data: 30,000 orders, and five minutes of two machines ...", style="dim")
    write_all(Business(1, 0, int(time.time())), SensorSource(), data, lambda *_: None)
    config = Config(duration=seconds, duration_time_unit="s").at_rate(rate)
    console.print("starting Kafka and PostgreSQL ...", style="dim")
    outcomes = []
    with servers(config, with_database=True) as started:
        for number, (key, said) in enumerate(SHOWN.items(), 1):
            of_run = replace(config, benchmark_run=number)
            options = RunOptions("tailrace", QUERIES[key], of_run, data, Conduct(patience_s=6, warm_up_s=5))
            with _drawn(Screen(f"{key}, {said}"), console) as screen:
                outcome = one_run(options, started, work / key, screen.progress, screen.follow)
            outcomes.append(outcome)
    return outcomes


@contextmanager
def _drawn(screen: Screen, console: Console) -> Iterator[Screen]:
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            screen.look()

    looking = threading.Thread(target=look, daemon=True)
    with Live(screen, console=console, refresh_per_second=4):
        looking.start()
        try:
            yield screen
        finally:
            ended.set()
            looking.join()


def _shortened(value: bytes) -> str:
    text = value.decode(errors="replace").replace("\t", " ")
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} ..."
