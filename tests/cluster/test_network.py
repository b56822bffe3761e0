"""The network of namespaces that other tests run on: its faults are real, and a killed run leaves nothing for good."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.cluster.network import Host, Network, NotPermitted
from support.processes import TESTS, Sandbox, wait_until

ECHO = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
    mine.bind(("", 9))
    while True:
        mine.sendto(*mine.recvfrom(2000))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Sandbox() as sandbox:
        try:
            made = Network(sandbox.root, sandbox.temporary, ["a", "b"])
        except NotPermitted as error:
            pytest.skip(str(error))
        with made:
            yield made


def answers(host: Host, packets: int, wait_s: float = 0.1) -> list[float]:
    """Of so many packets, how long each took that came back."""
    took = []
    for number in range(packets):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
            mine.settimeout(wait_s)
            sent = time.monotonic()
            mine.sendto(bytes([number]) * 1000, (host.address, 9))
            try:
                mine.recv(2000)
                took.append(time.monotonic() - sent)
            except TimeoutError:
                continue
    return took


def test_links_are_cut_slowed_and_lossy_until_they_are_repaired(network: Network) -> None:
    host, other = network.hosts.values()
    for each in (host, other):
        subprocess.Popen(each.command([sys.executable, "-I", "-S", "-c", ECHO]))  # ends with the network
    wait_until("echoes", lambda: bool(answers(host, 1) and answers(other, 1)), 10)

    host.cut()
    assert answers(host, 3) == []
    assert len(answers(other, 3, 5.0)) == 3
    host.repair()
    wait_until("the link", lambda: bool(answers(host, 1)), 10)

    host.lose(50)
    came = len(answers(host, 60, 0.02))
    assert 0 < came < 40, f"{came} of 60 came back, where a quarter is likely"
    host.repair()

    host.delay(100)
    slow = sum(answers(host, 10, 10.0))
    host.repair()
    assert len(answers(host, 5, 5.0)) == 5
    assert slow > 0.2, f"ten packets took {slow} s"


def test_hosts_have_temporary_folders_of_their_own(network: Network) -> None:
    for host in network.hosts.values():
        assert subprocess.run(host.command(["touch", str(network.temporary / host.name)])).returncode == 0
    assert [path.name for host in network.hosts.values() for path in host.folder.iterdir()] == ["a", "b"]
    assert list(network.temporary.iterdir()) == []


def test_what_a_killed_run_leaves_is_removed_by_the_next(network: Network) -> None:
    """``network`` is a living run: it keeps what it has."""
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    child = subprocess.Popen(
        [sys.executable, __file__], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert child.stdout is not None
    left = json.loads(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with Sandbox() as sandbox, Network(sandbox.root, sandbox.temporary, ["a"]):
        assert not Path(left["folder"]).exists()
        assert not psutil.pid_exists(left["pid"]) or psutil.Process(left["pid"]).status() == psutil.STATUS_ZOMBIE
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split()
        assert f"{network.name}-a" in names
        assert f"{left['network']}-b" not in names


def main() -> None:
    """In a child process: a run that waits to be killed."""
    sandbox = Sandbox()
    network = Network(sandbox.root, sandbox.temporary, ["a", "b"])
    sleeping = subprocess.Popen(network.hosts["b"].command(["sleep", "600"]))
    wait_until("sleep", lambda: psutil.Process(sleeping.pid).name() == "sleep", 10)
    print(json.dumps({"folder": str(sandbox.root), "pid": sleeping.pid, "network": network.name}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
