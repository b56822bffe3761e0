"""A Redis server on this machine for tests and benches: Debian's ``redis-server``, by ``scripts/redis_server.sh``.

On a free loopback port, with a password of its own if one is wanted. See `GuardedServer` for its life. ``kill`` and
``restart`` are for tests of what happens in between: the same port, and with ``durable`` the same content.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket

from tailrace.lab.servers.debian import program
from tailrace.lab.servers.guarded import HOST, GuardedServer, free_port


class RedisServer(GuardedServer):
    """``with RedisServer() as redis:`` then ``redis.url``.

    ``password``: one is made up, and ``url`` carries it. ``durable``: every write that it has acknowledged is there
    after ``restart``, however soon it was killed, since each write is synced.
    """

    program = "redis-server"

    def __init__(self, password: bool = False, durable: bool = False) -> None:
        super().__init__()
        self.password = secrets.token_hex(16) if password else ""
        self._durable = durable

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the server itself."""
        return int((self.folder / "pid").read_text())

    def kill(self) -> None:
        """The server dies at once, as by a crash of its own; ``restart`` brings it back at the same port."""
        guard, self._guard = self._guard, None
        assert guard is not None and guard.stdin is not None
        os.kill(self.pid, signal.SIGKILL)
        guard.wait()  # sees that the server has ended and leaves the folder, which it removes when its input closes
        guard.stdin.close()

    def restart(self) -> None:
        if self._guard is not None:
            self.kill()
        self._start()

    def _start(self) -> None:
        self.port = self.port or free_port()
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        lines = [f"bind {HOST}", f"port {self.port}", f"dir {data}", f"pidfile {self.folder}/pid", "daemonize no"]
        lines += ['save ""', f"appendonly {'yes' if self._durable else 'no'}", "appendfsync always"]
        lines += [f"requirepass {self.password}"] if self.password else []
        config = self._secret_file("redis.conf", "\n".join(lines) + "\n")
        (self.folder / "pid").unlink(missing_ok=True)
        self._launch([program("redis-server", "REDIS_SERVER"), str(config)])
        self._wait_until(self._ping)

    def _ping(self) -> None:
        """Raises unless it is up and has read its content."""
        with socket.create_connection((HOST, self.port), 2) as line:
            line.settimeout(5)
            login = f"AUTH {self.password}\r\n" if self.password else ""
            line.sendall(f"{login}PING\r\n".encode())
            answer = b""
            while b"PONG" not in answer:
                more = line.recv(4096)
                answer += more
                if not more or b"-" in answer:
                    raise ConnectionError(answer.decode(errors="replace") or "it has closed the connection")
