"""A Redis server on this machine for tests and benches: Debian's ``redis-server``, by ``scripts/redis_server.sh``.

On a free loopback port, in a temporary folder, with a password of its own if one is wanted. ``RedisServer`` is a
context manager; the server and its folder also go when this process is interrupted or killed, by ``guard``. ``kill``
and ``restart`` are for tests of what happens in between: the same port, and with ``durable`` the same content. No other
process is touched. Not thread-safe: one owner enters, kills, restarts and leaves; anybody may use the address.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tailrace.errors import TailraceError

_GUARD = Path(__file__).with_name("guard.py")
_SCRIPT = Path(__file__).parents[4] / "scripts" / "redis_server.sh"
_START_TIMEOUT_S = 60
_FETCH_TIMEOUT_S = 300


class RedisServer:
    """``with RedisServer() as redis:`` then ``redis.url``.

    ``password``: one is made up, and ``url`` carries it. ``durable``: what it has answered to is
    there after ``restart``, however soon it was killed, since each write is synced.
    """

    def __init__(self, password: bool = False, durable: bool = False) -> None:
        self.password = secrets.token_hex(16) if password else ""
        self.port = 0
        self._durable = durable
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.folder = Path(tempfile.mkdtemp(prefix="tailrace-redis-"))
        try:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            self._start(redis_program())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_guard()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the server itself."""
        return int((self.folder / "pid").read_text())

    def kill(self) -> None:
        """The server dies at once, as by a crash of its own; ``restart`` brings it back at the same port."""
        guard, self._guard = self._guard, None
        assert guard is not None and guard.stdin is not None
        os.kill(self.pid, signal.SIGKILL)
        guard.wait()  # sees that the server ended, and leaves the folder: told to end, it would remove it
        guard.stdin.close()

    def restart(self) -> None:
        if self._guard is not None:
            self.kill()
        self._start(redis_program())

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()

    def _start(self, program: str) -> None:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        config = self.folder / "redis.conf"
        config.touch(0o600)  # a password on the command line would be for everybody to read
        lines = ["bind 127.0.0.1", f"port {self.port}", f"dir {data}", f"pidfile {self.folder}/pid", "daemonize no"]
        lines += ['save ""', f"appendonly {'yes' if self._durable else 'no'}", "appendfsync always"]
        lines += [f"requirepass {self.password}"] if self.password else []
        config.write_text("\n".join(lines) + "\n")
        (self.folder / "pid").unlink(missing_ok=True)
        log_path = self.folder / "log.txt"
        with log_path.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self.folder), program, str(config)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us only, and we end it
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                said = log_path.read_text(errors="replace")[-2000:] if log_path.exists() else "nothing"
                raise TailraceError(f"redis-server did not start; the last it said:\n{said}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        """Whether it is up and has read its content."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as line:
                line.settimeout(5)
                login = f"AUTH {self.password}\r\n" if self.password else ""
                line.sendall(f"{login}PING\r\n".encode())
                said = b""
                while b"PONG" not in said:
                    more = line.recv(4096)
                    said += more
                    if not more or b"-" in said:
                        return False
                return True
        except OSError:
            return False


def redis_program() -> str:
    """The path of a redis-server, fetched by the project's own script where this is a source tree and none is there."""
    kept = Path(sys.prefix) / "redis"
    for candidate in (os.environ.get("REDIS_SERVER"), shutil.which("redis-server"), str(kept / "redis-server")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    if not _SCRIPT.exists():
        raise TailraceError("There is no redis-server program: install one, or point REDIS_SERVER to it.")
    made = subprocess.run([str(_SCRIPT), str(kept)], capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S)
    if made.returncode != 0:
        raise TailraceError(f"There is no redis-server program, and none could be fetched:\n{made.stderr[-2000:]}")
    return made.stdout.strip()
