"""``tailrace demo``: a windowed query over a stream of bids, live; then the same stream through Spark's RocksDB store.

The two run one after the other in one Spark session, Tailrace first, so what the JVM has already compiled helps Spark's
store. Times are Spark's ``triggerExecution`` for both; each engine's first batches (start-up) are not counted.
Every row of every closed window must be equal in both, or the demo fails.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tailrace.errors import TailraceError
from tailrace.lab.bench import measure
from tailrace.lab.engines.peers import ROCKSDB_CONFS
from tailrace.lab.engines.progress import Batch, progress_dict
from tailrace.lab.engines.session import start_session
from tailrace.lab.workloads.bids_window import DELAY, SLIDE, WINDOW, flat, make_bids, spark_query, tailrace_query
from tailrace.lab.workloads.events import BID_SCHEMA, write_batch

OURS, PEER = "Tailrace", "Spark RocksDB"
WARMUP = 2
_SHOWN_ROWS = 8


@dataclass(frozen=True)
class DemoOptions:
    rows: int
    auctions: int
    batches: int
    seed: int


@dataclass
class Run:
    """What one engine did. Filled by Spark's callback thread, read by the main thread once the query has ended."""

    engine: str
    batches: list[Batch] = field(default_factory=list)
    output: list[pa.Table] = field(default_factory=list)

    @property
    def counted(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.rows][WARMUP:]

    @property
    def batch_ms(self) -> float:
        return measure.median([batch.ms for batch in self.counted])

    @property
    def rows_per_s(self) -> float:
        return measure.median([batch.rows / batch.ms * 1e3 for batch in self.counted])

    def save(self, rows: DataFrame, epoch: int) -> None:
        self.output.append(rows.toArrow())

    def answer(self) -> pa.Table:
        """All closed windows, in an order of their own."""
        closed = [flat(table) for table in self.output if table.num_rows]
        if not closed:
            raise TailraceError(f"{self.engine} closed no window: give the demo more batches")
        return pa.concat_tables(closed).sort_by([("start", "ascending"), ("auction", "ascending")]).combine_chunks()


def read_bids(spark: SparkSession, feed: Path) -> DataFrame:
    return spark.readStream.schema(BID_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(feed))


