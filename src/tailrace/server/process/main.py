"""A state server's process: ``python -m tailrace.server.process.main``, one per executor and query run.

It reads one line of JSON from stdin (not from its arguments: they would show the token in the process list), listens,
writes its address into its folder, and only then warms its kernels, so that whoever started it need not wait for that.

It ends when the executor's JVM ends, on SIGTERM or SIGHUP (the Python daemon's process group gets one when Spark stops
it), when a driver says so, or when no driver opens it within a bounded time. In each case its folder, socket and
spilled rows go with it. Its lock file is held for its whole life: who can take the lock knows that it is dead.

Threading: the main thread only waits for one of these ends and keeps the log bounded. gRPC and the local RPC have
threads of their own; one more builds the engine.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable

from tailrace.env import clock, processes
from tailrace.env import memory as kept_memory
from tailrace.env.files import scratch
from tailrace.env.files.disk import process_id
from tailrace.env.pandas_import import hide_pandas
from tailrace.operators.registry import spec_from_json
from tailrace.server.epoch import assembly
from tailrace.server.hints.receiver import HintReceiver
from tailrace.server.process.flight_service import EngineFuture, StateService
from tailrace.server.process.local_rpc import LocalRpcServer
from tailrace.server.transport.folder import ServerFolder
from tailrace.server.transport.server_config import TCP, UNIX_SCHEME, ProcessConfig, ServerAddress, ServerConfig
from tailrace.server.transport.wire import encode
from tailrace.types import Field

LOG_BYTES_MAX = 1 << 20
LOG_BYTES_KEPT = 1 << 18
_TICK_S = 1.0
_CLOSE_S = 2.0
_SWITCH_S = 5e-4
"""Of the interpreter, 5 ms if nobody says. A thread that reads records ahead comes back from compiled code some seventy
times a fetch, for each file it reads: beside one that compacts it may wait for that long each time."""
_BUILD_S = 600.0
"""How long calls wait for the engine: kernels are compiled the first time on a machine."""

_log = logging.getLogger("tailrace.server")


class End:
    """Wakes the main thread: from a signal, from a call of the service, or from the executor's end."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self.why: str | None = None
        self.keep = True  # the copies of objects, unless a driver says that nobody will want them

    def ordered(self, keep: bool) -> None:
        self.keep = keep
        self.ask("a driver has ended it")

    def ask(self, why: str) -> None:
        self.why = self.why or why
        try:
            self._write.send(b".")
        except BlockingIOError:
            pass  # it has been woken often enough

    def fileno(self) -> int:
        return self._read.fileno()


def main() -> int:
    hide_pandas()
    config = ProcessConfig.from_json(sys.stdin.readline())
    scratch.leave_stdin()
    return run(config)


