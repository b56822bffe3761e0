"""``tailrace gadget generate``, ``ycsb``, ``import``, ``workloads``: traces of state accesses.

See docs/explanation/gadget.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.app import err, out
from tailrace.cli.app import gadget as gadget_app
from tailrace.cli.console import progress_bar
from tailrace.cli.options import Seed

if TYPE_CHECKING:
    from tailrace.lab.gadget.settings.config import Config
    from tailrace.lab.gadget.traces.trace import Trace

TraceOut = Annotated[Path, typer.Option("--out", help="The trace to write.", dir_okay=False)]
_BOTH = ("first.event.generator.", "second.event.generator.")


@gadget_app.command(
    epilog="Examples:  tailrace gadget generate aggregation --source borg  ·  "
    "tailrace gadget generate sliding-holistic --events 2M --keys zipf:s=0.9,keyspacesize=10k --slide 0.5  ·  "
    "tailrace gadget generate --config joins.txt --seed 7  ·  "
    "tailrace gadget generate session-incremental --source trips.csv --format taxi-trips"
)
def generate(
    workload: Annotated[
        str | None, typer.Argument(help="Its name; `tailrace gadget workloads` lists them. Else --config names it.")
    ] = None,
    out_file: TraceOut = Path("trace.parquet"),
    config: Annotated[
        Path | None,
        typer.Option(
            help="Lines of name = value, see docs/explanation/gadget.md; options win over it.", dir_okay=False
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="gadget (from distributions), borg, taxi or azure (synthetic stand-ins), or an event file."),
    ] = None,
    left: Annotated[str | None, typer.Option(help="The left input of a join, if it is not --source.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="What the event file is, such as borg-2011-tasks or taxi-trips.")
    ] = None,
    left_form: Annotated[str | None, typer.Option("--left-format", help="The same for --left.")] = None,
    events: Annotated[str | None, typer.Option(help="Events of each input, as 2000, 500k or 10M.")] = None,
    operations: Annotated[str | None, typer.Option(help="Stop after so many accesses.")] = None,
    keys: Annotated[
        str | None, typer.Option(help="Event keys, as zipf:s=1,keyspacesize=1000000, hotspot:..., ecdf:file=keys.csv.")
    ] = None,
    gaps: Annotated[
        str | None,
        typer.Option(help="Seconds between events, as exponential:lambda=10 (Poisson), constant:constant=1."),
    ] = None,
    late: Annotated[float | None, typer.Option(help="Per cent of events that come late.")] = None,
    lateness: Annotated[int | None, typer.Option(help="By so many seconds at most.")] = None,
    watermark_events: Annotated[int | None, typer.Option(help="A watermark after every so many events [100].")] = None,
    watermark_seconds: Annotated[float | None, typer.Option(help="A watermark every so many seconds instead.")] = None,
    window: Annotated[float | None, typer.Option(help="Length of windows in seconds [5].")] = None,
    slide: Annotated[float | None, typer.Option(help="Slide in seconds [1].")] = None,
    gap: Annotated[float | None, typer.Option(help="Gap of sessions in seconds [120].")] = None,
    lower: Annotated[float | None, typer.Option(help="Lower bound of an interval join in seconds [-120].")] = None,
    upper: Annotated[float | None, typer.Option(help="Upper bound [180].")] = None,
    allowed_lateness: Annotated[float | None, typer.Option(help="How long windows are kept for late events.")] = None,
    value_size: Annotated[
        str | None, typer.Option(help="Bytes of values, as constant:constant=10, uniform:a=8,b=64.")
    ] = None,
    key_size: Annotated[str | None, typer.Option(help="Bytes of state keys, likewise.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="Any name of a configuration, as name=value. May be repeated.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed makes the same trace [1].")] = None,
) -> None:
    """Make the trace of a streaming operator: what it asks of its state store, without any engine."""
    from tailrace.lab.gadget.events.event_files import EventFileError  # lazy: see cli.app
    from tailrace.lab.gadget.generate import generation  # lazy: see cli.app
    from tailrace.lab.gadget.settings.config import Config, ConfigError  # lazy: see cli.app

    try:
        made = Config()
        if config is not None:
            made.read(config)
        if workload is not None:
            made.set("operator.type", workload, "workload")
        _set_source(made, _BOTH, ("--source", source), ("--format", form))
        _set_source(made, _BOTH[:1], ("--left", left), ("--left-format", left_form))
        for prefix in _BOTH:
            _set_texts(
                made,
                prefix,
                {
                    "events": ("--events", events),
                    "outoforder.percentage": ("--late", late),
                    "lateness.threshold": ("--lateness", lateness),
                    "watermark.events": ("--watermark-events", watermark_events),
                    "watermark.frequency": ("--watermark-seconds", watermark_seconds),
                },
            )
            for name, option, text in (
                ("key.popularity.distrib", "--keys", keys),
                ("event.occurrence.gap.distrib", "--gaps", gaps),
            ):
                if text is not None:
                    made.set_distribution(prefix + name, text, option)
        _set_texts(
            made,
            "",
            {
                "expected.num.operations": ("--operations", operations),
                "window.length": ("--window", window),
                "sliding.length": ("--slide", slide),
                "session.gap": ("--gap", gap),
                "lower.bound": ("--lower", lower),
                "upper.bound": ("--upper", upper),
                "lateness.length": ("--allowed-lateness", allowed_lateness),
                "seed": ("--seed", seed),
            },
        )
        for name, option, text in (
            ("operator.value.size.distrib", "--value-size", value_size),
            ("operator.key.size.distrib", "--key-size", key_size),
        ):
            if text is not None:
                made.set_distribution(name, text, option)
        for one in given or []:
            name, _, value = one.partition("=")
            made.set(name.strip(), value.strip(), f"--set {one}")
        planned = generation(made.settings())
    except (ConfigError, EventFileError) as error:
        raise typer.BadParameter(str(error)) from error
    _write(planned.pieces(), planned.metadata(), planned.events, out_file)


_Option = tuple[str, object]
"""Its name, and what was given."""


def _set_source(made: Config, prefixes: tuple[str, ...], source: _Option, form: _Option) -> None:
    from tailrace.lab.gadget.events.stand_ins import NAMES  # lazy: see cli.app

    for prefix in prefixes:
        option, name = source
        if name is not None:
            is_file = name not in ("gadget", *NAMES)
            made.set(f"{prefix}type", "tracefile" if is_file else str(name), option)
            if is_file:
                made.set(f"{prefix}file.path", str(name), option)
        _set_texts(made, prefix, {"file.format": form})


def _set_texts(made: Config, prefix: str, values: dict[str, _Option]) -> None:
    for name, (option, value) in values.items():
        if value is not None:
            made.set(prefix + name, str(value), option)


def _write(pieces: Iterable[Trace], metadata: dict[str, str], events: int, path: Path) -> None:
    import numpy as np  # lazy: see cli.app

    from tailrace.lab.gadget.traces.trace import Operation, TraceWriter  # lazy: see cli.app

    counts = np.zeros(len(Operation), np.int64)
    done = keys = 0
    with progress_bar() as report, TraceWriter(path, metadata) as writer:
        report("events", 0, events)
        for piece in pieces:
            writer.write(piece)
            counts += np.bincount(piece.operations, minlength=len(counts))
            keys = max(keys, piece.distinct_keys)
            done += len(piece.events) if piece.events is not None else len(piece)
            report(f"{counts.sum():,} accesses; events", done, events)
    _show(path, counts.tolist(), keys, done)


def _show(path: Path, counts: list[int], keys: int, events: int | None) -> None:
    from tailrace.lab.gadget.traces.trace import Operation  # lazy: see cli.app

    total = sum(counts)
    title = f"{path}: {total:,} accesses to {keys:,} state keys" + (f" from {events:,} events" if events else "")
    table = Table(title=title, title_justify="left")
    for one in Operation:
        table.add_column(one.name.lower(), justify="right")
    table.add_row(*(f"{count / max(total, 1):.3f}" for count in counts))
    table.add_row(*(f"{count:,}" for count in counts))
    out.print(table)


@gadget_app.command(
    epilog="Examples:  tailrace gadget ycsb A --out a.parquet  ·  tailrace gadget ycsb F --requests hotspot  ·  "
    "tailrace gadget ycsb --like trace.parquet --requests latest"
)
def ycsb(
    workload: Annotated[str | None, typer.Argument(help="A, B, C, D or F.")] = None,
    out_file: TraceOut = Path("ycsb.parquet"),
    requests: Annotated[
        str | None, typer.Option(help="uniform, zipfian, latest, hotspot, sequential or exponential.")
    ] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Records in the store at the start [1000].")] = None,
    operations: Annotated[str | None, typer.Option(help="Operations, as 500k [1M].")] = None,
    value_bytes: Annotated[int | None, typer.Option(min=1, help="Bytes of a value [256].")] = None,
    like: Annotated[
        Path | None, typer.Option(help="Tune YCSB to this trace: as many operations, keys and reads.", dir_okay=False)
    ] = None,
    seed: Seed = 1,
) -> None:
    """Make the trace of a YCSB core workload, with any of YCSB's request distributions."""
    from dataclasses import replace  # lazy: see cli.app

    from tailrace.errors import TailraceError  # lazy: see cli.app
    from tailrace.lab.gadget.events import ycsb as made  # lazy: see cli.app
    from tailrace.lab.gadget.events.distributions import whole  # lazy: see cli.app
    from tailrace.lab.gadget.traces.trace import read_trace  # lazy: see cli.app

    if (workload is None) == (like is None):
        raise typer.BadParameter("name a workload (A, B, C, D or F) or a trace (--like), one of the two")
    try:
        changes: dict[str, object] = {"requests": requests, "records": records, "value_bytes": value_bytes}
        changes["operations"] = None if operations is None else whole(operations)
        changes = {name: value for name, value in changes.items() if value is not None}
        if like is not None:
            planned = replace(made.tuned_to(read_trace(like), requests or "zipfian"), **changes)  # type: ignore[arg-type]
        else:
            planned = made.core(workload or "", **changes)
    except ValueError as error:
        raise typer.BadParameter(
            f"{operations!r} is not a whole number, such as 500k", param_hint="--operations"
        ) from error
    except TailraceError as error:
        raise typer.BadParameter(str(error)) from error
    trace = planned.trace(seed)
    _write([trace], dict(trace.metadata), len(trace), out_file)


