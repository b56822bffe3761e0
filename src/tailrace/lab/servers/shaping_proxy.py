"""A slow, failing or refusing way to an HTTP server: a reverse proxy in a process of its own.

It stands before the lab's S3 server, so that Tailrace and its peers meet one and the same slow store. It passes every
byte of a request on as it came, the Host header too, so that signatures stay valid; answers likewise. Plain HTTP/1.1
on loopback, kept alive, bodies streamed.

Each request waits ``latency_ms``; then its bytes share one line in each direction with those of all other requests
(``mb_per_s``, 10^6 bytes). Of ``errors`` (a share, from ``seed``) a third is answered 503, a third loses its connection
before anything was done, a third after the server has done it. ``refuse``, ``vanish`` and ``hang`` answer 403, 404
NoSuchBucket, or nothing at all; ``hang_next`` and ``lose_next`` say of how many requests from now on there is no
answer, or it is lost after the work was done. All may be changed while it runs, and hold from the next request on.

``ShapingProxy`` is the parent's hold on that process: JSON lines on its standard input and output; an input that closes
ends it, however the parent came to its end. One thread at a time asks it. The file is run by its path and needs the
standard library only, so that it starts at once. What it costs by itself: ``docs/how-to/object-stores.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

_CHUNK = 1 << 16
_HEAD_BYTES_MAX = 1 << 18
_CREDIT_S = 0.01
_FAULTS = ("unavailable", "broken_before", "broken_after")


class ShapingProxy:
    """``with ShapingProxy(port, latency_ms=50, mb_per_s=20) as proxy:`` then ``proxy.endpoint``."""

    def __init__(
        self,
        port: int,
        *,
        latency_ms: float = 0,
        mb_per_s: float = 0,
        errors: float = 0,
        seed: int = 0,
    ) -> None:
        """``mb_per_s``: 0 for as fast as it goes."""
        self._shape = {"latency_ms": latency_ms, "mb_per_s": mb_per_s, "errors": errors, "seed": seed}
        self._target = port
        self.port = 0

    def __enter__(self) -> ShapingProxy:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self._target), json.dumps(self._shape)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches us only, and we end it
            cwd=Path(__file__).parent,
        )
        self.port = int(self._answer()["port"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def change(self, **settings: Any) -> None:
        """Any of latency_ms, mb_per_s, errors, seed; refuse, vanish, hang: switches; hang_next, lose_next: so many."""
        self._ask("change", settings)

    def counts(self) -> dict[str, int]:
        """Since the start: requests by method, ``bytes_up``, ``bytes_down``, and each kind of fault."""
        return dict(self._ask("counts", {}))

    def _ask(self, do: str, settings: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([do, settings]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the shaping proxy has ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer


# What follows runs in the proxy's process: one thread, one event loop.


class _Line:
    """One direction's bytes, one after the other."""

    def __init__(self) -> None:
        self._free = 0.0  # when the last byte that was promised is through

    async def carry(self, size: int, bytes_per_s: float) -> None:
        if bytes_per_s <= 0 or size == 0:
            return
        now = asyncio.get_running_loop().time()
        # Sleeps end late: what that loses stays on the account for a while, else the line would be slower than said.
        self._free = max(now - _CREDIT_S, self._free) + size / bytes_per_s
        if self._free > now:
            await asyncio.sleep(self._free - now)