def run(config: ProcessConfig) -> int:
    """A server's life, in a process that is its own: returns the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    end = End()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: end.ask(f"signal {signal.Signals(number).name}"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in a shell reaches the group; the driver decides what stops

    folder = ServerFolder(config.directory)
    scratch.temporary_in(folder.path)
    executor = processes.facts(config.executor_pid)
    if executor is None or executor.started != config.executor_started:
        _log.error("the executor's process %d is gone", config.executor_pid)
        return 1
    alive = scratch.ProcessLock.take(folder.alive_lock, timeout_s=5.0)
    if alive is None:
        _log.error("another server lives in %s", folder.path)
        return 1
    opened = threading.Event()
    sys.setswitchinterval(_SWITCH_S)
    engine = EngineFuture(_BUILD_S)
    service, line = _listen(config, engine, opened.set, end.ordered)
    # Up to here a failure leaves the folder to the starter, which shows the log and removes it.
    builder = threading.Thread(target=_build, args=(config, engine), name="build", daemon=True)
    try:
        builder.start()
        _wait(config, executor, opened, end)
        _log.info("ending: %s", end.why)
        if line is not None:
            line.close(_CLOSE_S)  # the driver that ends it is answered first
        _close(service)
    finally:
        scratch.remove_tree(folder.path)
        if not end.keep:
            assembly.remove_copies(config)
    return 0


def _keys(common: ServerConfig) -> dict[str, tuple[Field, ...]]:
    """The keys of each operator; of none where a spec cannot be read: building the engine of it says what is wrong."""
    try:
        return {spec.name: tuple(spec.keys) for spec in map(spec_from_json, common.operators)}
    except Exception:
        return {}


def _listen(
    config: ProcessConfig, engine: EngineFuture, opened: Callable[[], None], shutdown: Callable[[bool], None]
) -> tuple[StateService, LocalRpcServer | None]:
    """Listen, then publish the address. Callers of this machine have a line of their own."""
    common, folder = config.common, ServerFolder(config.directory)
    scheme, certificates = "grpc", None
    if common.transport == TCP and common.tls is not None:
        scheme, certificates = "grpc+tls", common.tls.certificates(scratch.read_binary)
    unix = f"{UNIX_SCHEME}{folder.socket(config.server)}"
    location = f"{scheme}://{common.bind_host or config.host}:0" if common.transport == TCP else unix
    with scratch.private_files():
        service = StateService(
            location,
            engine,
            common.token,
            server=config.server,
            folder=folder.path,
            opened=opened,
            shutdown=shutdown,
            tls_certificates=certificates,
            hints=HintReceiver(common.run, _keys(common)),
        )
        line = None
        if common.transport != TCP:
            line = LocalRpcServer(folder.local_rpc(config.server), common.token, service.act)
    myself = processes.facts(process_id())
    assert myself is not None
    address = ServerAddress(
        server=config.server,
        uri=f"{scheme}://{config.host}:{service.port}" if common.transport == TCP else unix,
        host=config.host,
        pid=myself.pid,
        executor_pid=config.executor_pid,
        log_path=folder.log,
        started=myself.started,
        executor=processes.option_of(config.executor_pid, "--executor-id") or "",
    )
    scratch.write_whole(folder.address, encode(address).decode())
    return service, line


def _build(config: ProcessConfig, late: EngineFuture) -> None:
    began = clock.monotonic()
    try:
        assembly.warm_up()
        gc.collect()
        kept_memory.give_back()  # what loading kernels took, and compiling them on a machine's first start
        gc.freeze()  # code and caches that live as long as the process: collecting would walk them in mid-epoch
        warm_up_ms = (clock.monotonic() - began) * 1000
        late.set(assembly.build_engine(config, round(warm_up_ms, 3)))
        _log.info("ready, kernels warmed in %.0f ms", warm_up_ms)
    except BaseException as error:
        _log.exception("the engine could not be built")
        late.fail(error)


def _wait(config: ProcessConfig, executor: processes.ProcessFacts, opened: threading.Event, end: End) -> None:
    """Return when the server has to end; ``end.why`` says why."""
    pidfd = processes.open_pidfd(executor.pid)
    deadline = clock.monotonic() + config.common.open_timeout_s
    log_path = ServerFolder(config.directory).log
    watched = [end.fileno(), *([pidfd] if pidfd is not None else [])]
    while end.why is None:
        readable, _, _ = select.select(watched, [], [], _TICK_S)
        if pidfd in readable or not processes.alive(executor.pid, executor.started):
            end.ask(f"the executor's process {executor.pid} has ended")
        elif not opened.is_set() and clock.monotonic() > deadline:
            end.ask(f"no driver has opened it within {config.common.open_timeout_s:.0f} s")
        scratch.trim_log(log_path, LOG_BYTES_MAX, LOG_BYTES_KEPT)


def _close(service: StateService) -> None:
    """Let calls under way end, but not for long: gRPC's own shutdown waits for them without a bound."""
    closer = threading.Thread(target=service.shutdown, name="shutdown", daemon=True)
    closer.start()
    closer.join(timeout=_CLOSE_S)


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:  # also where a full disk takes no log
        os._exit(code)  # neither gRPC's threads nor a kernel that still runs may keep a process that has to end
