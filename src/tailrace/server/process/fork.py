"""The forkserver: ``python -m tailrace.server.process.fork``. State servers are forked from it, with all imports done.

A server that starts as a new interpreter spends half a second on imports, and as long again on loading its kernels.
This process has done both, and forks in some milliseconds. It is started by the first process that needs a server
(``fork_client``), and serves all of its session, user, limits and sources (``env.forking.context``).

Invariants
- It never starts a Flight server, nor uses a Flight client, nor runs a Python thread: a child of such a process hangs.
  The threads that numpy and Arrow start when they are imported (OpenBLAS, jemalloc) see to forks themselves.
- It knows nothing of a query but whose executor it is for: a configuration is read by the child, and the child alone.
- A child closes what belongs to the forkserver, answers the caller on the caller's own socket, and does nothing before
  the caller lets it go on. It then is a server as any other (``main``).
- A child never comes back from ``_end_after``, whatever is raised in it: above it are the forkserver's loop and the
  removal of the forkserver's folder.

It ends, and removes its folder, when no executor lives any more that it has forked a server for, when it was not used
for ten minutes, when its socket is gone, or on SIGTERM or SIGHUP. Servers that it has forked live on. With its own it
removes the folders of servers that were killed: no later start on this machine may come to do that.

Threading: one thread. Kernels that are compiled are loaded before the first call is answered: a server could do nothing
before, and so none of them has to load them. Others are compiled in a child, so that nobody waits for that here.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from tailrace.env import clock, processes
from tailrace.env import memory as kept_memory
from tailrace.env.files import scratch
from tailrace.env.files.disk import process_id
from tailrace.env.forking import Handover, take_on
from tailrace.env.kernels.compile import are_compiled
from tailrace.env.pandas_import import hide_pandas
from tailrace.log.typed_json import parsed, typed
from tailrace.server.epoch import assembly
from tailrace.server.process import main as server
from tailrace.server.process.fork_client import GO, LENGTH, SERVER_WORDS, ForkFolder, peer_user
from tailrace.server.transport.folder import sweep
from tailrace.server.transport.server_config import ProcessConfig

LINGER_S = 2.0
"""After the last executor that it has forked for has ended: the next one may come at once."""
_UNUSED_S = 600.0
_TICK_S = 0.5
_QUIET_S = 1.0
"""Kernels are compiled when nobody has asked for so long: the first servers need the processors themselves."""
_REQUEST_S = 5.0
"""For all of a request: who sends it slowly must not keep the others waiting."""
_GO_S = 60.0
_REQUEST_BYTES_MAX = 1 << 30


class _Request(NamedTuple):
    """Whose server it will be; then what only the child reads."""

    pid: int
    started: str
    config: str
    handover: str


class Forkserver:
    def __init__(self, place: ForkFolder, alive: scratch.ProcessLock) -> None:
        self._place = place
        self._alive = alive
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        scratch.remove_file(place.socket)  # of one that was killed
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with scratch.private_files():
            self._listener.bind(place.socket)
        self._listener.listen(64)
        self._owners: dict[tuple[int, str], None] = {}
        self._used = self._owned = clock.monotonic()
        self._ends = False
        self._warming: int | None = None  # the child that compiles kernels
        self._warm = False

    def run(self) -> None:
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._end())
        if are_compiled():
            self._load_kernels()
        _freeze()
        self._used = self._owned = clock.monotonic()  # whoever has started it could not call before
        while not self._is_over():
            ready, _, _ = select.select([self._listener, self._wake], [], [], _TICK_S)
            if self._wake in ready:
                self._wake.recv(4096)
                self._reap()
            if self._listener in ready:
                self._serve()
            elif not self._warm and clock.monotonic() - self._used > _QUIET_S:
                self._warm_up()

    def _end(self) -> None:
        self._ends = True

    def _is_over(self) -> bool:
        now = clock.monotonic()
        self._owners = {owner: None for owner in self._owners if processes.alive(*owner)}
        if self._owners:
            self._owned = now
        unused = now - self._used > _UNUSED_S
        return self._ends or unused or now - self._owned > LINGER_S or scratch.file_bytes(self._place.socket) is None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._warming:
                self._warming, self._warm = None, True
                if os.waitstatus_to_exitcode(status) == 0:
                    self._load_kernels()  # what the child has compiled
                    _freeze()

    def _load_kernels(self) -> None:
        assembly.warm_up()
        self._warm = True

    def _warm_up(self) -> None:
        if self._warming is not None:
            return
        try:
            pid = os.fork()
        except OSError:  # too many processes, or too little memory: servers load their kernels themselves
            traceback.print_exc()
            self._warm = True
            return
        if pid == 0:
            _end_after(self._compile)
        self._warming = pid

    def _compile(self) -> int:
        """In a child."""
        processes.end_with_parent()
        self._close_own()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        assembly.warm_up()
        return 0

    def _serve(self) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError:
            return  # who called has hung up already
        self._used = self._owned = clock.monotonic()
        with line:
            descriptors: list[int] = []
            try:
                line.settimeout(_REQUEST_S)
                if peer_user(line) != os.getuid():
                    raise PermissionError("a call of another user")
                request = _receive(line, descriptors)
                log, control = descriptors
                pid, started, config, handover = typed(_Request, parsed(request))
                if threading.active_count() != 1:
                    raise RuntimeError(f"threads were started: {threading.enumerate()}")
                self._owners[pid, started] = None
                if os.fork() == 0:
                    _end_after(lambda: self._run_server(line, config, handover, log, control))
            except Exception:
                traceback.print_exc()  # the caller finds its socket closed, and starts a server by itself
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _run_server(self, line: socket.socket, config: str, handover: str, log: int, control: int) -> int:
        """In a child: a server's whole life. The caller hears of its end, if it has let it go on."""
        line.close()
        self._close_own()
        given = Handover.from_json(handover)
        take_on(given, log, [sys.executable, *SERVER_WORDS])
        kept_memory.apply_variables(given.environment)
        sys.argv = [server.__file__]
        myself = processes.facts(process_id())
        assert myself is not None
        with socket.socket(fileno=control) as caller:
            caller.settimeout(_GO_S)
            caller.sendall(json.dumps([myself.pid, myself.started]).encode())
            if caller.recv(len(GO)) != GO:
                return 1  # nobody waits for this server
            caller.settimeout(None)
            code = 1
            try:
                code = server.run(ProcessConfig.from_json(config))
                return code
            finally:
                with suppress(OSError):  # who has asked may have ended since
                    caller.sendall(str(code).encode())

    def _close_own(self) -> None:
        """In a child: what belongs to the forkserver. Its lock stays taken, by the forkserver."""
        self._listener.close()
        self._wake.close()
        self._woken.close()
        self._alive.release()

    def close(self) -> None:
        self._listener.close()
        sweep(os.path.dirname(self._place.path))
        self._remove_folder()
        self._alive.release()

    def _remove_folder(self) -> None:
        """Not while somebody starts the next forkserver in it, who would end without a word."""
        with suppress(FileNotFoundError):  # it was removed by others
            launch = scratch.ProcessLock.take(self._place.launch_lock, 0.0)
            if launch is not None:
                with launch:
                    scratch.remove_tree(self._place.path)


