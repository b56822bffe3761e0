"""``tailrace gadget analyze``, ``compare``, ``advise``, ``export``: what traces are like.

See docs/explanation/gadget-analysis.md.

A trace is a file that `generate` wrote, or what a query with the option recordAccesses has recorded: a file
(`*.accesses`), or a folder with one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.app import gadget as gadget_app
from tailrace.cli.app import out
from tailrace.cli.console import give, progress_bar
from tailrace.cli.options import OutFile, Records

if TYPE_CHECKING:
    from tailrace.lab.gadget.advisor import Advice
    from tailrace.lab.gadget.analysis.compare import Comparison
    from tailrace.lab.gadget.analysis.summary import Analysis
    from tailrace.lab.gadget.traces.trace import Trace

TraceFile = Annotated[Path, typer.Argument(help="A trace, or a recording of a query.", show_default=False)]
ShuffleSeed = Annotated[int, typer.Option(min=0, help="Of the shuffled trace, and of keys that are sampled.")]
LENGTHS_SHOWN = (1, 2, 5, 10)


@gadget_app.command(
    epilog="Examples:  tailrace gadget analyze trace.parquet  ·  tailrace gadget analyze *.parquet  ·  "
    "tailrace gadget analyze /data/accesses, which a query has recorded"
)
def analyze(
    traces: Annotated[list[Path], typer.Argument(help="Traces, or recordings of queries.", show_default=False)],
    seed: ShuffleSeed = 1,
    out_file: OutFile = None,
    records: Records = None,
) -> None:
    """Show composition, amplification, locality and lives of keys, beside the shuffled trace. The last line is JSON."""
    from tailrace.lab.gadget.advisor import advise as advice_of  # lazy: see cli.app
    from tailrace.lab.gadget.analysis.summary import analyze as analysis_of  # lazy: see cli.app
    from tailrace.lab.records.record import Recording  # lazy: see cli.app

    recording = Recording("bench", "gadget-analyze")
    found: dict[str, Analysis] = {}
    analyses: dict[str, Any] = {}
    with progress_bar() as report:
        for at, path in enumerate(traces):
            report(f"analysing {path.name}", at, len(traces))
            trace = _read(path)
            name = _name(path, trace, found)
            found[name] = analysis_of(trace, seed)
            curve = [(point.entries, point.miss_ratio) for point in advice_of(trace).curve]
            analyses[name] = {**found[name].to_json(), "miss_ratios": curve}
    _show_inputs(found)
    _show_order(found)
    record = recording.end({"traces": ", ".join(found), "seed": seed}, {"traces": analyses}, {})
    give({"seed": seed, "traces": {name: each.to_json() for name, each in found.items()}}, out_file, record, records)


@gadget_app.command(
    epilog="Examples:  tailrace gadget compare simulated.parquet /data/accesses  ·  "
    "tailrace gadget compare borg.parquet ycsb.parquet"
)
def compare(
    first: TraceFile,
    second: TraceFile,
    seed: ShuffleSeed = 1,
    out_file: OutFile = None,
) -> None:
    """Show two traces side by side, and how far the second is from the first. The last line is JSON."""
    from tailrace.lab.gadget.analysis.compare import compare as comparison_of  # lazy: see cli.app

    found = comparison_of(_read(first), _read(second), seed)
    _show_comparison(found, first.name, second.name)
    _give(found.to_json(), out_file)


@gadget_app.command(
    epilog="Examples:  tailrace gadget advise trace.parquet  ·  tailrace gadget advise /data/accesses --hits 0.95"
)
def advise(
    trace: TraceFile,
    hits: Annotated[
        float,
        typer.Option(min=0.01, max=1.0, help="Of the hits of an unlimited cache, the share that shall be had."),
    ] = 0.99,
    out_file: OutFile = None,
) -> None:
    """Recommend a store pattern and a cache size for a trace, with what they gain. The last line is JSON."""
    from tailrace.lab.gadget.advisor import advise as advice_of  # lazy: see cli.app

    found = advice_of(_read(trace), hits)
    _show_advice(found, trace.name)
    _give(found.to_json(), out_file)


@gadget_app.command(epilog="Examples:  tailrace gadget export /data/accesses --out real.parquet")
def export(
    recording: Annotated[Path, typer.Argument(help="What a query has recorded.", show_default=False)],
    out_file: Annotated[Path, typer.Option("--out", help="The trace to write.", dir_okay=False)] = Path(
        "trace.parquet"
    ),
) -> None:
    """Turn a recording of a query into a trace, which every other command takes. The last line is JSON."""
    from tailrace.lab.gadget.traces.recording import read_recording  # lazy: see cli.app
    from tailrace.lab.gadget.traces.trace import write_trace  # lazy: see cli.app

    found = read_recording(recording)
    write_trace(out_file, found)
    out.print(Text(f"{out_file}: {len(found):,} accesses to {found.distinct_keys:,} keys"))
    _give({"trace": str(out_file), "accesses": len(found), "keys": found.distinct_keys, **found.metadata}, None)


def _read(path: Path) -> Trace:
    from tailrace.lab.gadget.traces.recording import read_any  # lazy: see cli.app

    return read_any(path)


def _name(path: Path, trace: Trace, taken: Sequence[str] | dict[str, Any]) -> str:
    """The trace's workload and origin, or its file's name; numbered where that is taken."""
    workload = trace.metadata.get("workload")
    origin = trace.metadata.get("origin", "")
    name = path.stem if workload is None else f"{workload}{f', {origin}' if origin not in ('', 'simulated') else ''}"
    names = [name, f"{name} ({path.name})", *(f"{name} ({number})" for number in range(2, len(taken) + 3))]
    return next(each for each in names if each not in taken)


def _give(result: dict[str, Any], path: Path | None) -> None:
    line = json.dumps(result, separators=(",", ":"))
    if path is not None:
        path.write_text(line + "\n", encoding="utf-8")
    print(line, flush=True)  # not through rich, which would fold it


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at == 0 else "right", overflow="fold")
    return table


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def _show_inputs(found: dict[str, Analysis]) -> None:
    table = _table("Composition", ("", "accesses", "get", "put", "merge", "delete", "an event"))
    for name, each in found.items():
        shares = [f"{each.composition[operation]:.3f}" for operation in ("get", "put", "merge", "delete")]
        table.add_row(name, _number(each.accesses), *shares, _number(each.event_amplification))
    out.print(table)
    heads = ("", "events", "keys", "a key", "KS D", "p", "Wasserstein", "once")
    table = _table("State keys against the input's keys; keys with one access", heads)
    for name, each in found.items():
        ratios = (each.key_space_amplification, each.ks_distance, each.ks_p_value)
        far = (*(_number(ratio) for ratio in ratios), _number(each.wasserstein, 1))
        table.add_row(name, _number(each.events), _number(each.keys), *far, f"{each.single_access_share:.1%}")
    out.print(table)


def _show_order(found: dict[str, Analysis]) -> None:
    lengths = [f"{length} {'key' if length == 1 else 'keys'}" for length in LENGTHS_SHOWN]
    locality = _table("Locality: mean stack distance, unique sequences", ("", "distance", *lengths))
    heads = ("", "p50", "p90", "p99.9", "max", "active", "at most")
    lives = _table("Lives of keys in steps, and how many are active", heads)
    for name, each in found.items():
        for label, order in ((Text(name), each.trace), (Text("  shuffled", style="dim"), each.shuffled)):
            sequences = [_number(order.unique_sequences[length - 1]) for length in LENGTHS_SHOWN]
            locality.add_row(label, _number(order.mean_stack_distance, 2), *sequences)
            steps = [_number(order.time_to_live.get(life)) for life in ("p50", "p90", "p99.9", "max")]
            lives.add_row(label, *steps, _number(order.working_set_mean, 1), _number(order.working_set_max))
    out.print(locality)
    out.print(lives)


def _show_comparison(found: Comparison, first: str, second: str) -> None:
    table = _table("Two traces", ("", first, second, "difference"))
    table.add_row("accesses", *(_number(each) for each in found.accesses), "")
    table.add_row("keys", *(_number(each) for each in found.keys), "")
    for operation in found.compositions[0]:
        shares = [each[operation] for each in found.compositions]
        points = f"{100 * abs(shares[0] - shares[1]):.2f} points"
        table.add_row(operation, *(f"{share:.3f}" for share in shares), points)
    means = [_number(each.mean_stack_distance, 2) for each in found.metrics]
    table.add_row("mean stack distance", *means, _percent(found.stack_distance_difference))
    for length in LENGTHS_SHOWN:
        counts = [each.unique_sequences[length - 1] for each in found.metrics]
        table.add_row(f"unique sequences of {length}", *(_number(count) for count in counts), "")
    table.add_row("unique sequences, at most", "", "", _percent(found.sequences_difference))
    sets = [_number(each.working_set_max) for each in found.metrics]
    table.add_row("largest working set", *sets, _percent(found.working_set_difference))
    if found.key_test is not None:
        table.add_row("keys, KS", "", "", f"D {found.key_test.distance:.3f}, p {found.key_test.p_value:.3g}")
        table.add_row("keys, Wasserstein", "", "", _number(found.wasserstein, 1))
    out.print(table)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.2f} MB" if count >= 100_000 else f"{count / 1e3:,.2f} kB"


def _show_advice(found: Advice, name: str) -> None:
    table = _table(f"Cache sizes for {name}", ("entries", "bytes", "misses", "of these avoidable", ""))
    for point in found.curve:
        advised = point.entries == found.cache.entries
        cells = (_number(point.entries), _bytes(point.bytes), f"{point.miss_ratio:.2%}")
        table.add_row(*cells, f"{point.avoidable_miss_ratio:.2%}", "advised" if advised else "", style="bold" * advised)
    out.print(table)
    costs = found.costs
    out.print(
        Text.assemble("Store: ", (found.pattern, "bold"), f' ({found.reason}); in a query: .store("{found.pattern}")')
    )
    moved = _bytes(min(costs.rmw_bytes, costs.append_bytes))
    other = "appending" if found.pattern == "RMW" else "changing values in place"
    looks = "" if found.pattern == "RMW" else f", and looks up {found.lookups_gain:,.1f} times as many places"
    out.print(f"It moves {moved}; {other} moves {found.bytes_gain:,.2f} times as much{looks}.")
    out.print(
        f"Cache: {found.cache.entries:,} entries, {_bytes(found.cache.bytes)}, of {found.working_set_max:,} keys "
        f"that are active at most. It saves {found.reads_saved_share:.1%} of the reads that no store need do twice; "
        f"{found.first_share:.1%} of accesses are the first to their key and miss in any cache."
    )
