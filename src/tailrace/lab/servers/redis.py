"""A Redis server on this machine for tests and benches: Debian's ``redis-server``, by ``scripts/redis_server.sh``.

On a free loopback port, with a password of its own if one is wanted. See `RestartableServer` for its life: with
``durable`` it has the same content after ``restart``.
"""

from __future__ import annotations

import secrets
import socket

from tailrace.lab.servers.debian import program
from tailrace.lab.servers.guarded import HOST, RestartableServer, free_port


class RedisServer(RestartableServer):
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

    def _start(self) -> None:
        self.port = self.port or free_port()
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        lines = [f"bind {HOST}", f"port {self.port}", f"dir {data}", "daemonize no"]
        lines += ['save ""', f"appendonly {'yes' if self._durable else 'no'}", "appendfsync always"]
        lines += [f"requirepass {self.password}"] if self.password else []
        config = self._secret_file("redis.conf", "\n".join(lines) + "\n")
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
