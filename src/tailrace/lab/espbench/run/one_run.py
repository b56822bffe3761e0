"""One run: topics, business data, the query, the sender, the wait for the last result, the verdict.

The ten steps of the paper, but that the end of a query is seen (all results that there should be, or none for a while)
instead of waited for during forty minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.lab.espbench.broker import Broker
from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.data.load import OF_QUERY, load
from tailrace.lab.espbench.names import Query, Topics
from tailrace.lab.espbench.results.utilisation import Sample, Utilisation
from tailrace.lab.espbench.run.end import End, end_of
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.run.servers import Servers
from tailrace.lab.espbench.sender.senders import Senders, StreamSent, assignments
from tailrace.lab.espbench.systems.job import Job
from tailrace.lab.espbench.systems.process import System
from tailrace.lab.espbench.validator import database
from tailrace.lab.espbench.validator.answers import LOW_MF03, Answers, answers
from tailrace.lab.espbench.validator.compare import Results, Verdict, exactly_once, pairs

_LOOK_S = 0.5
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Conduct:
    """``patience_s``: a run ends when no result has come for so long. ``warm_up_s``: latencies of what was caused in
    the first seconds are left out. ``kills``: how many times the system is killed while the sender sends."""

    patience_s: float = 30
    warm_up_s: float = 10
    kills: int = 0
    settings: dict[str, Any] = field(default_factory=lambda: {"set_wise": True, "low_mf03": LOW_MF03})


@dataclass(frozen=True)
class RunOptions:
    system: str
    query: Query
    config: Config
    data: Path
    conduct: Conduct


def one_run(options: RunOptions, servers: Servers, work: Path, progress: Progress) -> Outcome:
    config, query = options.config, options.query
    topics = Topics(config.topic_prefix, config.benchmark_run)
    broker = Broker(servers.bootstrap)
    broker.create(topics.of(query))
    if query.key in OF_QUERY:
        load(servers.database, options.data, OF_QUERY[query.key], progress)
    measured = _measured(options, servers, broker, topics, str(work), progress)
    return _judged(options, servers, broker, topics, measured)


@dataclass(frozen=True)
class _Measured:
    begun_s: float
    sent: Sequence[StreamSent]
    inputs: Mapping[int, pa.Table]
    drained_s: float
    killed: int
    utilisation: Sequence[Sample]


def _measured(
    options: RunOptions, servers: Servers, broker: Broker, topics: Topics, work: str, progress: Progress
) -> _Measured:
    """Everything while the system runs."""
    query, inputs = options.query, {number: topics.input(number) for number in options.query.inputs}
    where = (servers.bootstrap, tuple(inputs.values()), topics.output(query), servers.database, work)
    job = Job(options.system, query.key, *where, options.conduct.settings)
    with ExitStack() as systems:
        progress(f"{options.system} starts", 0, 1)
        pids = dict(servers.pids)
        system = _ready(job, systems, pids)
        with (
            Senders(assignments(options.config, query, topics, options.data, servers.bootstrap)) as senders,
            Utilisation(lambda: {**pids, **senders.pids}) as utilisation,
        ):
            begun_s = senders.start()
            system, killed = _kill_meanwhile(options, job, system, systems, pids)
            sent = senders.wait(progress)
            sent_s = time.monotonic()
            read = {number: broker.read(topic) for number, topic in inputs.items()}
            end = end_of(query, read, broker, topics.output(query), servers.database)
            _wait(end, system, options.conduct.patience_s, progress)
        return _Measured(begun_s, sent, read, time.monotonic() - sent_s, killed, utilisation.samples)


def _judged(options: RunOptions, servers: Servers, broker: Broker, topics: Topics, measured: _Measured) -> Outcome:
    query, config, began = options.query, options.config, time.monotonic()
    down = database.downtimes(servers.database) if query.key == "q4" else None
    right = answers(query, measured.inputs, down, options.conduct.settings["low_mf03"])
    if query.to_database:
        results = database.production_times(servers.database, measured.inputs[query.inputs[0]])
    else:
        results = Results.of(broker.read(topics.output(query)), right.ids is not None)
    verdict = exactly_once(right, results)
    return Outcome(
        system=options.system,
        query=query.key,
        rate=round(1e9 / config.interval_ns),
        run=config.benchmark_run,
        inputs=sum(table.num_rows for table in measured.inputs.values()),
        pairs=pairs(right, results),
        verdict=verdict,
        latencies_ms=_behind_warm_up(right, verdict, (measured.begun_s + options.conduct.warm_up_s) * 1000),
        sent=measured.sent,
        validator_s=time.monotonic() - began,
        drained_s=measured.drained_s,
        utilisation=measured.utilisation,
        killed=measured.killed,
        faults=[fault for stream in measured.sent if (fault := stream.fault(config.sender.lateness_bound_ms))],
    )


def _ready(job: Job, systems: ExitStack, pids: dict[str, int]) -> System:
    system = systems.enter_context(System(job))
    system.wait_ready()
    pids["system"] = system.pid
    return system


def _kill_meanwhile(
    options: RunOptions, job: Job, system: System, systems: ExitStack, pids: dict[str, int]
) -> tuple[System, int]:
    """Kills the system at even distances while the sender sends, and starts it anew at once, as a supervisor would."""
    pause = options.config.duration_ns / 1e9 / (options.conduct.kills + 1)
    for _ in range(options.conduct.kills):
        time.sleep(pause)
        system.check()
        system.kill()
        system = _ready(job, systems, pids)
    return system, options.conduct.kills


def _behind_warm_up(right: Answers, verdict: Verdict, from_ms: float) -> list[int]:
    """Latencies of answers whose cause came behind the warm-up; of all, where none did."""
    behind = [latency for place, latency in verdict.latencies_ms.items() if right.caused_ms[place] >= from_ms]
    return behind or list(verdict.latencies_ms.values())


def _wait(end: End, system: System, patience_s: float, progress: Progress) -> None:
    """Until the last result is there, or none has come for a while."""
    seen, since = end.seen(), time.monotonic()
    while not end.reached():
        waited = time.monotonic() - since
        progress("waiting for the last results", int(waited), int(patience_s))
        if waited > patience_s:
            return
        system.check()
        time.sleep(_LOOK_S)
        if (now := end.seen()) != seen:
            seen, since = now, time.monotonic()
