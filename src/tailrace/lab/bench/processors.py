"""``tailrace bench processors``: programs of PySpark's ``transformWithState``, on Tailrace and on Spark's RocksDB.

Each of the four programs runs with rows and with pandas frames on both engines, one process each, in turns of one batch
over the same files. Every batch names as many keys as are asked for, half of all that there are, so that all states are
there after some batches. All rows go to Parquet files by the same function, in the measured time, and all engines' rows
must be equal, epoch by epoch: Tailrace's timers go by Spark's watermark here, and neither runs batches without rows.

``ratios`` is Tailrace with rows over Spark with pandas frames: the program as one would write it for each.
``rows_ratios`` and ``pandas_ratios`` compare the same class. A batch of Spark takes a minute, so there are few.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tailrace.lab import registry
from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import NO_EMPTY_BATCHES, Batches, Report, each, facts, in_turns, series_of
from tailrace.lab.bench.options import ROCKSDB, ProcessorsOptions
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import EngineError, EngineProcess
from tailrace.lab.registry import OURS, Bench, Settings, register
from tailrace.lab.run import read_output
from tailrace.lab.run_check import check_rows
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.processors.events import FEED
from tailrace.lab.workloads.processors.workloads import PANDAS, PREFIX

FORMS = {
    "spark-pandas": (ROCKSDB, PANDAS),
    "spark-rows": (ROCKSDB, ""),
    "tailrace-pandas": (OURS, PANDAS),
    "tailrace-rows": (OURS, ""),
}
"""Form to its engine, and to what its workloads' names end with."""
RATIOS = {
    "ratios": ("spark-pandas", "tailrace-rows"),
    "rows_ratios": ("spark-rows", "tailrace-rows"),
    "pandas_ratios": ("spark-pandas", "tailrace-pandas"),
}
_OPTIONS = {"watermark": "spark"}

register(
    Bench(
        "processors",
        "StatefulProcessor programs: a running count, sessions with a timer, a list buffer, maps of maps with a TTL.",
        (),  # one ratio a program, under its name
    )
)


def run_processors(options: ProcessorsOptions, work: Path, report: Report) -> dict[str, Any]:
    steps = options.warmup + options.batches
    batches: dict[str, Batches] = {}
    rows_checked: dict[str, int | None] = {}
    confs: dict[str, dict[str, str]] = {}
    for number, program in enumerate(options.programs):

        def progress(what: str, done: int, before: int = number * steps, name: str = program) -> None:
            report(f"{name}: {what}", before + done, steps * len(options.programs))

        folder = work / program
        batches[program] = {form: [] for form in options.forms}
        rows_checked[program] = _run_program(program, options, folder, progress, batches[program], confs)
        shutil.rmtree(folder)
    report("done", steps * len(options.programs), steps * len(options.programs))
    return {**_result(options, batches), "rows_checked": rows_checked, "confs": confs}


def _run_program(
    program: str,
    options: ProcessorsOptions,
    work: Path,
    progress: Callable[[str, int], None],
    batches: Batches,
    confs: dict[str, dict[str, str]],
) -> int | None:
    workloads = {form: registry.workload(f"{PREFIX}{program}{FORMS[form][1]}") for form in options.forms}
    first = next(iter(workloads.values()))
    count = options.warmup + options.batches
    values = first.values([f"keys={options.keys}"])
    inputs = first.inputs(Settings(count * options.rows, options.rows, options.seed, values))
    extra, ours = {**NO_EMPTY_BATCHES, **options.confs}, {"commit": options.commit, **_OPTIONS}
    progress("starting the engines", 0)
    with EngineGroup() as group:
        engines = {
            form: group.add(EngineProcess(workload.name, FORMS[form][0], work, extra, values, ours, name=form))
            for form, workload in workloads.items()
        }
        group.wait_ready()
        for form, engine in engines.items():
            engine.ask("start", sink="parquet", out=str(engine.work / "rows"))
            confs[form] = engine.confs
        for number in range(count):
            progress("warming up" if number < options.warmup else "measuring", number)
            path = write_batch(next(inputs)[FEED], work / "events", f"{number:06d}", measure.cores())
            for form in in_turns(options.forms, number):
                os.sync()
                batch = engines[form].ask("batch", file=str(path))
                if number >= options.warmup:
                    batches[form].append(batch)
    return _check(program, {form: engine.work / "rows" for form, engine in engines.items()}) if options.check else None


def _check(program: str, outputs: dict[str, Path]) -> int:
    """All rows of all epochs must be those of the first engine."""
    (first, expected), *others = ((form, read_output(out)) for form, out in outputs.items())
    if expected is None:
        raise EngineError(f"{program}: {first} gave no rows: more batches are needed")
    for form, found in others:
        check_rows(f"{program}: {form} beside {first}", found if found is not None else expected[:0], expected)
    return int(expected.num_rows)


def _result(options: ProcessorsOptions, batches: dict[str, Batches]) -> dict[str, Any]:
    ms = {program: series_of(of) for program, of in batches.items()}
    medians = {program: each(measure.median, of) for program, of in ms.items()}
    series = {form: [one for of in ms.values() for one in of[form]] for form in options.forms}
    result: dict[str, Any] = {"bench": "processors"}
    for name, (peer, mine) in RATIOS.items():
        both = {peer, mine} <= set(options.forms)
        result[name] = {p: measure.ratio(of[peer], of[mine]) for p, of in medians.items()} if both else {}
    return {
        **result,
        "program_median_ms": medians,
        "program_spread": {program: each(measure.spread, of) for program, of in ms.items()},
        "median_ms": each(measure.median, series),
        "series_ms": series,
        "programs": ",".join(options.programs),
        **facts(options, "rows", "keys", "batches", "warmup", "seed", "commit"),
    }
