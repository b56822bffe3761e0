"""``tailrace gadget bench``, ``replay`` and ``stores``: traces on state stores.

See docs/explanation/gadget-stores.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.app import gadget as gadget_app
from tailrace.cli.app import out
from tailrace.cli.console import give, progress_bar, show_table, work_folder
from tailrace.cli.options import OutFile, Records, Seed, Work, count_of, names_of

if TYPE_CHECKING:
    from tailrace.lab.gadget.replay.replay import Latencies, Pass

Memory = Annotated[int, typer.Option("--memory-mb", min=1, help="Memory of each store, in megabytes.")]


@gadget_app.command(
    epilog="Examples:  tailrace gadget bench --all  ·  "
    "tailrace gadget bench --workloads aggregation,sliding-holistic --stores rocksdb,lmdb,tailrace-rmw --rounds 5"
)
def bench(
    everything: Annotated[bool, typer.Option("--all", help="All eleven workloads on all stores.")] = False,
    workloads: Annotated[str | None, typer.Option(help="Which workloads, separated by commas.")] = None,
    stores: Annotated[str | None, typer.Option(help="Which stores, separated by commas; else all.")] = None,
    source: Annotated[str, typer.Option(help="borg, taxi or azure (stand-ins), or gadget (distributions).")] = "borg",
    accesses: Annotated[str, typer.Option(help="Accesses of a pass in micro-batches, as 300k.")] = "300k",
    scalar_accesses: Annotated[str, typer.Option(help="Accesses of a pass of single calls.")] = "20k",
    batch: Annotated[str, typer.Option(help="Accesses of a micro-batch.")] = "50k",
    value_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a value.")] = 256,
    memory_mb: Memory = 256,
    rounds: Annotated[int, typer.Option(min=1, help="Passes of each store that are measured.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.01, help="A pass ends after so many.")] = 1.0,
    seed: Seed = 1,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Measure every workload on every store, by single calls and in micro-batches. Every answer is checked."""
    from tailrace.lab.gadget.replay.bench import GadgetOptions, run_gadget  # lazy: see cli.app
    from tailrace.lab.gadget.stores.registry import STORES  # lazy: see cli.app
    from tailrace.lab.gadget.workloads import NON_KEYED, WORKLOADS  # lazy: see cli.app
    from tailrace.lab.records.bench_record import end_bench  # lazy: see cli.app
    from tailrace.lab.records.record import Recording  # lazy: see cli.app

    if everything == (workloads is not None):
        raise typer.BadParameter("name either --all or some --workloads", param_hint="--all")
    known = (*WORKLOADS, *NON_KEYED)
    options = GadgetOptions(
        workloads=tuple(WORKLOADS) if workloads is None else names_of(workloads, known, "--workloads"),
        stores=tuple(STORES) if stores is None else names_of(stores, tuple(STORES), "--stores"),
        source=source,
        accesses=count_of(accesses, "--accesses"),
        scalar_accesses=count_of(scalar_accesses, "--scalar-accesses"),
        batch=count_of(batch, "--batch"),
        value_bytes=value_bytes,
        memory_bytes=memory_mb << 20,
        rounds=rounds,
        seconds=seconds,
        seed=seed,
    )
    recording = Recording("bench", "gadget")
    with work_folder(work) as folder, progress_bar() as report:
        result = run_gadget(options, folder, report)
    _show_bench(result)
    give(result, out_file, end_bench(recording, result), records)


def _show_bench(result: dict[str, Any]) -> None:
    for mode, words in (("batch", f"micro-batches of {result['batch_accesses']:,}"), ("scalar", "single calls")):
        rows = result[mode]
        table = Table(title=f"thousand accesses a second, {words}", title_justify="left")
        table.add_column("")
        for name in rows:
            table.add_column(name.replace("-", "\n", 1), justify="right")
        best = {name: max(row, key=row.__getitem__) for name, row in rows.items()}
        for store in result["memory"]:
            cells = [
                Text(f"{row[store] / 1e3:,.0f}", style="bold green" if best[name] == store else "")
                for name, row in rows.items()
            ]
            table.add_row(store, *cells)
        out.print(table)
        last = {
            name: {store: us.get("p99.9", 0.0) for store, us in row.items()}
            for name, row in result["latency_us"][mode].items()
        }
        show_table(f"microseconds, 99.9th percentile, {words}", last)
    shares = {store: {part: size >> 20 for part, size in parts.items()} for store, parts in result["memory"].items()}
    shares_text = "; ".join(
        f"{store}: {', '.join(f'{part} {mb} MB' for part, mb in parts.items()) or 'cannot be set'}"
        for store, parts in shares.items()
    )
    out.print(Text(f"memory, {result['memory_bytes'] >> 20} MB each: {shares_text}"))
    harness = result["harness_ns"]
    out.print(Text(f"the harness's own: {harness['scalar']:g} ns a call, {harness['batch']:g} ns an access of a batch"))
    out.print(Text(f"first in batch mode: a store of Tailrace's in {result['ours_first']} of {len(result['first'])}"))
    for store, why in result["absent"].items():
        out.print(Text(f"not measured: {store}: {why}"))