class _Head:
    """A request's or an answer's first lines, kept as they came."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        first, *lines = raw.decode("latin-1").split("\r\n")
        self.words = first.split(" ", 2)
        self.fields: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            self.fields[name.strip().lower()] = value.strip()
        self.chunked = "chunked" in self.fields.get("transfer-encoding", "").lower()
        self.length = int(self.fields.get("content-length", 0))

    @property
    def closes(self) -> bool:
        return self.fields.get("connection", "").lower() == "close"


class _Proxy:
    def __init__(self, target: int, settings: dict[str, Any]) -> None:
        self._target = target
        self._settings: dict[str, Any] = {
            "latency_ms": 0,
            "mb_per_s": 0,
            "errors": 0,
            "seed": 0,
            "refuse": False,
            "vanish": False,
            "hang": False,
            "hang_next": 0,
            "lose_next": 0,
        }
        self._up, self._down = _Line(), _Line()
        self._release = asyncio.Event()
        self.counts: dict[str, int] = {"requests": 0, "bytes_up": 0, "bytes_down": 0}
        self.change(settings)

    def change(self, settings: dict[str, Any]) -> None:
        if unknown := sorted(settings.keys() - self._settings.keys()):
            raise ValueError(f"not known: {', '.join(unknown)}; there are {', '.join(self._settings)}")
        self._settings |= settings
        if "seed" in settings or "errors" in settings:
            self._random = random.Random(self._settings["seed"])
        if not self._settings["hang"]:
            self._release.set()  # who hung loses the connection
            self._release = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head = _Head(await reader.readuntil(b"\r\n\r\n"))
                self._count("requests")
                self._count(head.words[0])
                if "100-continue" in head.fields.get("expect", ""):
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                fault = self._fault()
                if fault:
                    self._count(fault)
                if fault == "hang":
                    await self._release.wait()
                    return
                if self._settings["latency_ms"] > 0:
                    await asyncio.sleep(self._settings["latency_ms"] / 1e3)
                if fault == "broken_before":
                    return
                if fault not in ("", "broken_after"):
                    await self._pass_body(head, reader, None, self._up, "bytes_up")
                    writer.write(_refusal(fault, head.words[0]))
                    await writer.drain()
                    continue
                if server is None or server[0].at_eof():
                    if server is not None:
                        server[1].close()
                    server = await asyncio.open_connection("127.0.0.1", self._target, limit=_HEAD_BYTES_MAX)
                if not await self._exchange(head, reader, writer, server, answered=fault == ""):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass  # one of the two has gone: so does the other
        finally:
            for each in (writer, server and server[1]):
                if each is not None:
                    each.close()

    async def _exchange(
        self,
        head: _Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        answered: bool,
    ) -> bool:
        """One request and its answer; whether the connection goes on. Not ``answered``: done, but without an answer."""
        server[1].write(head.raw)
        sending: asyncio.Task[None] | None = None
        if head.chunked or head.length:
            # Beside the wait for the answer: a server may refuse before it has read all.
            sending = asyncio.create_task(self._pass_body(head, reader, server[1], self._up, "bytes_up"))
        try:
            answer = _Head(await server[0].readuntil(b"\r\n\r\n"))
            while answer.words[1].startswith("1"):
                answer = _Head(await server[0].readuntil(b"\r\n\r\n"))
            bare = head.words[0] == "HEAD" or answer.words[1] in ("204", "304")
            if not answered:
                if not bare:
                    await self._pass_body(answer, server[0], None, None, "")
                return False
            writer.write(answer.raw)
            if not bare:
                await self._pass_body(answer, server[0], writer, self._down, "bytes_down")
            await writer.drain()
            whole = sending is None or (sending.done() and sending.exception() is None)
            return whole and not answer.closes and not head.closes
        finally:
            if sending is not None and not sending.done():
                sending.cancel()
            if sending is not None:
                await asyncio.gather(sending, return_exceptions=True)

    async def _pass_body(
        self,
        head: _Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter | None,
        line: _Line | None,
        counter: str,
    ) -> None:
        if not head.chunked:
            await self._pass_bytes(head.length, reader, writer, line, counter)
            return
        while True:
            size_line = await reader.readuntil(b"\r\n")
            if writer is not None:
                writer.write(size_line)
            size = int(size_line.split(b";")[0], 16)
            if size:
                await self._pass_bytes(size + 2, reader, writer, line, counter)
                continue
            while True:  # trailers, then an empty line
                trailer = await reader.readuntil(b"\r\n")
                if writer is not None:
                    writer.write(trailer)
                if trailer == b"\r\n":
                    return

    async def _pass_bytes(
        self,
        size: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter | None,
        line: _Line | None,
        counter: str,
    ) -> None:
        while size:
            data = await reader.read(min(size, _CHUNK))
            if not data:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(data)
            if line is not None:
                self._count(counter, len(data))
                await line.carry(len(data), self._settings["mb_per_s"] * 1e6)
            if writer is not None:
                writer.write(data)
                await writer.drain()

    def _fault(self) -> str:
        for some, fault in (("hang_next", "hang"), ("lose_next", "broken_after")):
            if self._settings[some] > 0:
                self._settings[some] -= 1
                return fault
        for switch in ("hang", "refuse", "vanish"):
            if self._settings[switch]:
                return switch
        if self._settings["errors"] > 0 and self._random.random() < self._settings["errors"]:
            return self._random.choice(_FAULTS)
        return ""

    def _count(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n


def _refusal(fault: str, method: str) -> bytes:
    status, code, message = {
        "unavailable": ("503 Service Unavailable", "SlowDown", "Please reduce your request rate."),
        "refuse": ("403 Forbidden", "InvalidAccessKeyId", "The access key does not exist in our records."),
        "vanish": ("404 Not Found", "NoSuchBucket", "The specified bucket does not exist"),
    }[fault]
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + ("" if method == "HEAD" else body)).encode()


async def _serve_until_closed(target: int, settings: dict[str, Any]) -> None:
    proxy = _Proxy(target, settings)
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = proxy.serve
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX, backlog=512)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    _say({"port": server.sockets[0].getsockname()[1]})
    while line := await commands.readline():
        do, changes = json.loads(line)
        try:
            if do == "change":
                proxy.change(changes)
            _say(proxy.counts if do == "counts" else {})
        except (ValueError, TypeError) as error:
            _say({"error": str(error)})
    os._exit(0)  # open connections are cut, as a machine that goes would cut them


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_serve_until_closed(int(sys.argv[1]), json.loads(sys.argv[2])))
