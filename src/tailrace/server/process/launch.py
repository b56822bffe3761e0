"""Starting an executor's state server, from one of the executor's Python workers.

Invariants
- At most one server per run and executor: whoever starts one holds the folder's launch lock until the server has
  published its address; a server holds its alive lock for life. So a published address whose alive lock is taken is a
  living server, and anything else in the folder is rubbish.
- A living server that does not answer the driver (a suspect) is killed before it is replaced: the process of the pid
  *and* the start time that it published, and no other.
- No server is handed out whose executor cannot read what the driver wrote to the state location.
- The folder's name carries the run and the executor's pid and start time: pids are reused, this is not.
- No Flight client is open in this process yet: gRPC does not survive a fork. Nothing here opens one; that the server is
  ready is read from its files.

The server stays in the process group of Spark's Python daemon, and not in a session of its own: Spark ends that group
with the executor.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from tailrace.env import clock, processes
from tailrace.env import memory as kept_memory
from tailrace.env.files import scratch
from tailrace.env.files.disk import Disk, host_name, process_id
from tailrace.env.randomness import short_id
from tailrace.env.stores.location import locate, open_store
from tailrace.errors import CheckpointError, StateServerError, UnansweredError
from tailrace.server.process.fork_client import SERVER_WORDS, SPARK_SECRETS, fork_server
from tailrace.server.transport.folder import NAME_CHARS_MAX, ServerFolder, sweep
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress, ServerConfig


class Process(Protocol):
    """A server that was started here: a child, or one that was forked for us."""

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


_TAIL_BYTES = 4000
_POLL_S = 0.002
_DYING_S = 5.0
_BESIDE_STATE_BYTES = 1536 << 20
"""Address space of a server without state, as measured with two cores: libraries, and the stacks and arenas of its
threads. Most of it is never touched, but a limit counts it: with less, a server does not even start."""

_started: list[Process] = []
"""Children of this worker, kept so that they are reaped when they end before it does."""


def ensure_server(
    config: ServerConfig,
    *,
    host: str | None = None,
    executor: processes.ProcessFacts | None = None,
    temporary: str | None = None,
    suspects: Collection[str] = (),
) -> ServerAddress:
    """The address of this executor's server for the run; started where there is none.

    ``host``: as peers reach it. ``suspects``: ids of servers that do not answer; such a one is killed and replaced.
    """
    executor = executor or find_executor()
    host = host or _host(executor)
    _check_store(config, host)
    _check_outputs(config, host)
    _check_address_space(config, host)
    base = scratch.private_base(NAME_CHARS_MAX, temporary)
    folder = ServerFolder.of(base, config.run, executor.pid, executor.started)
    deadline = clock.monotonic() + config.start_timeout_s
    _started[:] = [child for child in _started if child.poll() is None]
    while True:
        left_s = max(0.0, deadline - clock.monotonic())
        try:
            scratch.make_private(folder.path)
            lock = scratch.ProcessLock.take(folder.launch_lock, timeout_s=left_s)
        except FileNotFoundError:
            continue  # an ending server has just removed the folder
        if lock is None:
            raise StateServerError(f"another task has been starting the state server in {folder.path} for too long")
        with lock:
            address = _living(folder)
            if address is not None and address.server in suspects:
                _kill(address, folder, left_s)
            elif address is not None and not _dying(address, folder):
                return address
            sweep(base)
            return _start(config, executor, folder, host, max(0.0, deadline - clock.monotonic()))


def find_executor() -> processes.ProcessFacts:
    """The JVM that this Python worker works for: its nearest ancestor that is a Java process."""
    above = list(processes.ancestors(process_id()))
    for each in above:
        if each.name.startswith("java"):
            return each
    for each in above:  # a JVM under another name: the first ancestor that is not Python (worker, daemon)
        if not each.name.startswith(("python", "pypy")):
            return each
    raise StateServerError(f"no executor found above process {process_id()}: {[each.name for each in above]}")


def end_unresponsive(address: ServerAddress) -> None:
    """End a server that did not hear its shutdown, and remove what it leaves, where it is of this machine."""
    folder = ServerFolder(os.path.dirname(address.log_path))
    if folder.owner is None:
        return  # no folder of ours
    if _living(folder) == address:
        processes.kill(address.pid, address.started)
    folder.remove_if_dead(_DYING_S)


def _living(folder: ServerFolder) -> ServerAddress | None:
    """The address of the folder's server, if that is alive: its lock cannot be had then."""
    text = scratch.read_whole(folder.address)
    if text is None:
        return None
    try:
        lock = scratch.ProcessLock.take(folder.alive_lock, timeout_s=0.0)
    except FileNotFoundError:
        return None  # its server has ended by itself at this moment, and the folder is gone
    if lock is None:
        return ServerAddress(**json.loads(text))
    lock.release()
    return None


