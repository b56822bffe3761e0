"""The direct line: a Unix socket on which callers of the server's own machine reach it without gRPC.

A call through gRPC wakes two or three threads on either side. Where all processors are busy, as they are while Spark's
tasks run, each waits for its turn: some three milliseconds a call. Here the caller's own thread writes, and the one
thread of the server that waits on its connection reads, works and answers.

Invariants
- The socket lies in the server's folder, for its user alone; and a connection begins with the token, before which
  nothing else is read. Nothing is unpickled.
- The calls of a connection are worked off in their order. Who wants several at once opens several.
- A call means what it means through gRPC: the service does both.

Threads: one that accepts, and one for each connection; they end with the connection or with ``close``.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tailrace.env.scratch import remove_file
from tailrace.server.direct_message import ANSWER, CALL, REFUSAL, TOKEN, BrokenLine, receive, send
from tailrace.server.refusal import refused

_log = logging.getLogger(__name__)
_WAITING_MAX = 64
_TOKEN_BYTES_MAX = 4096
_TOKEN_TIMEOUT_S = 10.0
_DRAIN_S, _DRAIN_TIMES = 1.0, 64
_CONNECTIONS_MAX = 1024

Act = Callable[[str, pa.Buffer], Sequence[Any]]
"""What is done for a call: its name and body; the parts of the answer."""


class DirectLine:
    def __init__(self, path: str, token: str, act: Act) -> None:
        self._path, self._token, self._act = path, token.encode(), act
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(path)
            self._listener.listen(_WAITING_MAX)
        except BaseException:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, name="direct-accept", daemon=True).start()

    def close(self) -> None:
        """Calls under way lose their callers."""
        with self._lock:
            self._closed = True
            open_ = list(self._connections)
        for each in (self._listener, *open_):
            _end(each)
        remove_file(self._path)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                _log.exception("no connection could be taken on %s", self._path)
                return
            with self._lock:
                welcome = not self._closed and len(self._connections) < _CONNECTIONS_MAX
                if welcome:
                    self._connections.add(connection)
            if welcome:
                threading.Thread(target=self._serve, args=(connection,), name="direct", daemon=True).start()
            else:
                _end(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._has_token(connection):
                while (message := receive(connection)) is not None:
                    self._answer(connection, *message)
        except OSError as error:
            if not self._closed:
                _log.info("a caller is gone: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            _end(connection)

    def _has_token(self, connection: socket.socket) -> bool:
        connection.settimeout(_TOKEN_TIMEOUT_S)
        message = receive(connection, _TOKEN_BYTES_MAX)
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
        name = parts[0].decode()
        try:
            answer = self._act(name, pa.py_buffer(parts[1]))
        except Exception as error:
            told = refused(f"action {name}", error)
            send(connection, REFUSAL, [told.kind.encode(), told.message.encode()])
        else:
            send(connection, ANSWER, answer)


def _drain(connection: socket.socket) -> None:
    """What has been sent is lost on who hears before that it was not read."""
    connection.settimeout(_DRAIN_S)
    for _ in range(_DRAIN_TIMES):
        if not connection.recv(1 << 16):
            return


def _end(line: socket.socket) -> None:
    """Also wakes who waits on it, which closing alone does not."""
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is not connected, or no more
    line.close()