@gadget_app.command(
    name="import",
    epilog="Examples:  tailrace gadget import ycsb run.txt --out run.parquet  ·  tailrace gadget import flink a.log",
)
def import_(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="ycsb, gadget or flink.")],
    path: Annotated[Path, typer.Argument(help="The text file.", dir_okay=False)],
    out_file: TraceOut = Path("trace.parquet"),
    value_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a value where the text does not say.")] = 256,
    update: Annotated[str, typer.Option(help="What YCSB's UPDATE becomes: put or merge.")] = "put",
) -> None:
    """Turn a trace of another tool into one that Tailrace reads: YCSB's plain output, Gadget's dumps, Flink traces."""
    from tailrace.lab.gadget.traces.text_traces import read_text_trace  # lazy: see cli.app
    from tailrace.lab.gadget.traces.trace import TraceError  # lazy: see cli.app

    try:
        trace = read_text_trace(path, form, value_bytes, update)
    except TraceError as error:
        raise typer.BadParameter(str(error)) from error
    if trace.metadata["scans_left_out"] != "0":
        err.print(Text(f"left out: {trace.metadata['scans_left_out']} scans", style="yellow"))
    _write([trace], dict(trace.metadata), len(trace), out_file)


@gadget_app.command(name="workloads", epilog="Examples:  tailrace gadget workloads")
def list_workloads() -> None:
    """List the eleven workloads, those over all keys together, and the event files that are known by name."""
    from tailrace.lab.gadget.events.event_files import FORMATS  # lazy: see cli.app
    from tailrace.lab.gadget.workloads import NON_KEYED, WORKLOADS  # lazy: see cli.app

    table = Table()
    for name in ("workload", "in the paper", "inputs", "a store sees"):
        table.add_column(name, no_wrap=True)
    for one in WORKLOADS.values():
        table.add_row(one.name, one.paper_name, str(one.inputs), one.pattern)
    out.print(table)
    out.print(Text(f"Over all keys together, as if all events had one key: {', '.join(NON_KEYED)}"))
    out.print(Text(f"Event files (--format): {', '.join(FORMATS)}"))
    out.print(Text("Synthetic stand-ins (--source): borg, taxi, azure"))
