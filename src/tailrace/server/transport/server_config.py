"""Where a server is, what opens it, and what it is started with.

Nothing in ``transport`` that a task needs to start a server imports Flight: the task must not open gRPC before that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tailrace.server.transport.tls import MACHINES_TRUST, Tls, Trust
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

UNIX = "unix"
UNIX_SCHEME = "grpc+unix://"
TCP = "tcp"


@dataclass(frozen=True)
class ServerAddress:
    """One server as the driver and the tasks know it."""

    server: str
    uri: str
    host: str
    pid: int
    executor_pid: int
    log_path: str
    started: str = ""  # the start of the process ``pid``: only both together name it
    executor: str = ""  # Spark's id of the executor, where that has one


@dataclass(frozen=True)
class Access:
    """What opens a run's servers."""

    run: str
    token: str = field(repr=False)
    trust: Trust = MACHINES_TRUST
    timeout_s: float = 600.0  # of one step of an epoch
    transfer_timeout_s: float = 3600.0  # of what lasts as long as its rows: staging streams, outputs, loading shards


@dataclass(frozen=True)
class ServerConfig:
    """What every server of a run has in common. Goes to tasks in their closure and to the server by its stdin."""

    run: str
    token: str = field(repr=False)
    operators: tuple[str, ...] = field(repr=False)  # their descriptions as JSON, with what a table's connection needs
    store_uri: str
    memory_bytes: int  # of one server, for state and staged rows
    function_timeout_s: float  # of one call of a user's function
    tuning: Tuning = DEFAULT_TUNING
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    proof: tuple[str, str] | None = None  # an object, and a text in it: who reads it has the driver's store before it
    outputs: tuple[str, ...] = ()  # folders that the driver has made below paths that executors will write to
    transport: str = UNIX
    tls: Tls | None = None  # of calls by TCP; None: they are not encrypted
    copies: bool = True  # of a far store's objects are kept on the executors' machines
    copies_location: str | None = None  # there; the user's temporary folder by default
    scratch: str | None = None  # a folder for spilled rows; the server's own by default
    bind_host: str | None = None  # the executor's advertised host by default
    start_timeout_s: float = 60.0
    open_timeout_s: float = 300.0  # a server that no driver opens within this ends itself
    record_folder: str | None = None  # on the executors, for records of the accesses to state; None: there are none

    @property
    def access(self) -> Access:
        return Access(self.run, self.token, self.tls.trust if self.tls else MACHINES_TRUST)


@dataclass(frozen=True)
class ProcessConfig:
    """The one line of JSON that a server process reads."""

    server: str
    directory: str
    host: str
    executor_pid: int
    executor_started: str
    common: ServerConfig

    def to_json(self) -> str:
        raw = asdict(self)
        raw["common"]["tuning"] = self.common.tuning.to_json()
        raw["common"]["tls"] = self.common.tls and self.common.tls.to_json()
        return json.dumps(raw)

    @classmethod
    def from_json(cls, text: str) -> ProcessConfig:
        raw = json.loads(text)
        common = raw.pop("common")
        common["operators"] = tuple(common["operators"])
        common["outputs"] = tuple(common["outputs"])
        common["tuning"] = Tuning.from_json(common["tuning"])
        common["proof"] = common["proof"] and tuple(common["proof"])
        common["tls"] = common["tls"] and Tls.from_json(common["tls"])
        return cls(common=ServerConfig(**common), **raw)
