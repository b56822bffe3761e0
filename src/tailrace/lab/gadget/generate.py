"""From settings to a trace: piece by piece while it is made (online), or as a whole.

>>> from tailrace.lab.gadget.generate import generate, trace_of
>>> pieces = generate(workload="aggregation", source="borg", events=1_000)
>>> sum(len(piece) for piece in pieces) == len(trace_of("aggregation", "borg", events=1_000))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailrace.lab.gadget.events import distributions, event_files
from tailrace.lab.gadget.events.source import Kind, Stream, Synthetic, woven
from tailrace.lab.gadget.events.stand_ins import LABEL, stand_in
from tailrace.lab.gadget.operators.driver import PIECE, pieces
from tailrace.lab.gadget.settings.config import Config, FileInput, Input, Settings, StandInInput
from tailrace.lab.gadget.traces.trace import Events, Trace, joined
from tailrace.lab.gadget.workloads import WORKLOADS


@dataclass(frozen=True)
class Generation:
    """A trace that is yet to be made. ``pieces`` can be called more than once and gives the same every time."""

    settings: Settings
    stream: Stream

    @property
    def events(self) -> int:
        return len(self.stream.events)

    def pieces(self, size: int = PIECE) -> Iterator[Trace]:
        settings = self.settings
        seeds = np.random.SeedSequence([settings.seed, 77])
        sizes = distributions.sizes(settings.value_size, np.random.default_rng(seeds), self.events)
        metadata = self.metadata()
        for piece in pieces(
            settings.workload.operator(settings.parameters),
            self.stream.events,
            self.stream.watermarks(settings.every_events, settings.every_us),
            sizes,
            settings.limit,
            piece=size,
            keyed=settings.workload.keyed,
        ):
            yield replace(piece, metadata=metadata)

    def metadata(self) -> dict[str, str]:
        settings = self.settings
        mean = float(_key_sizes(settings.key_size, settings.seed, 10_000).mean())
        source = {StandInInput: LABEL, FileInput: "file", Synthetic: "distributions"}[type(settings.first)]
        return {
            "workload": settings.workload.name,
            "origin": "simulated",
            "source": f"{source} {settings.first.name}" if isinstance(settings.first, StandInInput) else source,
            "seed": str(settings.seed),
            "key_bytes": str(max(1, round(mean))),
            **{name: value for name, value in settings.given.items() if name not in ("seed", "operator.type")},
        }


def generation(settings: Settings) -> Generation:
    """Reads or draws the input; the accesses are made later."""
    return Generation(settings, _stream(settings))


def generate(workload: str, source: str = "gadget", events: int | None = None, **names: str) -> Iterator[Trace]:
    """Pieces of a trace from some names of a configuration, with ``_`` for dots: ``window_length="10"``."""
    return generation(settings_of(workload, source, events, **names)).pieces()


def trace_of(workload: str, source: str = "gadget", events: int | None = None, **names: str) -> Trace:
    """As `generate`, as one trace."""
    return joined(generate(workload, source, events, **names))


def settings_of(workload: str, source: str = "gadget", events: int | None = None, **names: Any) -> Settings:
    config = Config().set("operator.type", workload, "workload")
    for side in ("first", "second"):
        config.set(f"{side}.event.generator.type", source, "source")
        if events is not None:
            config.set(f"{side}.event.generator.events", str(events), "events")
    for name, value in names.items():
        config.set(name.replace("_", "."), str(value), name)
    return config.settings()


def key_sizes(trace: Trace) -> np.ndarray:
    """Bytes of each state key, int32: drawn as the trace's metadata say, else all of its one length."""
    start = "operator.key.size.distrib."
    given = {name[len(start) :]: value for name, value in trace.metadata.items() if name.startswith(start)}
    kind = given.pop("type", None)
    if kind is None:
        return np.full(trace.distinct_keys, trace.key_bytes, np.int32)
    parameters = {name.removeprefix("params."): value for name, value in given.items()}
    parameters.pop("keyspacesize", None)
    of = distributions.made(distributions.NUMBERS, kind.lower(), parameters)
    return _key_sizes(of, int(trace.metadata.get("seed", "1")), trace.distinct_keys)


def _key_sizes(of: distributions.Draws, seed: int, keys: int) -> np.ndarray:
    return distributions.sizes(of, np.random.default_rng(np.random.SeedSequence([seed, 78])), keys)


def warm_up() -> None:
    """Compiles every operator into the cache."""
    for name in WORKLOADS:
        trace_of(name, events=10, expected_num_operations="10")


def _stream(settings: Settings) -> Stream:
    first, second = settings.first, settings.second
    if second is None:
        found = _one(first, settings.seed)
        return replace(found, events=replace(found.events, kinds=None))
    if isinstance(second, StandInInput) and isinstance(first, StandInInput) and first.name == second.name:
        right, left = stand_in(second.name, settings.seed, second.events, two_inputs=True)
        stream = woven(left if left is not None else _one(first, settings.seed + 1), right, settings.schedule)
    else:
        stream = woven(_one(first, settings.seed), _one(second, settings.seed + 1), settings.schedule)
    return _with_meaning(stream) if settings.workload.name == "continuous-join" else stream


def _one(input_: Input, seed: int) -> Stream:
    if isinstance(input_, Synthetic):
        return input_.stream(seed)
    if isinstance(input_, FileInput):
        return event_files.load(input_.path, input_.mapping)
    return stand_in(input_.name, seed, input_.events)[0]


def _with_meaning(stream: Stream) -> Stream:
    """Without left events that neither begin nor end anything: a continuous join does not read those."""
    events = stream.events
    assert events.sides is not None and events.kinds is not None
    kept = (events.sides == 1) | (events.kinds != Kind.DATA)
    return replace(
        stream,
        events=Events(events.keys[kept], events.times[kept], events.sides[kept], events.kinds[kept]),
        arrivals=None if stream.arrivals is None else stream.arrivals[kept],
    )