def _dying(address: ServerAddress, folder: ServerFolder) -> bool:
    """A killed server may hold its lock for a moment longer, until the last of its threads is gone."""
    if (found := processes.facts(address.pid)) is not None and not found.zombie:
        return False
    lock = scratch.ProcessLock.take(folder.alive_lock, timeout_s=_DYING_S)
    if lock is None:
        return False
    lock.release()
    return True


def _kill(address: ServerAddress, folder: ServerFolder, timeout_s: float) -> None:
    """End a server that hangs. Returns once its lock is free: the kernel takes a while to take back much memory."""
    killed = processes.kill(address.pid, address.started)
    lock = scratch.ProcessLock.take(folder.alive_lock, timeout_s=timeout_s)
    if lock is None:
        why = "does not end after SIGKILL" if killed else "is not the process that has published its address"
        raise StateServerError(
            f"state server {address.server} on {address.host} does not answer and cannot be replaced: process "
            f"{address.pid} {why}, and {folder.alive_lock} is still held. End the executor to get rid of it"
        )
    lock.release()


def _check_store(config: ServerConfig, host: str) -> None:
    """Refuse a state location that only the driver's machine has: each server would write to a disk of its own."""
    if config.proof is None:
        return
    name, text = config.proof
    store = open_store(config.store_uri, config.store_options)
    try:
        wrong = None if text.encode() in store.get(name) else "is not what the driver has written"
    except FileNotFoundError:
        wrong = "is missing there"
    except CheckpointError as error:
        wrong = f"cannot be read there ({error})"
    if wrong is not None:
        raise CheckpointError(
            f"The executor on {host} does not see the state location {config.store_uri} of the driver: "
            f"{locate(store, name)} {wrong}. State must outlive any machine: give a path of a file system that the "
            "driver and all executors share, or an object store, with the option stateLocation."
        )


def _check_outputs(config: ServerConfig, host: str) -> None:
    """Refuse a sink's path that each machine has for itself: the driver would never see what is written here."""
    for folder in config.outputs:
        if not Disk().exists(Path(folder)):
            raise CheckpointError(
                f"The executor on {host} does not see {folder}, which the driver has made where the query's files go: "
                "what it writes there would be lost. Give the sink a path of a file system that the driver and all "
                "executors share, or of an object store."
            )


def _check_address_space(config: ServerConfig, host: str) -> None:
    """A server inherits this worker's limit, and would fail in the middle of an epoch."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = config.memory_bytes + _BESIDE_STATE_BYTES
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise StateServerError(
            f"the Python workers on {host} may use {limit >> 20} MB of address space each, and a state server with the "
            f"option memory of {config.memory_bytes >> 20} MB needs {needed >> 20} MB: leave "
            f"spark.executor.pyspark.memory unset or set it to at least {needed >> 20}m (where it is not set, look for "
            "a ulimit -v), or lower the option memory"
        )


def _start(
    config: ServerConfig, executor: processes.ProcessFacts, folder: ServerFolder, host: str, timeout_s: float
) -> ServerAddress:
    scratch.remove_file(folder.address)
    process = _spawn(
        ProcessConfig(
            server=short_id(),
            directory=folder.path,
            host=host,
            executor_pid=executor.pid,
            executor_started=executor.started,
            common=config,
        ),
        folder,
    )
    deadline = clock.monotonic() + timeout_s
    while True:
        code = process.poll()
        text = scratch.read_whole(folder.address)
        if text is not None and code is None:
            _started.append(process)
            return ServerAddress(**json.loads(text))
        if code is not None or clock.monotonic() > deadline:
            break
        clock.sleep(_POLL_S)
    if code is None:
        process.kill()
        process.wait()
    what = f"ended with code {code}" if code is not None else f"was not ready within {timeout_s:.0f} s"
    tail = scratch.read_tail(folder.log, _TAIL_BYTES).strip() or "(its log is empty)"
    scratch.remove_tree(folder.path)
    # Who is killed from outside is lost, not unable to start.
    kind = UnansweredError if code == -signal.SIGKILL else StateServerError
    raise kind(f"the state server on {host} {what}. The end of its log:\n{tail}")


def _spawn(config: ProcessConfig, folder: ServerFolder) -> Process:
    """Forked from a warm process where that is possible; else a new interpreter."""
    environment = _environment(config.common.memory_bytes)
    with scratch.open_log(folder.log) as log:
        forked = fork_server(config, environment, folder.path, log)
        if forked is not None:
            return forked
        return processes.start_interpreter(SERVER_WORDS, config.to_json(), folder.path, environment, log)


def _host(executor: processes.ProcessFacts) -> str:
    """This machine as the executor's command line names it, or Spark's processes in general, or as it names itself."""
    named = processes.option_of(executor.pid, "--hostname")
    return named or os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP") or host_name()


def _environment(memory_bytes: int) -> dict[str, str]:
    """The worker's environment, without Spark's secrets and with every place this worker imports from."""
    environment = {name: value for name, value in os.environ.items() if name not in SPARK_SECRETS}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    environment["ACERO_ALIGNMENT_HANDLING"] = "reallocate"
    return {**kept_memory.server_variables(memory_bytes), **environment}
