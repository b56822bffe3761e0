"""``tailrace bench prefetch``: what rows wait for state that is not in memory."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tailrace.cli.app import bench
from tailrace.cli.bench.command import Measurement, measure
from tailrace.cli.options import Commit, Conf, Given, OutFile, Records, Seed, Work, count_of, names_of, spark_confs


@bench.command(
    epilog="Examples:  tailrace bench prefetch --quick  ·  tailrace bench prefetch --workloads q13 --sweep "
    "skew=0,50,90,100  ·  tailrace bench prefetch --all-in-cache --workloads q18  ·  tailrace bench prefetch --moving"
)
def prefetch(
    chosen: Annotated[str, typer.Option("--workloads", help="Which workloads.")] = "q13,q18,q19,q20,ysb",
    engines: Annotated[
        str | None,
        typer.Option(
            help="Ways to bring spilled state into memory; spark-rocksdb beside them, for its throughput.",
            show_default="lru,clock,async-io,hints",
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Of a state server, as 8M; states are 12 times as large.", show_default="8M")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns that are measured.", show_default="8")] = None,
    turn: Annotated[
        int | None,
        typer.Option(min=1, help="Batches in a row; of several, the first is not counted.", show_default="8"),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=1, help="Batches before, once state is there.", show_default="24")
    ] = None,
    latency: Annotated[float, typer.Option(min=0, help="Milliseconds that reading one key takes.")] = 1,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Keys that are read at once.", show_default="by workload, 32 to 128")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead, one run for each value, as skew=0,50,90, memory=2M,4M,8M or rows=0.5,1,2. Repeatable."
        ),
    ] = None,
    all_in_cache: Annotated[
        bool, typer.Option("--all-in-cache", help="Instead, memory for everything: hints on against off.")
    ] = False,
    moving: Annotated[
        bool, typer.Option("--moving", help="Instead, keys and latency that change midway: the lookahead moves.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small: three engines, about two minutes, no numbers to go by.")
    ] = False,
    sink: Annotated[
        Literal["collect", "parquet", "noop"], typer.Option(help="Where rows go, for all engines alike.")
    ] = "noop",
    seed: Seed = 1,
    check: Annotated[bool, typer.Option(help="Compare every engine's rows with the oracle's at the end.")] = True,
    given: Given = None,
    commit: Commit = "async",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Measure how long rows wait for state that is not in memory: caches alone, asynchronous reads, prefetch hints.

    Five workloads, one after the other, state 12 times the memory, a millisecond a read. About 35 minutes on two cores.
    """
    from tailrace.lab.bench.prefetch import bench as prefetch_bench  # lazy: see cli.app
    from tailrace.lab.bench.prefetch import options as asked  # lazy: see cli.app
    from tailrace.lab.bench.prefetch.moving import MovingOptions, run_moving  # lazy: see cli.app
    from tailrace.lab.bench.prefetch.numbers import tables  # lazy: see cli.app
    from tailrace.lab.registry import ParameterError  # lazy: see cli.app

    small = asked.QUICK if quick else asked.PrefetchOptions()
    if moving:
        changed = MovingOptions(quick=quick, seed=seed, confs=spark_confs(conf))
        shown = Measurement(run_moving, lambda found: {"where hints came from": {"batches": found["lookaheads"]}})
        measure(lambda _: shown, changed, "prefetch-moving", out_file, records, work)
        return
    try:
        sweeps = asked.sweeps_of(sweep or ())
    except ParameterError as error:
        raise typer.BadParameter(str(error), param_hint="--sweep") from error
    options = asked.PrefetchOptions(
        workloads=names_of(chosen, (), "--workloads"),
        modes=small.modes if engines is None else names_of(engines, (), "--engines"),
        memory_bytes=small.memory_bytes if memory is None else count_of(memory, "--memory"),
        turns=small.turns if turns is None else turns,
        turn=small.turn if turn is None else turn,
        warmup=small.warmup if warmup is None else warmup,
        read_ms=latency,
        depth=depth,
        all_in_cache=all_in_cache,
        sweeps=sweeps,
        sink=sink,
        seed=seed,
        check=check,
        given=tuple(given or ()),
        confs=spark_confs(conf),
        commit=commit,
    )

    def plan(options: asked.PrefetchOptions) -> Measurement:
        asked.check_names(options)
        return Measurement(prefetch_bench.run_prefetch, tables)

    measure(plan, options, "prefetch", out_file, records, work)
