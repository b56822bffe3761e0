"""Calls over the direct line (``direct_line``), from a process on the server's machine.

Threads: any; each call has a connection to itself, of those that are open and idle, or a new one. As a gRPC client,
this one must not cross a fork.
"""

from __future__ import annotations

import socket
import threading

from tailrace.server.direct_message import ANSWER, CALL, REFUSAL, TOKEN, BrokenLine, receive, send
from tailrace.server.refusal import Refusal

_IDLE_MAX = 8
_UNHEARD_MAX = 32


class Refused(Exception):
    """The server has answered with an error."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class WrongToken(Exception):
    """The server belongs to another query."""


class DirectCaller:
    def __init__(self, path: str, token: str) -> None:
        self._path, self._token = path, token.encode()
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._telling = threading.Lock()
        self._told: socket.socket | None = None  # its own, so that no call stands behind what is only told
        self._unheard = 0  # answers that are still to come on it

    def call(self, name: str, body: bytes, timeout_s: float) -> list[bytes]:
        """The parts of the answer. Raises ``Refused``, ``WrongToken``, ``TimeoutError``, or another ``OSError``."""
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is None:
            line = self._connected(timeout_s)
        try:
            line.settimeout(timeout_s)
            send(line, CALL, [name.encode(), body])
            kind, parts = _answer(line)
        except BaseException:
            line.close()  # what comes on it later would be taken for the answer to another call
            raise
        with self._lock:
            keep = len(self._idle) < _IDLE_MAX
            if keep:
                self._idle.append(line)
        if not keep:
            line.close()
        if kind == REFUSAL:
            raise Refused(Refusal(*(bytes(part).decode() for part in parts)))
        return [bytes(part) for part in parts]

    def tell(self, name: str, body: bytes, timeout_s: float) -> None:
        """As ``call``, but the answer is not waited for: ``heard`` does."""
        with self._telling:
            if self._unheard >= _UNHEARD_MAX:
                self._hear(timeout_s)
            line, self._told = self._told, None
            if line is None:
                line, self._unheard = self._connected(timeout_s), 0
            try:
                line.settimeout(timeout_s)
                send(line, CALL, [name.encode(), body])
            except BaseException:
                line.close()
                raise
            self._told = line
            self._unheard += 1

    def heard(self, timeout_s: float) -> None:
        """Wait until all that was told is worked off, well or not."""
        with self._telling:
            self._hear(timeout_s)

    def _hear(self, timeout_s: float) -> None:
        line, self._told = self._told, None
        if line is None:
            return
        try:
            line.settimeout(timeout_s)
            while self._unheard:
                _answer(line)
                self._unheard -= 1
        except BaseException:
            line.close()
            raise
        self._told = line

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        with self._telling:
            told, self._told = self._told, None
        for line in (*idle, *([told] if told is not None else [])):
            line.close()

    def _connected(self, timeout_s: float) -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.settimeout(timeout_s)
            line.connect(self._path)
            send(line, TOKEN, [self._token])  # answered only where it is wrong
        except BaseException:
            line.close()
            raise
        return line


def _answer(line: socket.socket) -> tuple[int, list[bytearray]]:
    """The next one: an answer or a refusal."""
    message = receive(line)
    if message is None:
        raise BrokenLine("it has ended without an answer")
    if message[0] == TOKEN:
        raise WrongToken
    if message[0] not in (ANSWER, REFUSAL):
        raise BrokenLine(f"an answer of kind {message[0]}")
    return message
