"""Local RPC: a Unix socket on which callers of the server's own machine reach it without gRPC.

A call through gRPC wakes two or three threads on either side. Where all processors are busy, as they are while Spark's
tasks run, each waits for its turn: some three milliseconds a call. Here the caller's own thread writes, and the one
thread of the server that waits on its connection reads, works and answers.

Invariants
- The socket lies in the server's folder, for its user alone; and a connection begins with the token, before which
  nothing else is read. Nothing is unpickled.
- The calls of a connection are worked off in their order. Who wants several at once opens several. What a caller has
  asked for who is gone by then is not begun.
- A call means what it means through gRPC: the service does both.

Threads: one that accepts, and one for each connection; they end with the connection or with ``close``.
"""

from __future__ import annotations

import hmac
import logging
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tailrace.env import clock
from tailrace.env.files.scratch import remove_file
from tailrace.server.transport.local_message import ANSWER, CALL, REFUSAL, TOKEN, BrokenLine, receive, send
from tailrace.server.transport.refusal import refused

_log = logging.getLogger(__name__)
_WAITING_MAX = 1024
_PAUSE_S = 0.1
_TOKEN_BYTES_MAX = 4096
_TOKEN_TIMEOUT_S = 10.0
_DRAIN_S, _DRAIN_TIMES = 1.0, 64
_CONNECTIONS_MAX = 1024
_NAME_BYTES_MAX = 64
"""Of an action. It is logged and named in errors: a longer one is none of ours."""

Act = Callable[[str, pa.Buffer], Sequence[Any]]
"""What is done for a call: its name and body; the parts of the answer."""


class LocalRpcServer:
    def __init__(self, path: str, token: str, act: Act) -> None:
        self._path, self._token, self._act = path, token.encode(), act
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(path)
            self._listener.listen(_WAITING_MAX)
        except BaseException:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, name="local-rpc-accept", daemon=True).start()

    def close(self, grace_s: float = 0.0) -> None:
        """No calls are taken any more; those under way may end, for so long, and lose their callers then."""
        with self._changed:
            self._closed = True
            _end(self._listener)
            for connection in self._connections:
                _shut(connection, socket.SHUT_RD)  # a thread that waits for the next call has answered the last one
            deadline = clock.monotonic() + grace_s
            while self._connections and (left_s := deadline - clock.monotonic()) > 0:
                self._changed.wait(left_s)
            for connection in self._connections:
                _end(connection)
        remove_file(self._path)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                # Out of descriptors or memory, for now: callers wait in the listener's queue.
                _log.exception("no connection could be taken on %s", self._path)
                clock.sleep(_PAUSE_S)
                continue
            with self._changed:
                welcome = not self._closed and len(self._connections) < _CONNECTIONS_MAX
                if welcome:
                    self._connections.add(connection)
            if not welcome:
                _end(connection)
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="local-rpc", daemon=True).start()
            except RuntimeError:
                _log.exception("no thread for a connection on %s", self._path)
                self._leave(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._has_token(connection):
                while (message := receive(connection)) is not None:
                    if _has_left(connection):
                        return  # who called has given up: what he wanted may be wrong by now
                    self._answer(connection, *message)
        except OSError as error:
            if not self._closed:
                _log.info("a caller is gone: %s", error)
        except MemoryError:
            _log.error("a caller on %s has announced more bytes than there is memory for", self._path)
        finally:
            self._leave(connection)

    def _leave(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()
        _end(connection)

    def _has_token(self, connection: socket.socket) -> bool:
        message = receive(connection, _TOKEN_BYTES_MAX, clock.monotonic() + _TOKEN_TIMEOUT_S)
        if message is None:
            return False
        kind, parts = message
        if kind != TOKEN or len(parts) != 1 or not hmac.compare_digest(bytes(parts[0]), self._token):
            send(connection, TOKEN, [])
            _drain(connection)
            return False
        connection.settimeout(None)
        return True

    def _answer(self, connection: socket.socket, kind: int, parts: Sequence[bytearray]) -> None:
        if kind != CALL or len(parts) != 2:
            raise BrokenLine(f"no call: a message of kind {kind} and {len(parts)} parts")
        name = parts[0][:_NAME_BYTES_MAX].decode(errors="replace")
        try:
            answer = self._act(name, pa.py_buffer(parts[1]))
        except Exception as error:
            refusal = refused(f"action {name}", error)
            send(connection, REFUSAL, [refusal.kind.encode(), refusal.message.encode(errors="replace")])
        else:
            send(connection, ANSWER, answer)


def _has_left(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection, whatever is still to be read of it."""
    poll = select.poll()
    poll.register(connection, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _drain(connection: socket.socket) -> None:
    """What has been sent is lost on who hears before that it was not read."""
    connection.settimeout(_DRAIN_S)
    for _ in range(_DRAIN_TIMES):
        if not connection.recv(1 << 16):
            return


def _shut(line: socket.socket, how: int) -> None:
    try:
        line.shutdown(how)
    except OSError:
        pass  # it is not connected, or no more


def _end(line: socket.socket) -> None:
    """Also wakes who waits on it, which closing alone does not."""
    _shut(line, socket.SHUT_RDWR)
    line.close()
