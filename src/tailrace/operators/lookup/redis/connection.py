"""A connection to a Redis server: whole batches of keys in one round trip, without Python for each of them.

Only what lookups need of the protocol (RESP 2): log in, choose a database, ``MGET``, ``HMGET``. Errors are
``ConnectionLost`` where they may pass, else ``TableError``; no message holds the password. A certificate, or a server
that speaks no TLS, is as wrong after half a minute: such an error does not pass.

Threads: one at a time.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tailrace.errors import TableError
from tailrace.operators.lookup.backend import NOTHING_LOST, ConnectionLost
from tailrace.operators.lookup.redis import resp_kernels as rk
from tailrace.state.rows.buffers import view

_CHUNK = 1 << 16
_MAY_PASS = ("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "ERR max number of clients")
_NO_BYTES = np.empty(0, np.uint8)


@dataclass(frozen=True)
class RedisAddress:
    host: str
    port: int
    database: int
    tls: bool
    timeout_s: float
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


class RedisConnection:
    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._buffer = np.empty(_CHUNK, np.uint8)
        try:
            self._line: socket.socket = socket.create_connection((address.host, address.port), address.timeout_s)
            self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls:
                self._line = ssl.create_default_context().wrap_socket(self._line, server_hostname=address.host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError) as error:
            raise ConnectionLost(_text(error)) from None  # it hung up in the middle
        except ssl.SSLError as error:
            raise TableError(_untrusted(address, error)) from None
        except OSError as error:
            raise ConnectionLost(_text(error)) from None
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._line.close()

    def _log_in(self) -> None:
        address = self._address
        commands = []
        if address.password:
            commands.append(["AUTH", *([address.user] if address.user else []), address.password])
        if address.database:
            commands.append(["SELECT", str(address.database)])
        if commands:
            self._send(b"".join(_command(*command) for command in commands))
            self._receive(len(commands), len(commands))

    # Asking ----------------------------------------------------------------------------------------------------------

    def strings(self, keys: pa.Array, prefix: bytes) -> pa.Array:
        """The value of each key; null where there is none, or where it is no string."""
        count = len(keys)
        self._send(f"*{count + 1}\r\n$4\r\nMGET\r\n".encode(), request(keys, prefix, b"", b""))
        starts, lengths = self._receive(1, count)
        return self._column(starts, lengths, 0, 1, count)

    def hashes(self, keys: pa.Array, prefix: bytes, fields: list[str]) -> list[pa.Array]:
        """Of each key's hash these fields, a column each; null where there is no such field, or no such key."""
        head = f"*{len(fields) + 2}\r\n$5\r\nHMGET\r\n".encode()
        tail = b"".join(_bulk(name.encode()) for name in fields)
        self._send(request(keys, prefix, head, tail))
        count = len(keys)
        starts, lengths = self._receive(count, count * len(fields))
        return [self._column(starts, lengths, n, len(fields), count) for n in range(len(fields))]

    def _column(self, starts: np.ndarray, lengths: np.ndarray, first: int, step: int, count: int) -> pa.Array:
        own = lengths[first :: step or 1]
        offsets, data = np.zeros(count + 1, np.int64), np.empty(int(np.maximum(own, 0).sum()), np.uint8)
        rk.gather(self._buffer, starts, lengths, first, step, offsets, data)
        there = own >= 0
        bitmap = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        return pa.Array.from_buffers(pa.large_binary(), count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])

    def _send(self, *parts: bytes | memoryview) -> None:
        try:
            for part in parts:
                self._line.sendall(part)
        except OSError as error:
            raise ConnectionLost(_text(error)) from None

    def _receive(self, replies: int, strings: int) -> tuple[np.ndarray, np.ndarray]:
        starts, lengths = np.zeros(strings, np.int64), np.zeros(strings, np.int64)
        state = np.array([0, replies, 0, -1], np.int64)
        end = 0
        while not rk.read_replies(self._buffer, end, state, starts, lengths):
            if len(self._buffer) - end < _CHUNK // 2:
                grown = np.empty(2 * len(self._buffer), np.uint8)
                grown[:end] = self._buffer[:end]
                self._buffer = grown
            try:
                got = self._line.recv_into(self._buffer[end:].data)
            except OSError as error:
                raise ConnectionLost(_text(error)) from None
            if not got:
                raise ConnectionLost("the server has closed the connection")
            end += got
        if state[rk.ERROR_AT] >= 0:
            self._fail(bytes(self._buffer[state[rk.ERROR_AT] + 1 : end]).split(b"\r\n", 1)[0].decode(errors="replace"))
        if state[rk.FOUND] != strings:
            raise TableError(f"Redis answered {state[rk.FOUND]} values where {strings} were asked for. {NOTHING_LOST}")
        return starts, lengths

    def _fail(self, said: str) -> None:
        if self._address.password:
            said = said.replace(self._address.password, "...")
        said = said.rstrip(".")
        if said.startswith(_MAY_PASS):
            raise ConnectionLost(said)
        advice = ""
        if said.startswith(("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password")):
            advice = " Give the right user and password in the table's url."
        elif said.startswith("MOVED"):
            advice = " This is a node of a Redis Cluster, which is not supported: give a server that has all keys."
        elif said.startswith("WRONGTYPE"):
            advice = " The keys hold no hashes: with layout='string' values are read as strings."
        where = f"Redis {self._address.host}:{self._address.port}"
        raise TableError(f"{where} refused: {said}.{advice} {NOTHING_LOST}")


def _untrusted(address: RedisAddress, error: ssl.SSLError) -> str:
    """What is wrong with the server's TLS, and what to do."""
    where = f"Redis {address.host}:{address.port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{where}: its certificate is not trusted: {error.verify_message.rstrip('.')}. Give the host by the name "
            "that the certificate has, and make its authority known on every executor (the environment variable "
            f"SSL_CERT_FILE, or the system's certificates). {NOTHING_LOST}"
        )
    return (
        f"{where} does not speak TLS as it is wanted: {(error.reason or str(error)).rstrip('.')}. Give redis:// where "
        f"it has none. {NOTHING_LOST}"
    )


def _text(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else (error.strerror or str(error))


def _bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def _command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(_bulk(word.encode()) for word in words)


def request(keys: pa.Array, prefix: bytes, head: bytes, tail: bytes) -> memoryview:
    """The keys (of type large_binary, without nulls) as they are sent."""
    count = len(keys)
    _, offset_buffer, data = keys.buffers()
    offsets = view(offset_buffer, np.int64, count + 1, keys.offset)
    source = view(data, np.uint8, 0 if data is None else data.size)
    fixed = len(head) + len(prefix) + len(tail) + 25
    out = np.empty(count * fixed + int(offsets[-1] - offsets[0]), np.uint8)
    end = rk.write_keys(offsets, source, _bytes(prefix), _bytes(head), _bytes(tail), out)
    return out[:end].data


def _bytes(text: bytes) -> np.ndarray:
    return np.array(bytearray(text), np.uint8) if text else _NO_BYTES