@gadget_app.command(
    epilog="Examples:  tailrace gadget replay trace.parquet --store rocksdb  ·  "
    "tailrace gadget replay trace.parquet --store tailrace-rmw --batch 50k  ·  "
    "tailrace gadget replay trace.parquet --store redis --rate 10k --seconds 5  ·  "
    "tailrace gadget replay trace.parquet --with other.parquet --store lmdb  ·  "
    "tailrace gadget replay sliding-join --store sqlite --batch 10k"
)
def replay(
    trace: Annotated[str, typer.Argument(help="A trace, or a workload's name: then it is replayed as it is made.")],
    store: Annotated[str, typer.Option(help="`tailrace gadget stores` lists them.")] = "rocksdb",
    batch: Annotated[str | None, typer.Option(help="Accesses of a micro-batch; else single calls.")] = None,
    rate: Annotated[str | None, typer.Option(help="Accesses a second; else as fast as it goes.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.01, help="End after so many.")] = None,
    others: Annotated[
        list[Path] | None, typer.Option("--with", help="Another operator's trace, on the same store at the same time.")
    ] = None,
    memory_mb: Memory = 256,
    source: Annotated[str, typer.Option(help="Of a workload: borg, taxi, azure or gadget.")] = "borg",
    events: Annotated[str, typer.Option(help="Of a workload: how many events.")] = "100k",
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Run a trace on a store: throughput, latencies, and what the harness itself costs. The last line is JSON."""
    from tailrace.lab.gadget.generate import generate  # lazy: see cli.app
    from tailrace.lab.gadget.replay import replay as player  # lazy: see cli.app
    from tailrace.lab.gadget.replay.prepared import prepare  # lazy: see cli.app
    from tailrace.lab.gadget.stores.registry import store_class  # lazy: see cli.app
    from tailrace.lab.gadget.traces.trace import joined, read_trace  # lazy: see cli.app
    from tailrace.lab.gadget.workloads import NON_KEYED, WORKLOADS  # lazy: see cli.app
    from tailrace.lab.records.record import Recording  # lazy: see cli.app

    kind = store_class(store)
    how = player.How(
        None if batch is None else count_of(batch, "--batch"),
        memory_mb << 20,
        None if rate is None else float(count_of(rate, "--rate")),
        seconds,
    )
    recording = Recording("bench", "gadget-replay")
    result: dict[str, Any] = {"store": store, "mode": "scalar" if batch is None else "batch"}
    with work_folder(work) as folder, progress_bar() as report:
        if trace in {*WORKLOADS, *NON_KEYED} and not Path(trace).exists():
            report(f"{trace} on {store}, as it is made", 0, 1)
            pieces = generate(trace, source, count_of(events, "--events"))
            with player.opened(kind, prepare(joined([])), how, folder) as opened:
                result |= {
                    "memory": opened.memory,
                    "online": True,
                    **_numbers(player.online(opened, pieces, how), None),
                }
        else:
            prepared = prepare(read_trace(trace))
            result["harness_ns"] = player.harness_ns(prepared, how)
            if others:
                alone = [prepared]
                for path in others:
                    used = alone[-1].first_key + alone[-1].trace.distinct_keys
                    alone.append(prepare(read_trace(path), first_key=used))
                report(f"{len(alone)} operators on {store}", 0, 1)
                with player.opened(kind, alone[-1], how, folder) as opened:
                    result["memory"] = opened.memory
                    runs = player.together(opened, alone, how)
                names = [trace, *map(str, others)]
                result["operators"] = {
                    f"{n + 1} {name}": _numbers(*run) for n, (name, run) in enumerate(zip(names, runs))
                }
            else:
                report(f"{trace} on {store}: throughput", 0, 2)
                with player.opened(kind, prepared, how, folder) as opened:
                    result["memory"] = opened.memory
                    found = player.throughput(opened, prepared, how)
                report(f"{trace} on {store}: latency", 1, 2)
                with player.opened(kind, prepared, how, folder) as opened:
                    result |= _numbers(found, player.latencies(opened, prepared, how))
    _show_replay(result)
    flat = {name: value for name, value in result.items() if not isinstance(value, dict)}
    nested = {name: value for name, value in result.items() if isinstance(value, dict)}
    give(result, out_file, recording.end(flat, nested, {}), records)


def _numbers(found: Pass, latency: Latencies | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {"accesses": found.accesses, "ops_per_s": round(found.ops_per_s)}
    return numbers if latency is None else {**numbers, "latency_us": latency.us}


def _show_replay(result: dict[str, Any]) -> None:
    runs = result.get("operators") or {result["store"]: result}
    show_table(
        "replayed",
        {
            "accesses": {name: run["accesses"] for name, run in runs.items()},
            "accesses/s": {name: run["ops_per_s"] for name, run in runs.items()},
            **{
                f"{part} µs": {name: run["latency_us"][part] for name, run in runs.items()}
                for part in next(iter(runs.values())).get("latency_us", {})
            },
        },
    )
    if "harness_ns" in result:
        out.print(Text(f"the harness's own: {result['harness_ns']:g} ns an access"))


@gadget_app.command(epilog="Example:  tailrace gadget stores")
def stores() -> None:
    """List the stores that a trace can be replayed on, and how to get those that are missing."""
    from tailrace.lab.gadget.replay.prepared import prepare  # lazy: see cli.app
    from tailrace.lab.gadget.replay.replay import How, opened  # lazy: see cli.app
    from tailrace.lab.gadget.stores.contract import StoreUnavailableError  # lazy: see cli.app
    from tailrace.lab.gadget.stores.registry import STORES  # lazy: see cli.app
    from tailrace.lab.gadget.traces.trace import joined  # lazy: see cli.app

    table = Table("store", "a micro-batch is", "memory of 256 MB")
    nothing = prepare(joined([]))
    with work_folder(None) as folder:
        for name, kind in STORES.items():
            try:
                with opened(kind, nothing, How(), folder) as store:
                    shares = ", ".join(f"{part} {size >> 20} MB" for part, size in store.memory.items())
                table.add_row(name, kind.batch_note, shares or "cannot be set")
            except StoreUnavailableError as error:
                table.add_row(name, kind.batch_note, str(error))
    out.print(table)
