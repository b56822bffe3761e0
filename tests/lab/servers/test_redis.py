"""The Redis server of the lab: it starts, keeps what it should, shows no password, and goes with its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tailrace.lab.servers.redis import RedisServer


def say(server: RedisServer, *commands: str, login: bool = True) -> str:
    with socket.create_connection(("127.0.0.1", server.port), 5) as line:
        first = [f"AUTH {server.password}"] if server.password and login else []
        line.sendall("".join(f"{command}\r\n" for command in [*first, *commands, "QUIT"]).encode())
        reply = b""
        while more := line.recv(4096):
            reply += more
    return reply.decode()


def test_content_outlives_a_crash_and_everything_goes_at_the_end() -> None:
    with RedisServer(password=True, durable=True) as redis:
        assert redis.password in redis.url
        assert "+OK\r\n+OK" in say(redis, "SET a 1")
        assert "NOAUTH" in say(redis, "GET a", login=False)
        for process in psutil.process_iter(["cmdline", "environ"]):
            shown = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
            assert not any(redis.password in word for word in shown), process
        pid = redis.pid
        redis.kill()
        assert not psutil.pid_exists(pid)
        with pytest.raises(OSError):
            say(redis, "GET a")
        redis.restart()
        assert redis.pid != pid
        assert "$1\r\n1\r\n" in say(redis, "GET a")
        pid, folder = redis.pid, redis.folder
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_it_goes_with_an_owner_that_is_killed() -> None:
    program = (
        "import time; from tailrace.lab.servers.redis import RedisServer\n"
        "with RedisServer() as redis:\n    print(redis.pid, redis.folder, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while psutil.pid_exists(int(pid)) or Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
