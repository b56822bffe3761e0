"""One run: topics, data, the system, the sender, the wait for the last result, the verdict.

The ten steps of the paper, but that the end of a query is seen (all results that there should be, or none for a while)
instead of waited for during forty minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tailrace.lab.espbench.broker import Broker
from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.data.load import OF_QUERY, load
from tailrace.lab.espbench.names import Query, Topics
from tailrace.lab.espbench.results.utilisation import Sample, Utilisation
from tailrace.lab.espbench.run.changes import Changes
from tailrace.lab.espbench.run.end import End, end_of
from tailrace.lab.espbench.run.judge import Judgement, judged
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.run.reader import ResultReader
from tailrace.lab.espbench.run.recovery import kills
from tailrace.lab.espbench.run.servers import Servers
from tailrace.lab.espbench.sender.senders import Senders, StreamSent, assignments
from tailrace.lab.espbench.systems.job import Job
from tailrace.lab.espbench.systems.process import System
from tailrace.lab.espbench.validator.answers import LOW_MF03
from tailrace.lab.espbench.validator.downtimes import Downtime

_LOOK_S = 0.2
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Conduct:
    """How a run is conducted, whatever its system."""

    patience_s: float = 30
    """A run ends when no result has come for so long."""
    warm_up_s: float = 10
    """Latencies of what was caused in the first seconds are left out."""
    kills: int = 0
    """How many times the system is killed while the sender sends."""
    low_mf03: int = LOW_MF03


@dataclass(frozen=True)
class RunOptions:
    system: str
    query: Query
    config: Config
    data: Path
    conduct: Conduct


def one_run(
    options: RunOptions,
    servers: Servers,
    work: Path,
    progress: Progress,
    follow: Callable[[ResultReader], None] = lambda results: None,
) -> Outcome:
    """``follow`` is given the reader of results when the system is ready."""
    config, query = options.config, options.query
    topics = Topics(config.topic_prefix, config.benchmark_run)
    broker = Broker(servers.bootstrap)
    broker.create(topics.of(query))
    if query.base in OF_QUERY:
        load(servers.database, options.data, OF_QUERY[query.base], progress)
    measured = _measured(options, servers, broker, topics, str(work), progress, follow)
    began = time.monotonic()
    where = (servers.database, measured.changes, options.conduct.low_mf03)
    found = judged(query, measured.inputs, measured.output, *where)
    return _outcome(options, measured, found, time.monotonic() - began)


@dataclass(frozen=True)
class _Measured:
    begun_s: float
    sent: Sequence[StreamSent]
    inputs: Mapping[int, pa.Table]
    output: pa.Table | None
    changes: Mapping[int, Sequence[Downtime]]
    drained_s: float
    killed_s: Sequence[float]
    utilisation: Sequence[Sample]


def _measured(
    options: RunOptions,
    servers: Servers,
    broker: Broker,
    topics: Topics,
    work: str,
    progress: Progress,
    follow: Callable[[ResultReader], None],
) -> _Measured:
    """Everything while the system runs."""
    query, inputs = options.query, {number: topics.input(number) for number in options.query.inputs}
    settings = {**query.settings, "low_mf03": options.conduct.low_mf03}
    where = (servers.bootstrap, tuple(inputs.values()), topics.output(query), servers.database, work)
    job = Job(options.system, query.key, *where, settings)
    with ExitStack() as systems:
        progress(f"{options.system} starts", 0, 1)
        pids = dict(servers.pids)
        system = _ready(job, systems, pids)
        with (
            ResultReader(broker, topics.output(query)) as results,
            Changes(servers.database, query.settings.get("changes_s", 0)) as changes,
            Senders(assignments(options.config, query, topics, options.data, servers.bootstrap)) as senders,
            Utilisation(lambda: {**pids, **senders.pids}) as utilisation,
        ):
            follow(results)
            begun_s = senders.start()
            system, killed_s = _kill_meanwhile(options, job, system, systems, pids)
            sent = senders.wait(progress)
            sent_s = time.monotonic()
            read = {number: broker.read(topic) for number, topic in inputs.items()}
            end = end_of(query, read, results, servers.database, options.conduct.low_mf03)
            _wait(end, system, options.conduct.patience_s, progress)
            drained_s = time.monotonic() - sent_s
            changes.check()
        output = results.noted(broker.read(topics.output(query))) if query.to_topic else None
        return _Measured(begun_s, sent, read, output, changes.known, drained_s, killed_s, utilisation.samples)


def _outcome(options: RunOptions, measured: _Measured, found: Judgement, validator_s: float) -> Outcome:
    config, latencies = options.config, found.verdict.latencies_ms
    from_ms = (measured.begun_s + options.conduct.warm_up_s) * 1000
    caused_ms = found.right.caused_ms
    # Behind the warm-up; all, where nothing was caused behind it.
    places = [place for place in latencies if caused_ms[place] >= from_ms] or list(latencies)
    return Outcome(
        system=options.system,
        query=options.query.key,
        rate=round(1e9 / config.interval_ns),
        run=config.benchmark_run,
        inputs=sum(table.num_rows for table in measured.inputs.values()),
        pairs=found.pairs,
        verdict=found.verdict,
        latencies_ms=[latencies[place] for place in places],
        caused_ms=[caused_ms[place] for place in places],
        seen_ms=[found.verdict.seen_ms[place] for place in places if place in found.verdict.seen_ms],
        sent=measured.sent,
        validator_s=validator_s,
        drained_s=measured.drained_s,
        utilisation=measured.utilisation,
        kills=kills(measured.killed_s, [caused_ms[place] for place in latencies], list(latencies.values())),
        undecided=found.undecided,
        stale_max_ms=found.stale_max_ms,
        faults=[fault for stream in measured.sent if (fault := stream.fault(config.sender.lateness_bound_ms))],
    )


def _ready(job: Job, systems: ExitStack, pids: dict[str, int]) -> System:
    system = systems.enter_context(System(job))
    system.wait_ready()
    pids["system"] = system.pid
    return system


def _kill_meanwhile(
    options: RunOptions, job: Job, system: System, systems: ExitStack, pids: dict[str, int]
) -> tuple[System, list[float]]:
    """Kills the system at even distances while the sender sends, and starts it anew at once, as a supervisor would."""
    pause_s = options.config.duration_ns / 1e9 / (options.conduct.kills + 1)
    begun_s, killed_s = time.monotonic(), []
    for number in range(options.conduct.kills):
        time.sleep(max(begun_s + (number + 1) * pause_s - time.monotonic(), 0))
        system.check()
        killed_s.append(time.time())
        system.kill()
        system = _ready(job, systems, pids)
    return system, killed_s


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