def _freeze() -> None:
    """What all children share: collecting would only copy its pages."""
    gc.collect()
    kept_memory.give_back()
    gc.freeze()


def _receive(line: socket.socket, descriptors: list[int]) -> bytes:
    head, received, _, _ = socket.recv_fds(line, LENGTH.size, 2)
    descriptors += received
    if len(head) != LENGTH.size or len(received) != 2:
        raise ConnectionError(f"{len(head)} bytes and {len(received)} descriptors in place of a request")
    (length,) = LENGTH.unpack(head)
    if length > _REQUEST_BYTES_MAX:
        raise ConnectionError(f"a request of {length} bytes")
    data, until = bytearray(), clock.monotonic() + _REQUEST_S
    while len(data) < length:
        line.settimeout(max(0.001, until - clock.monotonic()))
        part = line.recv(min(1 << 20, length - len(data)))
        if not part:
            raise ConnectionError("the caller has hung up")
        data += part
    return bytes(data)


def _end_after(work: Callable[[], int]) -> NoReturn:
    """In a child that was just forked: do this, and end with its code."""
    code = 1
    try:
        code = work()
    except BaseException:
        with suppress(Exception):  # a full disk takes no log either
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)  # neither gRPC's threads nor a kernel that still runs may keep a process that has to end


def main() -> int:
    place = ForkFolder(sys.stdin.readline().rstrip("\n"))
    if not place.path:
        return 1  # who has started it was killed before it could say where
    scratch.leave_stdin()
    hide_pandas()
    alive = scratch.ProcessLock.take(place.alive_lock, timeout_s=5.0)
    if alive is None:
        print(f"another forkserver lives in {place.path}", file=sys.stderr)
        return 1
    forkserver = Forkserver(place, alive)
    try:
        forkserver.run()
    finally:
        forkserver.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
