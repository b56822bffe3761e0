"""Machines of a test's cluster: network namespaces on one bridge. Links can be cut, slowed and made to lose packets.

A host has an address of its own, one link to the bridge, and a temporary folder that no other host sees under that
path; the rest of the disk is shared, as between machines that mount the same folder. The bridge itself has an address,
for servers that run outside of all hosts.

What a run leaves when it is killed is removed by the next one: the bridge's alias says whose it is and which folder
goes with it. Names carry the number of the network, so several can be there at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_NAME = "tailrace"
_NETWORKS_MAX = 250
_GONE_S = 10.0
_ENTER = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
"""``ip netns exec`` gives a process mounts of its own: the host's temporary folder is mounted where all expect one."""
_DROP, _PASS = 2, 0  # TC_ACT_SHOT, TC_ACT_OK
_RANDOM = 0xFFFFF000 + 56  # where a classic filter finds a random word: SKF_AD_OFF + SKF_AD_RANDOM
_BURST_BYTES = 3_000
_QUEUE_BYTES = 400_000


class NotPermitted(Exception):
    """Namespaces cannot be made here; the message says why."""


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """One machine, and its link."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.name = name
        self.address = f"{network.subnet}.{number}"
        self.folder = network.root / "hosts" / name
        self.folder.mkdir(parents=True)
        self._network = network
        self._namespace = f"{network.name}-{name}"
        self._link = f"tr{network.number}-{name}"
        try:
            _call("ip", "netns", "add", self._namespace)
        except OSError as error:
            raise NotPermitted(f"network namespaces cannot be made here: {error}") from error
        _call("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        _call("ip", "link", "set", self._link, "master", network.name, "up")
        _call("ip", "-n", self._namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _call("ip", "-n", self._namespace, "link", "set", device, "up")

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that becomes ``words`` on this host."""
        places = [str(self.folder), str(self._network.temporary)]
        return ["ip", "netns", "exec", self._namespace, "sh", "-c", _ENTER, "sh", *places, *words]

    # Faults of the link, in both directions. Each stays until ``repair``. --------------------------------------------

    def cut(self) -> None:
        """Nothing passes, and nobody is told: connections stay as they are."""
        _call("ip", "link", "set", self._link, "down")

    def delay(self, delay_ms: int) -> None:
        """Each packet waits about so long; without netem, so long for every 3 kB, in the queue of a slow link."""
        if self._network.netem:
            self._tc("qdisc add", "root", "netem", "delay", f"{delay_ms}ms", f"{delay_ms // 2}ms")
        else:
            rate = f"{_BURST_BYTES * 8 * 1000 // delay_ms}bit"
            self._tc("qdisc add", "root", "tbf", "rate", rate, "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES))

    def lose(self, percent: int) -> None:
        """So many of the packets never arrive."""
        if self._network.netem:
            self._tc("qdisc add", "root", "netem", "loss", f"{percent}%")
        else:
            # A classic filter of four instructions: load a random word, compare it, drop or pass.
            drop_below = (1 << 32) * percent // 100
            program = f"4,32 0 0 {_RANDOM},53 1 0 {drop_below},6 0 0 {_DROP},6 0 0 {_PASS}"
            self._tc("qdisc add", "ingress")
            self._tc("filter add", "parent", "ffff:", "protocol", "all", "bpf", "da", "bytecode", program)

    def repair(self) -> None:
        _call("ip", "link", "set", self._link, "up")
        for kind in ("root", "ingress"):
            with suppress(OSError):  # there is none
                self._tc("qdisc del", kind)

    def _tc(self, verb: str, *words: str) -> None:
        """At both ends of the link."""
        _call("tc", *verb.split(), "dev", self._link, *words)
        _call("tc", "-n", self._namespace, *verb.split(), "dev", "eth0", *words)


class Network:
    """Hosts by name. ``root`` is shared by all; ``temporary``, somewhere below it, is another folder on each."""

    def __init__(self, root: Path, temporary: Path, names: Sequence[str]) -> None:
        self.root, self.temporary = root, temporary
        self.hosts: dict[str, Host] = {}
        if missing := [program for program in ("ip", "tc", "mount") if shutil.which(program) is None]:
            raise NotPermitted(f"a cluster of namespaces needs the programs {', '.join(missing)}")
        _sweep()
        self.number = self._make_bridge()
        try:
            _call("ip", "addr", "add", f"{self.gateway}/24", "dev", self.name)
            _call("ip", "link", "set", self.name, "up")
            self.netem = self._has_netem()
            for number, name in enumerate(names, 2):
                self.hosts[name] = Host(self, name, number)
        except BaseException:
            _remove(self.name)
            raise

    @property
    def name(self) -> str:
        return f"{_NAME}{self.number}"

    @property
    def subnet(self) -> str:
        return f"10.213.{self.number}"

    @property
    def gateway(self) -> str:
        """The address of what runs outside of all hosts."""
        return f"{self.subnet}.1"

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self.name)

    def _make_bridge(self) -> int:
        owner = {"pid": os.getpid(), "started": psutil.Process().create_time(), "folder": str(self.root)}
        for number in range(1, _NETWORKS_MAX):
            try:
                _call("ip", "link", "add", f"{_NAME}{number}", "type", "bridge")
            except OSError as error:
                if "exists" in str(error):
                    continue
                raise NotPermitted(f"network bridges cannot be made here: {error}") from error
            _call("ip", "link", "set", f"{_NAME}{number}", "alias", json.dumps(owner))
            return number
        raise NotPermitted(f"there are {_NETWORKS_MAX} networks of tests already: see ip link")

    def _has_netem(self) -> bool:
        try:
            _call("tc", "qdisc", "add", "dev", self.name, "root", "netem", "delay", "1ms")
        except OSError:
            return False
        _call("tc", "qdisc", "del", "dev", self.name, "root")
        return True


def _sweep() -> None:
    """Remove the networks, processes and folders of runs that were killed."""
    try:
        bridges = json.loads(_call("ip", "-j", "link", "show", "type", "bridge") or "[]")
    except OSError as error:
        raise NotPermitted(f"network bridges cannot be listed here: {error}") from error
    for bridge in bridges:
        owner = _owner(bridge)
        if owner is None or _lives(owner):
            continue
        _remove(bridge["ifname"])
        folder = Path(owner["folder"])
        if folder.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _owner(bridge: dict[str, Any]) -> dict[str, Any] | None:
    if not str(bridge.get("ifname", "")).startswith(_NAME):
        return None
    try:
        return dict(json.loads(bridge["ifalias"]))
    except (KeyError, ValueError):
        return None  # no bridge of ours, or one that is being made


def _lives(owner: dict[str, Any]) -> bool:
    try:
        return abs(psutil.Process(owner["pid"]).create_time() - owner["started"]) < 1.0
    except psutil.NoSuchProcess:
        return False


def _remove(bridge: str) -> None:
    """End what runs on a bridge's hosts, and remove them."""
    names = [line.split()[0] for line in _call("ip", "netns", "list").splitlines()]
    namespaces = [name for name in names if name.startswith(f"{bridge}-")]
    deadline = time.monotonic() + _GONE_S
    while living := [int(pid) for name in namespaces for pid in _call("ip", "netns", "pids", name).split()]:
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break  # a process that cannot be killed holds its namespace, and nothing else
        time.sleep(0.05)
    for link in json.loads(_call("ip", "-j", "link", "show", "master", bridge) or "[]"):
        _call("ip", "link", "del", link["ifname"])  # it would go with its namespace, but later
    for name in namespaces:
        _call("ip", "netns", "del", name)
    _call("ip", "link", "del", bridge)
