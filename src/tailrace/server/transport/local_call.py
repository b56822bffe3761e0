"""Calls by local RPC (``process.local_rpc``), from a process on the server's machine.

Threads: any; each call has a connection to itself, of those that are open and idle, or a new one. As a gRPC client,
this one must not cross a fork.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from tailrace.env import clock
from tailrace.server.transport.local_message import ANSWER, CALL, REFUSAL, TOKEN, BrokenLine, receive, send
from tailrace.server.transport.refusal import Refusal

_IDLE_MAX = 8
_UNANSWERED_MAX = 32
_PAUSE_S = 0.005


class Refused(Exception):
    """The server has answered with an error."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class WrongToken(Exception):
    """The server belongs to another query."""


class LocalRpcClient:
    def __init__(self, path: str, token: str) -> None:
        self._path, self._token = path, token.encode()
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._closed = False
        self._post_lock = threading.Lock()
        self._posting: socket.socket | None = None  # its own, so that no call stands behind what is only posted
        self._unanswered = 0  # answers that are still to come on it
        self._refusal: Refusal | None = None  # the first among those that came

    def call(self, name: str, body: bytes, timeout_s: float) -> list[bytes]:
        """The parts of the answer. Raises ``Refused``, ``WrongToken``, ``TimeoutError``, or another ``OSError``."""
        until = clock.monotonic() + timeout_s
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is None:
            line = self._connected(until)
        try:
            send(line, CALL, [name.encode(), body], until)
            kind, parts = _answer(line, until)
        except BaseException:
            line.close()  # what comes on it later would be taken for the answer to another call
            raise
        with self._lock:
            keep = len(self._idle) < _IDLE_MAX and not self._closed
            if keep:
                self._idle.append(line)
        if not keep:
            line.close()
        if kind == REFUSAL:
            raise Refused(_refusal(parts))
        return [bytes(part) for part in parts]

    def post(self, name: str, body: bytes, timeout_s: float) -> None:
        """As ``call``, but the answer is not waited for: ``drain`` does."""
        until = clock.monotonic() + timeout_s
        with self._post_lock:
            if self._unanswered >= _UNANSWERED_MAX:
                self._receive_answers(until)
            line, self._posting = self._posting, None
            if line is None:
                line, self._unanswered = self._connected(until), 0
            try:
                self._unanswered += 1
                send(line, CALL, [name.encode(), body], until)
            except BaseException:
                line.close()
                raise
            self._posting = line

    def drain(self, timeout_s: float) -> Refusal | None:
        """Wait until all that was posted is worked off, well or not: the first refusal since the last time."""
        with self._post_lock:
            self._receive_answers(clock.monotonic() + timeout_s)
            refusal, self._refusal = self._refusal, None
            return refusal

    def _receive_answers(self, until: float) -> None:
        line, self._posting = self._posting, None
        if line is None:
            return
        try:
            while self._unanswered:
                kind, parts = _answer(line, until)
                self._unanswered -= 1
                if kind == REFUSAL and self._refusal is None:
                    self._refusal = _refusal(parts)
        except BaseException:
            line.close()
            raise
        self._posting = line

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        with self._post_lock:
            posting, self._posting = self._posting, None
        for line in (*idle, *([posting] if posting is not None else [])):
            line.close()

    def _connected(self, until: float) -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            while True:
                left_s = until - clock.monotonic()
                if left_s <= 0:
                    raise TimeoutError("timed out")
                line.settimeout(left_s)
                try:
                    line.connect(self._path)
                    break
                except BlockingIOError:  # so many wait already; the system does not let one wait with them
                    clock.sleep(min(_PAUSE_S, left_s))
            send(line, TOKEN, [self._token], until)  # answered only where it is wrong
        except BaseException:
            line.close()
            raise
        return line


def _refusal(parts: Sequence[bytearray]) -> Refusal:
    kind, message = (bytes(part).decode() for part in parts)
    return Refusal(kind, message)


def _answer(line: socket.socket, until: float) -> tuple[int, list[bytearray]]:
    """The next one: an answer or a refusal."""
    message = receive(line, until=until)
    if message is None:
        raise BrokenLine("it has ended without an answer")
    if message[0] == TOKEN:
        raise WrongToken
    if message[0] not in (ANSWER, REFUSAL):
        raise BrokenLine(f"an answer of kind {message[0]}")
    return message
