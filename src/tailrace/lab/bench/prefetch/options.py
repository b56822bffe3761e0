"""What ``tailrace bench prefetch`` may be asked for, and whether it can be done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tailrace.lab import registry
from tailrace.lab.bench.prefetch.workloads import ALL_IN_CACHE, BASELINES, CASES, HINTS, MODES, Case, Mode, case
from tailrace.lab.registry import ParameterError, UnknownNameError
from tailrace.testing.shaped_reads import VARIABLE, shaped

SWEEPS = ("skew", "memory", "rows")
MEMORY_BYTES_MIN = 1 << 20


@dataclass(frozen=True)
class PrefetchOptions:
    workloads: tuple[str, ...] = CASES
    modes: tuple[str, ...] = (*BASELINES, HINTS)
    memory_bytes: int = 8 << 20
    """Of a state server; how large states and batches are follows from it."""
    turns: int = 8
    turn: int = 8
    """Batches that a mode is given in a row; of several, the first is not counted."""
    warmup: int = 24
    """Batches after filling."""
    read_ms: float = 1.0
    depth: int | None = None
    """Reads under way at once; None: each workload's own."""
    all_in_cache: bool = False
    """Memory for everything, and hints on or off are all that differs."""
    sweeps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``skew``, ``memory`` and ``rows`` (of a batch, as a multiple) to the values that they take, one run of the
    workloads each."""
    sink: str = "noop"
    seed: int = 1
    check: bool = True
    given: tuple[str, ...] = ()
    """Parameters of the workloads, as ``name=value``."""
    confs: Mapping[str, str] = field(default_factory=dict)
    commit: str = "async"

    @property
    def counted(self) -> int:
        return max(1, self.turn - 1)

    @property
    def chosen(self) -> dict[str, Mode]:
        return dict(ALL_IN_CACHE) if self.all_in_cache else {name: MODES[name] for name in self.modes}

    def case_of(self, name: str) -> Case:
        """With the parameters that were given, where the workload has them."""
        made = case(name, self.memory_bytes, fits=self.all_in_cache)
        workload = registry.workload(made.workload)
        mine = [text for text in self.given if text.partition("=")[0] in workload.parameters]
        values = workload.values(mine)
        names = {text.partition("=")[0] for text in mine}
        return replace(made, values={**values, **made.values, **{given: values[given] for given in names}})

    def depth_of(self, one: Case) -> int:
        return one.depth if self.depth is None else self.depth

    def options_of(self, mode: Mode, memory_bytes: int) -> dict[str, str]:
        return {"commit": self.commit, "memory": str(memory_bytes), **mode.options}

    def environment_of(self, one: Case) -> dict[str, str]:
        """Variables for the engine's environment: how long a read by key takes there."""
        return {VARIABLE: shaped(self.read_ms / 1e3, self.depth_of(one))} if self.read_ms else {}


QUICK = PrefetchOptions(modes=("lru", "async-io", "hints"), memory_bytes=1_100_000, turns=1, turn=4, warmup=2)


def sweeps_of(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """From ``skew=0,50`` and the like."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name not in SWEEPS or not values:
            raise ParameterError(f"no sweep is called {text!r}; write skew=0,50,90 or memory=2M,4M or rows=0.5,1,2")
        found[name] = tuple(dict.fromkeys(value.strip() for value in values.split(",")))
        for value in found[name]:
            if name == "memory":
                _memory(registry.size(value))
            elif not value.replace(".", "", 1).isdigit():
                what = (
                    "a percentage, or of ysb the exponent of Zipf's law" if name == "skew" else "a multiple of a batch"
                )
                raise ParameterError(f"{name} {value!r} is no number: {what}")
            elif name == "rows" and not float(value):
                raise ParameterError("batches need rows: write rows=0.5,1,2")
    return found


def _memory(size: int) -> None:
    if size < MEMORY_BYTES_MIN:
        raise ParameterError(f"a memory of {size:,} bytes is too little for a state server: at least 1.1M")


def check_names(options: PrefetchOptions) -> None:
    """Raises where something is unknown, before anything is started."""
    _memory(options.memory_bytes)
    for mode in options.modes:
        if mode not in MODES:
            raise UnknownNameError(f"no mode is called {mode!r}; there are {', '.join(MODES)}")
    known: set[str] = set()
    for name in options.workloads:
        made = options.case_of(name)
        known |= set(registry.workload(made.workload).parameters)
    for text in options.given:
        if text.partition("=")[0] not in known:
            registry.workload(options.case_of(options.workloads[0]).workload).values([text])  # says what is wrong
