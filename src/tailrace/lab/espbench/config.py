"""The benchmark's configuration: a TOML file with the original's keys, each of them with a default.

A key that there is not is an error which names the nearest one. ``zookeeper-servers`` is taken and not used: brokers
have not needed it for long.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.espbench.data.files import MACHINES, PRODUCTION_TIMES, sensor_file
from tailrace.lab.espbench.names import PRODUCTION

NANOSECONDS = {
    **dict.fromkeys(("ns", "nanoseconds"), 1),
    **dict.fromkeys(("us", "microseconds"), 1000),
    **dict.fromkeys(("ms", "milliseconds"), 1000000),
    **dict.fromkeys(("s", "seconds"), 1000000000),
    **dict.fromkeys(("m", "min", "minutes"), 60000000000),
    **dict.fromkeys(("h", "hours"), 3600000000000),
}
RATE_OF_A_SENDER = 40_000
"""One process sends that much in time."""
ACKS = ("0", "1", "-1", "all")


@dataclass(frozen=True)
class Producer:
    acks: str = "1"
    batch_size: int = 131_072
    buffer_memory_size: int = 33_554_432
    linger_time: int = 2


@dataclass(frozen=True)
class Reader:
    data_input_path: tuple[str, ...] = (*(sensor_file(machine) for machine in MACHINES), PRODUCTION_TIMES)
    """Files of streams 1, 2 and 3; relative ones are looked for in the run's data folder."""
    read_in_ram: bool = True


@dataclass(frozen=True)
class Sender:
    kafka_producer_config: Producer = field(default_factory=Producer)
    data_reader_config: Reader = field(default_factory=Reader)
    instances: int = 1
    """So many sender processes a stream take turns, message by message."""
    lateness_bound_ms: int = 1_000
    """A run whose sender was later than this behind its schedule for a message in a hundred says nothing."""


@dataclass(frozen=True)
class Config:
    topic_prefix: str = "ESB"
    benchmark_run: int = 1
    sending_interval: int = 100_000
    sending_interval_time_unit: str = "ns"
    duration: int = 5
    duration_time_unit: str = "minutes"
    kafka_bootstrap_servers: str = ""
    """Where the broker is; empty: the runner starts one."""
    zookeeper_servers: str = ""
    database: str = ""
    """Where PostgreSQL is, as ``postgresql://user@host:port/name``; empty: the runner starts one."""
    sender: Sender = field(default_factory=Sender)

    def __post_init__(self) -> None:
        for name in ("sending_interval", "duration"):
            if getattr(self, name) <= 0:
                raise TailraceError(f"{_key(name)} is {getattr(self, name)}; it must be above 0")
            unit = getattr(self, f"{name}_time_unit")
            if unit.lower() not in NANOSECONDS:
                raise TailraceError(f"{_key(name)}-time-unit is {unit!r}; choose from {', '.join(NANOSECONDS)}")
        if self.sender.kafka_producer_config.acks not in ACKS:
            raise TailraceError(f"acks is {self.sender.kafka_producer_config.acks!r}; choose from {', '.join(ACKS)}")
        if len(self.sender.data_reader_config.data_input_path) != PRODUCTION:
            raise TailraceError("data-input-path: three files are needed, of machine 1, machine 2 and production")

    @property
    def interval_ns(self) -> int:
        return self.sending_interval * NANOSECONDS[self.sending_interval_time_unit.lower()]

    def at_rate(self, rate: int) -> Config:
        """The same with so many messages a second and stream, and as many senders as that needs."""
        instances = max(self.sender.instances, -(-rate // RATE_OF_A_SENDER))
        sender = replace(self.sender, instances=instances)
        interval = max(1_000_000_000 // rate, 1)
        return replace(self, sending_interval=interval, sending_interval_time_unit="ns", sender=sender)

    @property
    def duration_ns(self) -> int:
        return self.duration * NANOSECONDS[self.duration_time_unit.lower()]

    def input_path(self, stream: int, folder: Path) -> Path:
        return folder / self.sender.data_reader_config.data_input_path[stream - 1]


def read(path: Path) -> Config:
    """``[common]``'s keys may also stand at the top, as ``sending-interval = 100000``."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TailraceError(f"{path}: {error}") from error
    given = {**given.pop("common", {}), **given}
    config: Config = _filled(Config, given, str(path))
    return config


def _filled(kind: type[Any], given: Mapping[str, Any], where: str) -> Any:
    known = {_key(each.name): each for each in fields(kind)}
    values = {}
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise TailraceError(f"{where}: there is no key {key!r}{hint}")
        default = _default(known[key])
        if is_dataclass(default) and isinstance(value, Mapping):
            values[known[key].name] = _filled(type(default), value, f"{where}, {key}")
        elif isinstance(default, tuple) and isinstance(value, list):
            values[known[key].name] = tuple(str(each) for each in value)
        elif type(value) is type(default):
            values[known[key].name] = value
        else:
            raise TailraceError(f"{where}: {key} = {value!r} should look like {default!r}")
    return kind(**values)


def _default(of: Any) -> Any:
    return of.default_factory() if callable(of.default_factory) else of.default


def _key(name: str) -> str:
    return name.replace("_", "-")