class _Listener(StreamingQueryListener):
    """Receives the progress of every batch of every query in the session and passes it to the query that runs."""

    def __init__(self) -> None:
        self.hear: Callable[[dict[str, Any]], None] = lambda progress: None
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.hear(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.set()


class Demo:
    def __init__(self, options: DemoOptions, work: Path, console: Console) -> None:
        self.options = options
        self.work = work
        self.console = console
        self.feed = work / "bids"
        self.bids = make_bids(options.rows, options.auctions, options.seed)
        self.late = 0

    def run(self) -> None:
        say = self.console.print
        self._make_files()
        say("starting Spark ...", style="dim")
        log = self.work / "spark.log"
        spark = start_session("tailrace demo", work=self.work, heap="4g", extra=ROCKSDB_CONFS, log=log)
        try:
            listener = _Listener()
            spark.streams.addListener(listener)
            ours = self._run(spark, listener, OURS, tailrace_query)
            self._show_results(ours)
            peer = self._run(spark, listener, PEER, spark_query)
        finally:
            for query in spark.streams.active:
                query.stop()
            spark.stop()
        self._compare(ours, peer)

    def _make_files(self) -> None:
        options = self.options
        self.console.print(
            f"[bold]A stream of {options.rows * options.batches:,} bids[/] on {options.auctions:,} auctions, "
            f"{options.rows:,} a micro-batch, some out of order, a few hopelessly late."
        )
        self.console.print(
            f"Query: bids and highest price of each auction in every {WINDOW}, moving by {SLIDE}; "
            f"a window closes when the stream is {DELAY} past its end.",
        )
        for number in range(options.batches):
            table = self.bids.batch(number)
            self.late += self.bids.late_rows(table)
            write_batch(table, self.feed, f"{number:06d}", measure.cores())

    def _run(self, spark: SparkSession, listener: _Listener, engine: str, build: Callable[[DataFrame], Any]) -> Run:
        run = Run(engine)
        bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        task = bar.add_task(engine, total=self.options.batches)
        started: list[Any] = []

        def hear(progress: dict[str, Any]) -> None:
            # Tailrace knows more of its state than Spark does; it says so in the same words.
            own = progress_dict(started[0].lastProgress) if started and engine == OURS else {}
            run.batches.append(Batch.of(progress, own))
            bar.update(task, completed=sum(1 for batch in run.batches if batch.rows))
            live.update(Group(bar, _status(run)))

        listener.hear = hear
        listener.ended.clear()
        with Live(Group(bar, _status(run)), console=self.console, refresh_per_second=8) as live:
            started.append(
                build(read_bids(spark, self.feed))
                .writeStream.outputMode("append")
                .foreachBatch(run.save)
                .option("checkpointLocation", str(self.work / "checkpoints" / engine.replace(" ", "-").lower()))
                .trigger(availableNow=True)
                .start()
            )
            try:
                started[0].awaitTermination()
            except StreamingQueryException as error:
                # What follows is the plan, pages of it, which is no help here.
                raise TailraceError(f"{engine} failed: {str(error).partition('=== Streaming Query ===')[0]}") from error
            listener.ended.wait(10)  # events come a moment after the query's end
        return run

    def _show_results(self, run: Run) -> None:
        answer = run.answer()
        newest = pc.max(answer["start"]).as_py()
        last = answer.filter(pc.equal(answer["start"], newest))
        last = last.sort_by([("bids", "descending"), ("auction", "ascending")])
        self.console.print(f"The last window that closed, {_time(newest)} to {_time(last['end'][0].as_py())}:")
        table = Table()
        for name in ("auction", "bids", "highest price"):
            table.add_column(name, justify="right")
        for row in last.slice(0, _SHOWN_ROWS).to_pylist():
            table.add_row(f"{row['auction']:,}", f"{row['bids']:,}", f"{row['top']:,}")
        self.console.print(table)
        self.console.print(f"... and {max(0, last.num_rows - _SHOWN_ROWS):,} more auctions in it", style="dim")

    def _compare(self, ours: Run, peer: Run) -> None:
        mine, theirs = ours.answer(), peer.answer()
        if not mine.equals(theirs):
            raise TailraceError(
                f"the answers differ: Tailrace gave {mine.num_rows:,} rows of windows, Spark {theirs.num_rows:,}: "
                f"a fault of Tailrace: please report it with the seed {self.options.seed}"
            )
        self.console.print("Side by side (medians, start-up left out):")
        table = Table()
        table.add_column("")
        for run in (ours, peer):
            table.add_column(run.engine, justify="right")
        table.add_row("time a batch", *(f"{run.batch_ms:,.0f} ms" for run in (ours, peer)))
        table.add_row("rows a second", *(f"{run.rows_per_s:,.0f}" for run in (ours, peer)))
        table.add_row("rows of closed windows", *(f"{answer.num_rows:,}" for answer in (mine, theirs)))
        self.console.print(table)
        self.console.print(
            f"Same answers: all {mine.num_rows:,} rows are equal, and {self.late:,} late bids were left out by both. "
            f"Tailrace took [bold]1/{peer.batch_ms / ours.batch_ms:.1f}[/] of the time a batch."
        )


def _status(run: Run) -> Table:
    """The newest batch. Spark's store is spared counting its rows, and it counts a late row once for each window."""
    columns = ["epoch", "rows/s", "ms", "watermark"]
    if run.engine == OURS:
        columns += ["state rows", "late rows"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="right")
    if not run.batches:
        table.add_row("-", "-", "-", "starting ...")
        return table
    last = run.batches[-1]
    rate = f"{last.rows / last.ms * 1e3:,.0f}" if last.ms else "-"
    late = sum(batch.late_rows for batch in run.batches)
    cells = [str(last.epoch), rate, f"{last.ms:,.0f}", last.watermark[:19].replace("T", " ") or "-"]
    table.add_row(*cells, *([f"{last.state_rows:,}", f"{late:,}"] if run.engine == OURS else []))
    return table


def _time(micros: int) -> str:
    return str(pa.scalar(micros, pa.timestamp("us")).cast(pa.timestamp("s")).as_py())
