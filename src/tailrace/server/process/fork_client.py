"""Asking the forkserver (``fork``) of this machine for a state server, in place of starting an interpreter.

Invariants
- Nothing depends on the forkserver: where it cannot be had, or does not answer in time, the caller gets None and starts
  the server plainly.
- A forked process does nothing before the caller has its answer and lets it go on: the two have a socket of their
  own. So when the forkserver dies in between, or the caller gives up, no second server appears later.
- A forkserver that was killed leaves its folder; whoever starts the next one removes it.
- One forkserver for each context (``env.forking.context``): whoever starts one holds the folder's launch lock until it
  listens, and the forkserver holds its alive lock for life.

The folder is private (mode 0700), so is the socket (0600), and each side looks at the other's user.

Threads: any. No Flight client may be open in the forkserver; in the caller that does not matter.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from tailrace.env import clock, processes
from tailrace.env.files import scratch
from tailrace.env.forking import Handover, context
from tailrace.server.transport.folder import ProcessFolder
from tailrace.server.transport.server_config import ProcessConfig

SWITCH = "TAILRACE_FORKSERVER"
"""Set to ``off`` to start every server plainly."""

SPARK_SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET")
"""Variables of Spark's workers that no server gets. They differ between executors, which may share a forkserver."""

SERVER_WORDS = ("-P", "-m", "tailrace.server.process.main")
_FORKSERVER_WORDS = ("-P", "-m", "tailrace.server.process.fork")
"""As long as those of a server, so that a forked one can show a server's: see ``env.forking.show_command``."""

LENGTH = struct.Struct("<Q")
"""Goes before a request, together with the descriptors of the log and of the child's end of the socket pair."""

GO = b"go"
_PREFIX = "forkserver-"
_NAME_CHARS_MAX = len(f"/{_PREFIX}0123456789abcdef/socket")
_READY_S = 20.0
"""How long a forkserver may take to import what it has to, on a busy machine."""
_ANSWER_S = 10.0
_POLL_S = 0.005
_CALLS = 2
"""One that ends for lack of use may do so just when it is called; the next one is fresh."""

_log = logging.getLogger("tailrace.server")
_started: list[subprocess.Popen[bytes]] = []
"""Forkservers that this process has started, kept so that they are reaped when they end before it does."""


@dataclass(frozen=True)
class ForkFolder(ProcessFolder):
    @property
    def socket(self) -> str:
        return os.path.join(self.path, "socket")


class ForkedServer:
    """A server that was forked for us. Used as a ``subprocess.Popen`` is."""

    def __init__(self, pid: int, started: str, control: socket.socket) -> None:
        self.pid = pid
        self._started = started
        self._control = control

    def poll(self) -> int | None:
        """None while it lives; else its exit code, or that of a kill where it did not get to say one."""
        if processes.alive(self.pid, self._started):
            return None
        try:
            self._control.setblocking(False)
            return int(self._control.recv(64) or b"-9")
        except (OSError, ValueError):
            return -9

    def kill(self) -> None:
        processes.kill(self.pid, self._started)

    def wait(self) -> int:
        while (code := self.poll()) is None:
            clock.sleep(_POLL_S)
        return code


def fork_server(
    config: ProcessConfig, environment: Mapping[str, str], folder: str, log: BinaryIO
) -> ForkedServer | None:
    """A process that runs the server of this configuration, or None: then nothing was started."""
    if os.environ.get(SWITCH) == "off":
        return None
    key = context(without=SPARK_SECRETS)
    if key is None:
        return None
    request = request_of(config, Handover.of_this_process(environment, folder))
    try:
        place = ForkFolder(os.path.join(scratch.private_base(_NAME_CHARS_MAX), _PREFIX + key))
        for _ in range(_CALLS):
            forked = _ask(place, request, log, environment)
            if forked is not None:
                return forked
        why = f"the forkserver, or what it has forked, has ended twice before it has answered (log: {place.log})"
    except OSError as error:  # TimeoutError too
        why = str(error)
    _log.warning("no state server could be forked, one is started plainly: %s", why)
    return None


def request_of(config: ProcessConfig, handover: Handover) -> bytes:
    """Whose server it will be stands beside the configuration, which the forkserver itself does not read."""
    owner = (config.executor_pid, config.executor_started)
    return json.dumps([*owner, config.to_json(), handover.to_json()]).encode()


def _ask(place: ForkFolder, request: bytes, log: BinaryIO, environment: Mapping[str, str]) -> ForkedServer | None:
    """None where the forkserver, or its child, was gone before the child has answered."""
    mine, its = socket.socketpair()
    try:
        with its, _connected(place, environment) as line:
            line.settimeout(_ANSWER_S)
            socket.send_fds(line, [LENGTH.pack(len(request))], [log.fileno(), its.fileno()])
            line.sendall(request)
        mine.settimeout(_ANSWER_S)
        answer = mine.recv(256)
        if not answer:
            mine.close()
            return None
        pid, started = json.loads(answer)
        mine.sendall(GO)
        return ForkedServer(pid, started, mine)
    except (BrokenPipeError, ConnectionResetError):
        mine.close()
        return None
    except BaseException:
        mine.close()  # what was forked, or still is, ends when it finds this closed
        raise


def _connected(place: ForkFolder, environment: Mapping[str, str]) -> socket.socket:
    deadline = clock.monotonic() + _READY_S
    _started[:] = [child for child in _started if child.poll() is None]
    while clock.monotonic() < deadline:
        line = _connect(place)
        if line is not None:
            return line
        try:
            scratch.make_private(place.path)
            lock = scratch.ProcessLock.take(place.launch_lock, deadline - clock.monotonic())
        except FileNotFoundError:
            continue  # one that has just ended has removed the folder
        if lock is None:
            break
        with lock:
            line = _connect(place) or _launched(place, environment, deadline)
            if line is not None:
                return line
    raise TimeoutError(f"the forkserver in {place.path} does not listen")


def _launched(place: ForkFolder, environment: Mapping[str, str], deadline: float) -> socket.socket | None:
    """Start a forkserver and wait until it listens. None where it does not in time.

    It gets a process group of its own, since Spark ends that of its Python workers, but no session of its own: whoever
    ends a session, or counts what it uses, must find servers there.
    """
    _sweep(os.path.dirname(place.path))
    with scratch.open_log(place.log) as log:
        process = processes.start_interpreter(
            _FORKSERVER_WORDS, place.path, place.path, environment, log, own_group=True
        )
    _started.append(process)
    while clock.monotonic() < deadline:
        line = _connect(place)
        if line is not None:
            return line
        if process.poll() is not None:
            tail = scratch.read_tail(place.log, 2000).strip() or "(its log is empty)"
            raise ChildProcessError(f"the forkserver has ended with code {process.returncode}: {tail}")
        clock.sleep(_POLL_S)
    return None


def _sweep(base: str) -> None:
    """Remove the folders of forkservers that were killed: nobody of their context may ever come back to them."""
    for name in scratch.folders(base):
        if name.startswith(_PREFIX):
            ForkFolder(os.path.join(base, name)).remove_if_dead()


def _connect(place: ForkFolder) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(_ANSWER_S)
        line.connect(place.socket)
        if peer_user(line) != os.getuid():
            raise PermissionError(f"{place.socket} is held by another user")
        return line
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    except BaseException:
        line.close()
        raise


def peer_user(line: socket.socket) -> int:
    """The user of the process at the other end."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", credentials)[1]
    return user
