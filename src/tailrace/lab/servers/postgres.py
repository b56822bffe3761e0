"""A PostgreSQL server on this machine for tests and benches: the system's, or Debian's by ``scripts/postgres.sh``.

On a free loopback port, with a user, a password and a database of its own. See `RestartableServer` for its life: what
was committed outlives ``restart``. PostgreSQL refuses to run as root; started by root, it runs as the user ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import socket
import struct
import subprocess
from pathlib import Path
from types import TracebackType

from tailrace.errors import TailraceError
from tailrace.lab.servers.debian import program
from tailrace.lab.servers.guarded import HOST, RestartableServer, free_port

USER = "tailrace"
_OTHER_USER = "nobody"
_INIT_TIMEOUT_S = 120
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""The shortest question of its protocol that has an answer."""


class PostgresServer(RestartableServer):
    """``with PostgresServer() as postgres:`` then ``postgres.url``.

    ``durable``: commits are synced to disk, so that they outlive the machine too; without that they are faster.
    """

    program = "postgres"
    crash_signal = signal.SIGQUIT
    """Ends it at once and without a checkpoint; SIGKILL would also leave its shared memory behind."""

    def __init__(self, durable: bool = False) -> None:
        super().__init__()
        self.password = secrets.token_hex(16)
        self._durable = durable

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{self.password}@{HOST}:{self.port}/postgres"

    @property
    def url_without_password(self) -> str:
        return f"postgresql://{USER}@{HOST}:{self.port}/postgres"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._guard is not None and self._guard.poll() is None and self.port:
            self.kill()
        super().__exit__(kind, error, trace)

    def _start(self) -> None:
        server = program("postgres", "POSTGRES")
        data = self.folder / "data"
        if not data.exists():
            self._make(server, data)
        self.port = self.port or free_port()
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # in its folder, so that it goes with it
            "fsync": "on" if self._durable else "off",
            "max_connections": "40",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._launch([*_as_other_user(), server, "-D", str(data), *words])
        self._wait_until(self._ask)

    def _make(self, server: str, data: Path) -> None:
        """An empty database."""
        data.mkdir(0o700)
        password = self._secret_file("password", self.password)
        if os.geteuid() == 0:
            other = pwd.getpwnam(_OTHER_USER)
            self.folder.chmod(0o711)
            for path in (data, password):
                os.chown(path, other.pw_uid, other.pw_gid)
        command = [*_as_other_user(), str(Path(server).with_name("initdb")), "-D", str(data), "-U", USER]
        command += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INIT_TIMEOUT_S, cwd="/")
        if done.returncode:
            raise TailraceError(f"initdb failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")

    def _ask(self) -> None:
        """Raises unless it takes connections: while it recovers it refuses them after the first words."""
        with socket.create_connection((HOST, self.port), 2) as line:
            line.settimeout(5)
            line.sendall(_SSL_REQUEST)
            line.recv(1)
            words = b"".join(each.encode() + b"\0" for each in ("user", USER, "database", "postgres")) + b"\0"
            line.sendall(struct.pack("!ii", 8 + len(words), 3 << 16) + words)
            if line.recv(1) != b"R":  # it asks for the password
                raise ConnectionError("it is not ready yet")


def _as_other_user() -> list[str]:
    """What stands before a command so that it does not run as root, and still goes with its guard."""
    if os.geteuid() != 0:
        return []
    other = pwd.getpwnam(_OTHER_USER)
    ids = [f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--pdeathsig", "KILL", "--"]
